//! `prefetch`: a hint that blocks will be fetched soon.

use std::cell::Cell;
use std::time::Duration;

use kvd_proto::block_key::Namespace;
use kvd_proto::v2::prefetch::Prefetch;

use super::check_names;
use super::look_up::take_keys;
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::ClientError;

impl Client {
    /// Tells the daemon that these blocks will be fetched soon, in this order, so that it brings those that are not in
    /// memory there. After `deadline` the copies are of no use; what has not been started by then is dropped.
    ///
    /// A hint: nothing is waited for but the sending, and a daemon that has no slower tier ignores it. At
    /// most the deadline of the options is spent.
    ///
    /// # Errors
    /// What kept it from being sent. Nothing follows from it.
    pub fn prefetch(
        &self,
        namespace: Namespace<'_>,
        keys: &[&[u8]],
        deadline: Duration,
    ) -> Result<(), ClientError> {
        check_names(namespace, keys.iter().copied())?;
        let stale = Deadline::after(deadline);
        let patience = Deadline::after(self.options().deadline.min(deadline));
        let mut rest = keys;
        while !rest.is_empty() {
            let told = Cell::new(rest.len());
            self.core.tell(patience, |mut outgoing| {
                if outgoing.attachment.abilities.prefetch {
                    told.set(take_keys(&mut outgoing, rest)?);
                    let keys = outgoing.scratch.keys.as_column();
                    let deadline_ms = stale.remaining_ms();
                    Prefetch { namespace, keys, deadline_ms }.encode(outgoing.frame);
                }
                Ok(())
            })?;
            rest = &rest[told.get()..];
        }
        Ok(())
    }
}
