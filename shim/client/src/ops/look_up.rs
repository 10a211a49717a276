//! What `locate` and `fetch` have in common: keys in, an outcome for each, misses for trouble.

use std::cell::Cell;

use kvd_proto::block_key::Namespace;
use kvd_proto::miss::MissReason;

use super::{check_names, fitting};
use crate::client::Core;
use crate::deadline::Deadline;
use crate::error::{Breach, ClientError};
use crate::line::Repeat;
use crate::live::{Incoming, Outgoing};

/// The outcomes of a look-up.
#[derive(Debug)]
pub struct Answer<T> {
    /// One per key, in order; or, if only the prefix was asked for, up to and including the first
    /// miss.
    pub items: Vec<Result<T, MissReason>>,
    /// What kept the daemon from being asked, or from answering, if anything did. The keys it
    /// concerns are misses: [`MissReason::Deadline`] if time ran out, else [`MissReason::Shed`].
    pub trouble: Option<ClientError>,
}

/// The keys of a look-up and how far it goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Question<'a> {
    pub(super) namespace: Namespace<'a>,
    pub(super) keys: &'a [&'a [u8]],
    pub(super) prefix: bool,
}

impl Question<'_> {
    /// Asks in as many frames as it takes. `write` finds the keys of its frame in the scratch
    /// columns; `read` appends the outcomes it finds.
    pub(super) fn ask<T>(
        self,
        core: &Core,
        deadline: Deadline,
        mut write: impl FnMut(Outgoing<'_>),
        mut read: impl FnMut(Incoming<'_>, &mut Vec<Result<T, MissReason>>) -> Result<(), ClientError>,
    ) -> Answer<T> {
        let mut items = Vec::with_capacity(self.keys.len());
        let mut trouble = check_names(self.namespace, self.keys.iter().copied()).err();
        while trouble.is_none() && !self.is_done(&items) {
            let done = items.len();
            let asked = Cell::new(0);
            let answer = core.exchange(
                deadline,
                Repeat::Once,
                |mut outgoing| {
                    asked.set(take_keys(&mut outgoing, &self.keys[done..])?);
                    write(outgoing);
                    Ok(())
                },
                |incoming| {
                    read(incoming, &mut items)?;
                    self.check_count(asked.get(), &items[done..])
                },
            );
            trouble = answer.err();
            if trouble.is_some() {
                items.truncate(done);
            }
        }
        if let Some(error) = &trouble {
            let wanted = if self.prefix { items.len() + 1 } else { self.keys.len() };
            items.resize_with(wanted.min(self.keys.len()), || Err(error.as_miss()));
        }
        Answer { items, trouble }
    }

    fn is_done<T>(&self, items: &[Result<T, MissReason>]) -> bool {
        items.len() >= self.keys.len() || (self.prefix && items.last().is_some_and(Result::is_err))
    }

    /// An answer is as long as its question; a prefix may end early, with the first miss.
    fn check_count<T>(
        &self,
        asked: usize,
        items: &[Result<T, MissReason>],
    ) -> Result<(), ClientError> {
        let ends_early = self.prefix && items.last().is_some_and(Result::is_err);
        let answered = items.len();
        if ends_early && answered < asked {
            return Ok(());
        }
        Ok(super::check_count(asked, answered)?)
    }
}

/// Puts as many keys as one frame takes into the scratch column, and says how many.
pub(super) fn take_keys(outgoing: &mut Outgoing<'_>, keys: &[&[u8]]) -> Result<usize, ClientError> {
    // Each key costs its bytes and a length.
    let count = fitting(&outgoing.attachment.limits, keys.iter().map(|key| key.len() + 2));
    outgoing.scratch.keys.clear();
    for key in &keys[..count] {
        outgoing.scratch.keys.push(key).map_err(Breach::from)?;
    }
    Ok(count)
}
