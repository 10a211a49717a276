//! One block at a time, for those who have only one.

use std::time::Duration;

use kvd_proto::block_key::Namespace;
use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;

use super::Commit;
use crate::client::Client;
use crate::error::ClientError;

impl Client {
    /// Stores one block.
    ///
    /// # Errors
    /// [`ClientError::Declined`] if the daemon will not have it; else what kept it from being asked.
    pub fn put(
        &self,
        namespace: Namespace<'_>,
        key: &[u8],
        bytes: &[u8],
        retention: Retention,
        ttl: Option<Duration>,
    ) -> Result<(), ClientError> {
        let len_bytes = bytes.len() as u64;
        let mut granted = self.reserve(&[len_bytes], retention, self.options().deadline)?;
        let ticket = granted.remove(0).map_err(ClientError::Declined)?;
        ticket.write(0, bytes)?;
        let commit = Commit { ticket, key, len_bytes, lineage: None };
        let outcomes = self.commit(namespace, vec![commit], retention, ttl)?;
        outcomes.into_iter().collect::<Result<(), _>>().map_err(ClientError::Declined)
    }

    /// A copy of one block.
    ///
    /// # Errors
    /// [`ClientError::Miss`] if the daemon says that it is not there; else what kept it from being
    /// asked.
    pub fn get(&self, namespace: Namespace<'_>, key: &[u8]) -> Result<Vec<u8>, ClientError> {
        let answer = self.fetch(namespace, &[key], false, self.options().deadline);
        match (answer.items.into_iter().next(), answer.trouble) {
            (_, Some(trouble)) => Err(trouble),
            (Some(Ok(view)), None) => Ok(view.to_vec()),
            (Some(Err(reason)), None) => Err(ClientError::Miss(reason)),
            (None, None) => Err(ClientError::Miss(MissReason::NeverStored)),
        }
    }
}
