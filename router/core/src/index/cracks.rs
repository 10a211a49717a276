//! Where a holder's blocks may not go all the way back to the beginning of a prompt.
//!
//! Engines give the end of a prompt up before its beginning, so who has a block nearly always has everything before it,
//! and a question needs to look at few blocks of a long prompt only. Where that is not so is a *crack*: a block that a
//! holder does not have though it has the next one, or that it has without anybody knowing what comes before. Cracks are
//! counted by a few bits of their names. Between two positions of a prompt without a count, what a holder has is a
//! beginning: a question may jump. A count where there is no crack only costs a look.

use core::sync::atomic::{AtomicU16, Ordering};

use super::name::Name;

const COUNTERS: usize = 1 << 16;

#[derive(Debug)]
pub(super) struct Cracks {
    counters: Box<[AtomicU16]>,
}

impl Cracks {
    pub(super) fn new() -> Self {
        Self { counters: (0..COUNTERS).map(|_| AtomicU16::new(0)).collect() }
    }

    pub(super) fn mark(&self, name: Name) {
        // A counter that is full stays so: it then says "perhaps" for ever, which is safe.
        self.update(name, |count| count.saturating_add(1));
    }

    pub(super) fn unmark(&self, name: Name) {
        self.update(name, |count| if count == u16::MAX { count } else { count.saturating_sub(1) });
    }

    /// Whether there may be a crack at this block.
    pub(super) fn may_be_at(&self, name: Name) -> bool {
        self.counter(name).is_none_or(|counter| counter.load(Ordering::Acquire) != 0)
    }

    pub(super) fn are_there(&self) -> bool {
        self.counters.iter().any(|counter| counter.load(Ordering::Relaxed) != 0)
    }

    fn update(&self, name: Name, to: impl Fn(u16) -> u16) {
        if let Some(counter) = self.counter(name) {
            let change = |count| Some(to(count));
            let _always_changed = counter.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change);
        }
    }

    fn counter(&self, name: Name) -> Option<&AtomicU16> {
        self.counters.get((name.bits() >> 16) as usize & (COUNTERS - 1))
    }
}
