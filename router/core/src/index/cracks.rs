//! Where a holder's blocks may not go all the way back to the beginning of a prompt.
//!
//! Engines give the end of a prompt up before its beginning, so who has a block nearly always has everything before it,
//! and a question needs to look at few blocks of a long prompt only. Where that is not so is a *crack*: a block that a
//! holder does not have though it has the next one, or that it has without anybody knowing what comes before. Cracks are
//! counted by a few bits of their names. Between two positions of a prompt without a count, what a holder has is a
//! beginning: a question may jump. A count where there is no crack only costs a look.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::name::Name;

const COUNTERS: usize = 1 << 16;
/// Counters behind one lock; a whole number of words.
const STRIPE: usize = 1 << 10;
const WORD_BITS: usize = u64::BITS as usize;

#[derive(Debug)]
pub(super) struct Cracks {
    /// A bit for each counter that is not 0. All that a question reads: it fits beside what a question works with.
    bits: Box<[AtomicU64]>,
    stripes: Box<[Mutex<[u16; STRIPE]>]>,
}

const fn number_of(name: Name) -> usize {
    (name.bits() >> 16) as usize & (COUNTERS - 1)
}

impl Cracks {
    pub(super) fn new() -> Self {
        Self {
            bits: (0..COUNTERS / WORD_BITS).map(|_| AtomicU64::new(0)).collect(),
            stripes: (0..COUNTERS / STRIPE).map(|_| Mutex::new([0; STRIPE])).collect(),
        }
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
        let number = number_of(name);
        let word = self.bits.get(number / WORD_BITS);
        word.is_none_or(|word| word.load(Ordering::Acquire) >> (number % WORD_BITS) & 1 != 0)
    }

    pub(super) fn are_there(&self) -> bool {
        self.bits.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    fn update(&self, name: Name, to: impl Fn(u16) -> u16) {
        let number = number_of(name);
        let (Some(stripe), Some(word)) =
            (self.stripes.get(number / STRIPE), self.bits.get(number / WORD_BITS))
        else {
            return;
        };
        let mut counters = stripe.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = counters.get_mut(number % STRIPE) else {
            return;
        };
        let before = *count;
        *count = to(before);
        let bit = 1 << (number % WORD_BITS);
        // Under the lock, so that bit and counter never part.
        match (before, *count) {
            (0, 1..) => drop(word.fetch_or(bit, Ordering::Release)),
            (1.., 0) => drop(word.fetch_and(!bit, Ordering::Release)),
            _ => {}
        }
    }
}
