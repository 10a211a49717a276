//! Who waits for a device before an acknowledgement: each wait has some open conditions and one
//! verdict.

use std::collections::{BTreeMap, VecDeque};

use super::work::{Verdict, WaitId};
use crate::rows::RowId;

/// Most waits at once; one more fails at once.
const WAITS_MAX: usize = 65_536;

/// Answered [`Verdict::Failed`] for ever: for waits that cannot be kept.
const HOPELESS: WaitId = WaitId(0);

#[derive(Clone, Copy, Debug)]
struct Wait {
    open: u32,
    failed: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Waits {
    all: BTreeMap<WaitId, Wait>,
    latest: u64,
    /// Waits for the write of a row; the row is dirty or being written.
    by_row: BTreeMap<RowId, Vec<WaitId>>,
    /// Decided by the input that is being applied.
    pub(super) decided: Vec<WaitId>,
    pub(super) durable_total: u64,
    pub(super) failed_total: u64,
}

impl Waits {
    /// A wait without conditions; add them, then [`Self::seal`] it.
    pub(crate) fn begin(&mut self) -> WaitId {
        if self.all.len() >= WAITS_MAX {
            self.failed_total += 1;
            return HOPELESS;
        }
        self.latest += 1;
        let wait = WaitId(self.latest);
        // The condition that `seal` meets keeps the wait open meanwhile.
        self.all.insert(wait, Wait { open: 1, failed: false });
        wait
    }

    /// One more thing to happen before the wait ends well.
    pub(crate) fn add(&mut self, wait: WaitId) {
        if let Some(wait) = self.all.get_mut(&wait) {
            wait.open += 1;
        }
    }

    /// All conditions are known.
    pub(crate) fn seal(&mut self, wait: WaitId) {
        self.settle(wait, true);
    }

    /// One condition is met, or never will be.
    pub(crate) fn settle(&mut self, wait: WaitId, met: bool) {
        let Some(state) = self.all.get_mut(&wait) else {
            return;
        };
        if state.failed {
            return;
        }
        state.open -= 1;
        state.failed = !met;
        if state.failed {
            self.failed_total += 1;
            self.decided.push(wait);
        } else if state.open == 0 {
            self.durable_total += 1;
            self.decided.push(wait);
        }
    }

    /// The wait has one more condition: that the row is written.
    pub(crate) fn add_row(&mut self, wait: WaitId, row: RowId) {
        if self.all.contains_key(&wait) {
            self.add(wait);
            self.by_row.entry(row).or_default().push(wait);
        }
    }

    /// Who waits for the row, which is forgotten.
    pub(crate) fn take_row(&mut self, row: RowId) -> Vec<WaitId> {
        self.by_row.remove(&row).unwrap_or_default()
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = RowId> + '_ {
        self.by_row.keys().copied()
    }

    /// The row will not be written.
    pub(crate) fn fail_row(&mut self, row: RowId) {
        for wait in self.take_row(row) {
            self.settle(wait, false);
        }
    }

    /// See [`crate::Input::Verdict`].
    pub(crate) fn verdict(&mut self, wait: WaitId, give_up: bool) -> Verdict {
        let verdict = match self.all.get(&wait) {
            None => Verdict::Failed,
            Some(state) if state.failed => Verdict::Failed,
            Some(state) if state.open == 0 => Verdict::Met,
            Some(_) => Verdict::Pending,
        };
        if give_up || verdict != Verdict::Pending {
            self.all.remove(&wait);
        }
        verdict
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }
}

/// Waits of one device for its journal to get somewhere, in the order of sequences.
#[derive(Debug, Default)]
pub(crate) struct JournalWaits {
    pending: VecDeque<(u64, WaitId)>,
}

impl JournalWaits {
    /// `sequence` never falls.
    pub(crate) fn push(&mut self, sequence: u64, wait: WaitId) {
        debug_assert!(self.pending.back().is_none_or(|&(last, _)| last <= sequence));
        self.pending.push_back((sequence, wait));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// A wait for something up to `reached`.
    pub(crate) fn pop_reached(&mut self, reached: u64) -> Option<WaitId> {
        self.pending.pop_front_if(|(sequence, _)| *sequence <= reached).map(|(_, wait)| wait)
    }

    /// Any wait: the device is out of use.
    pub(crate) fn pop(&mut self) -> Option<WaitId> {
        self.pending.pop_front().map(|(_, wait)| wait)
    }
}

#[cfg(test)]
mod tests {
    use super::{HOPELESS, WAITS_MAX, Waits};
    use crate::disk::Verdict;
    use crate::rows::RowId;

    #[test]
    fn a_wait_ends_with_its_last_condition_or_its_first_failure() {
        let mut waits = Waits::default();
        let (good, bad, empty) = (waits.begin(), waits.begin(), waits.begin());
        waits.add_row(good, RowId(1));
        waits.add(good);
        waits.add_row(bad, RowId(1));
        waits.add(bad);
        for wait in [good, bad, empty] {
            waits.seal(wait);
        }
        assert_eq!(waits.decided, [empty]);
        for wait in waits.take_row(RowId(1)) {
            waits.settle(wait, true);
        }
        waits.settle(bad, false);
        assert_eq!(waits.verdict(good, false), Verdict::Pending);
        waits.settle(good, true);
        assert_eq!(waits.decided, [empty, bad, good]);
        assert_eq!(waits.verdict(good, false), Verdict::Met);
        assert_eq!(waits.verdict(bad, false), Verdict::Failed);
        assert_eq!(waits.verdict(empty, true), Verdict::Met);
        assert_eq!(waits.verdict(good, false), Verdict::Failed, "asked for before");
        assert_eq!(waits.len(), 0);
    }

    #[test]
    fn waits_are_bounded_and_late_conditions_harmless() {
        let mut waits = Waits::default();
        let all: Vec<_> = (0..WAITS_MAX).map(|_| waits.begin()).collect();
        assert_eq!(waits.begin(), HOPELESS);
        waits.add_row(HOPELESS, RowId(3));
        waits.fail_row(RowId(3));
        assert_eq!(waits.verdict(HOPELESS, false), Verdict::Failed);
        assert_eq!(waits.verdict(all[0], true), Verdict::Pending);
        waits.settle(all[0], true);
        assert!(waits.decided.is_empty());
        assert_ne!(waits.begin(), HOPELESS);
    }
}
