//! When promises end. The window is the same for all, so a queue is in the order of time.
//!
//! A promise is a mark on the row's extent and a time in the row; the queue only says when to
//! look. Entries of renewed promises and of rows that left are stale: they say a time that is not
//! the row's, or find no mark. (If a new row with the same number was promised in the same
//! millisecond, the entry says the right time for it, too.)

use std::collections::VecDeque;

use crate::rows::RowId;
use crate::slab::Id;
use crate::time::Timestamp;

/// Stale entries that are tolerated before the queue is swept.
const STALE_MAX: usize = 4096;

#[derive(Debug)]
pub(crate) struct Promises<I = RowId, T = Timestamp> {
    ends: VecDeque<(T, I)>,
    /// Promised rows.
    pub(crate) rows: u64,
    /// Bytes of their extents.
    pub(crate) bytes: u64,
}

impl<I, T> Default for Promises<I, T> {
    fn default() -> Self {
        Self { ends: VecDeque::new(), rows: 0, bytes: 0 }
    }
}

impl<I: Id, T: Copy + Ord> Promises<I, T> {
    pub(crate) fn push(&mut self, until: T, row: I) {
        self.ends.push_back((until, row));
    }

    /// The next entry whose time has come.
    pub(crate) fn pop_due(&mut self, now: T) -> Option<(T, I)> {
        self.ends.pop_front_if(|(until, _)| *until <= now)
    }

    pub(crate) fn is_due(&self, now: T) -> bool {
        self.ends.front().is_some_and(|&(until, _)| until <= now)
    }

    /// Whether more than half of the queue is stale.
    pub(crate) fn needs_sweep(&self) -> bool {
        let live = usize::try_from(self.rows).unwrap_or(usize::MAX);
        self.ends.len() / 2 > live.saturating_add(STALE_MAX)
    }

    /// Drops the entries that `is_live` says no to.
    pub(crate) fn sweep(&mut self, mut is_live: impl FnMut(T, I) -> bool) {
        self.ends.retain(|&(until, row)| is_live(until, row));
    }
}
