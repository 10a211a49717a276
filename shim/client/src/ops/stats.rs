//! `stats`: the daemon's figures.

use kvd_proto::v2::Reply;
use kvd_proto::v2::stats::Stats;

use crate::client::Client;
use crate::error::{Breach, ClientError};
use crate::line::Repeat;

impl Client {
    /// The daemon's counters and gauges by name, in its order.
    ///
    /// # Errors
    /// If there is no daemon or no answer in time.
    pub fn stats(&self) -> Result<Vec<(String, u64)>, ClientError> {
        self.core.exchange(
            self.core.deadline(),
            Repeat::Once,
            |outgoing| {
                Stats { id: outgoing.id }.encode(outgoing.frame);
                Ok(())
            },
            |incoming| match incoming.reply {
                Reply::Stats(stats) => {
                    Ok(stats.values.iter().map(|(name, value)| (name.to_owned(), value)).collect())
                }
                _ => Err(Breach::WrongKind.into()),
            },
        )
    }
}
