//! Whether a write is worth the wear: a budget in bytes per second, and for `short` a second
//! sign that somebody wants the block.

use crate::time::Timestamp;

/// A bucket that fills with time. Empty buckets let nothing pass; a block larger than what is in
/// the bucket passes if it is not empty, and the debt is paid before the next one.
#[derive(Debug)]
pub(crate) struct Budget {
    bytes_per_s: u64,
    /// Thousandths of bytes, so that slow budgets lose nothing to rounding.
    filled: i128,
    at: Timestamp,
}

impl Budget {
    /// 0 bytes per second means no limit.
    pub(crate) const fn new(bytes_per_s: u64) -> Self {
        Self { bytes_per_s, filled: bytes_per_s as i128 * 1000, at: Timestamp(0) }
    }

    /// Whether a block may be written now.
    pub(crate) fn is_open(&mut self, now: Timestamp) -> bool {
        if self.bytes_per_s == 0 {
            return true;
        }
        let full = i128::from(self.bytes_per_s) * 1000;
        let elapsed = i128::from(now.0.saturating_sub(self.at.0));
        self.filled = full.min(self.filled + elapsed * i128::from(self.bytes_per_s));
        self.at = self.at.max(now);
        self.filled > 0
    }

    /// A block is being written.
    pub(crate) fn spend(&mut self, bytes: u64) {
        if self.bytes_per_s > 0 {
            self.filled -= i128::from(bytes) * 1000;
        }
    }
}

/// Slots of the memory of what was stored before, 4 bytes each.
const GHOSTS: usize = 1 << 20;

/// Which keys were stored before, as far as a table of fixed size remembers: a slot per hash, the
/// latest one wins.
#[derive(Debug, Default)]
pub(crate) struct Ghosts {
    tags: Box<[u32]>,
}

impl Ghosts {
    /// Remembers nothing if it is not wanted.
    pub(crate) fn new(wanted: bool) -> Self {
        let slots = if wanted { GHOSTS } else { 0 };
        Self { tags: vec![0; slots].into_boxed_slice() }
    }

    pub(crate) fn are_wanted(&self) -> bool {
        !self.tags.is_empty()
    }

    /// Remembers the key with this hash; whether it was remembered already.
    pub(crate) fn meet(&mut self, hash: u64) -> bool {
        let Some(slots) = (self.tags.len() as u64).checked_sub(1) else {
            return false;
        };
        let slot = usize::try_from(hash & slots).unwrap_or(0);
        let [_, _, _, _, tag @ ..] = hash.to_le_bytes();
        let tag = u32::from_le_bytes(tag) | 1;
        core::mem::replace(&mut self.tags[slot], tag) == tag
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Ghosts};
    use crate::time::Timestamp;

    #[test]
    fn a_budget_holds_over_time() {
        let mut budget = Budget::new(1_000);
        let mut written = 0;
        for now in 0..10_000 {
            while budget.is_open(Timestamp(now)) {
                budget.spend(300);
                written += 300;
            }
        }
        // The bucket was full at first, and the last block may have overdrawn it.
        assert!((11_000..11_300).contains(&written), "{written}");
    }

    #[test]
    fn a_large_block_passes_and_is_paid_for() {
        let mut budget = Budget::new(1_000);
        budget.spend(5_000);
        assert!(!budget.is_open(Timestamp(4_000)));
        assert!(budget.is_open(Timestamp(4_001)));
        let mut unlimited = Budget::new(0);
        unlimited.spend(u64::MAX);
        assert!(unlimited.is_open(Timestamp(0)));
    }

    #[test]
    fn what_was_stored_before_is_known_once_wanted() {
        let mut ghosts = Ghosts::new(true);
        assert!(!ghosts.meet(7 << 40));
        assert!(ghosts.meet(7 << 40));
        assert!(!ghosts.meet(9 << 40), "the same slot");
        assert!(!ghosts.meet(7 << 40));
        let mut none = Ghosts::new(false);
        assert!(!none.meet(1) && !none.meet(1) && !none.are_wanted());
    }
}
