//! What happens next.

use core::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;

/// A time in seconds, or anything else that is ordered like one.
#[derive(Clone, Copy, Debug)]
pub struct Seconds(pub f64);

impl Ord for Seconds {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl PartialOrd for Seconds {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Seconds {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Seconds {}

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Happening {
    /// A request comes.
    Arrival(usize),
    /// A request's blocks are loaded.
    Loaded(usize),
    /// A worker has computed a prompt.
    Computed(usize),
    /// An answer of a worker is over, if nothing changed since.
    Answered(usize, u64),
    /// Workers are asked how they are.
    Poll,
}

/// What is going to happen.
#[derive(Debug, Default)]
pub struct Agenda {
    entries: BinaryHeap<Reverse<(Seconds, u64, Happening)>>,
    count: u64,
}

impl Agenda {
    /// Puts something down. What is put down first happens first at equal times.
    pub fn put(&mut self, at: f64, happening: Happening) {
        self.count += 1;
        self.entries.push(Reverse((Seconds(at), self.count, happening)));
    }

    /// What is next, and when.
    pub fn take(&mut self) -> Option<(f64, Happening)> {
        self.entries.pop().map(|Reverse((Seconds(at), _, happening))| (at, happening))
    }
}
