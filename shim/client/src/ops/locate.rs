//! `locate`: where blocks are, without taking them.

use std::time::Duration;

use kvd_proto::block_key::Namespace;
use kvd_proto::tier::Tier;
use kvd_proto::v2::Reply;
use kvd_proto::v2::locate::{Locate, LocatedRow};

use super::look_up::{Answer, Question};
use crate::client::Client;
use crate::error::Breach;

/// A block that can be fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Present {
    /// The fastest tier that has it.
    pub tier: Tier,
    /// Its length in bytes.
    pub len_bytes: u64,
    /// How long loading it should take, by the daemon's estimate.
    pub load: Duration,
}

impl Client {
    /// Asks where blocks are. What is reported present stays loadable for the daemon's promise
    /// window, so that work can be planned on it. With `prefix`, the answer ends with the first
    /// miss.
    #[must_use]
    pub fn locate(
        &self,
        namespace: Namespace<'_>,
        keys: &[&[u8]],
        prefix: bool,
    ) -> Answer<Present> {
        Question { namespace, keys, prefix }.ask(
            &self.core,
            self.core.deadline(),
            |outgoing| {
                let keys = outgoing.scratch.keys.as_column();
                Locate { id: outgoing.id, namespace, keys, prefix }.encode(outgoing.frame);
            },
            |incoming, items| {
                let Reply::Located(located) = incoming.reply else {
                    return Err(Breach::WrongKind.into());
                };
                items.extend(located.rows().map(|row| match row {
                    LocatedRow::Present { tier, len_bytes, load_us } => {
                        Ok(Present { tier, len_bytes, load: Duration::from_micros(load_us.into()) })
                    }
                    LocatedRow::Miss(reason) => Err(reason),
                }));
                Ok(())
            },
        )
    }
}
