//! `clear`: blocks are forgotten.

use kvd_proto::v2::Reply;
use kvd_proto::v2::clear::{Clear, ClearScope};

use super::check_names;
use crate::client::Client;
use crate::error::{Breach, ClientError};
use crate::line::Repeat;

impl Client {
    /// Forgets blocks in every tier; how many rows that were. Views of them stay readable.
    ///
    /// # Errors
    /// If there is no daemon or no answer in time; the blocks may then be gone nevertheless.
    pub fn clear(&self, scope: ClearScope<'_>) -> Result<u64, ClientError> {
        if let ClearScope::Namespace(namespace) = scope {
            check_names(namespace, std::iter::empty())?;
        }
        self.core.exchange(
            self.core.deadline(),
            Repeat::Once,
            |outgoing| {
                Clear { id: outgoing.id, scope }.encode(outgoing.frame);
                Ok(())
            },
            |incoming| match incoming.reply {
                Reply::Cleared(cleared) => Ok(cleared.rows),
                _ => Err(Breach::WrongKind.into()),
            },
        )
    }
}
