//! `fetch`: leases on blocks, as views.

use std::sync::Arc;
use std::time::Duration;

use kvd_proto::block_key::Namespace;
use kvd_proto::v2::Reply;
use kvd_proto::v2::fetch::{Fetch, FetchedRow};

use super::look_up::{Answer, Question};
use crate::client::Client;
use crate::deadline::Deadline;
use crate::error::Breach;
use crate::view::{Batch, View};

impl Client {
    /// Fetches blocks: a view for each that is there. With `prefix`, the answer ends with the first
    /// miss.
    ///
    /// Whatever is wrong with the daemon, the answer comes by the deadline and consists of misses;
    /// a daemon that is known to be gone is not waited for.
    #[must_use]
    pub fn fetch(
        &self,
        namespace: Namespace<'_>,
        keys: &[&[u8]],
        prefix: bool,
        deadline: Duration,
    ) -> Answer<View> {
        let deadline = Deadline::after(deadline);
        Question { namespace, keys, prefix }.ask(
            &self.core,
            deadline,
            |outgoing| {
                let id = outgoing.id;
                let keys = outgoing.scratch.keys.as_column();
                let deadline_ms = deadline.remaining_ms();
                Fetch { id, namespace, keys, prefix, deadline_ms }.encode(outgoing.frame);
            },
            |incoming, items| {
                let Reply::Fetched(fetched) = incoming.reply else {
                    return Err(Breach::WrongKind.into());
                };
                let attachment = incoming.attachment;
                let batch = Batch::new(Arc::clone(&self.core), Arc::clone(attachment));
                let first = items.len();
                for row in fetched.rows() {
                    items.push(match row {
                        FetchedRow::Hit { lease, offset, len_bytes } => {
                            Ok(batch.view(attachment.slice(offset, len_bytes)?, lease))
                        }
                        FetchedRow::Miss(reason) => Err(reason),
                    });
                }
                let views = items[first..].iter().flatten();
                attachment.returns.hold_leases(views.map(View::lease));
                Ok(())
            },
        )
    }
}
