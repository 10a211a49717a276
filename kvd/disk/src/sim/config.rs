//! What a simulated disk is like.

use std::ops::RangeInclusive;
use std::time::Duration;

/// How time passes.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Pace {
    /// Operations end at the next wait; a wait without any sleeps, as with a real disk.
    Immediate,
    /// Nothing ever sleeps: a wait moves the disk's own clock to the next event, or by its timeout.
    /// An operation takes a drawn time from the range, in microseconds.
    Virtual {
        /// Shortest and longest time of an operation.
        latency_us: RangeInclusive<u64>,
    },
}

/// How often what goes wrong, per million operations of the kind concerned.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Faults {
    /// Reads that end in EIO.
    pub failed_reads: u32,
    /// Writes that end in EIO, after a part of them reached the file.
    pub failed_writes: u32,
    /// Writes that end in ENOSPC; nothing of them reaches the file.
    pub no_space: u32,
    /// Syncs that end in EIO: what they should have covered may never become durable.
    pub failed_syncs: u32,
    /// Writes that are reported as done and never happen.
    pub lost_writes: u32,
    /// Writes that are reported as done and of which some sectors never happen.
    pub torn_writes: u32,
    /// Writes that are reported as done and land somewhere else in the same file.
    pub misdirected_writes: u32,
    /// Reads before which one bit of what they read flips, for good.
    pub bit_rot: u32,
}

/// A simulated disk. The same configuration and the same calls give the same results.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// All chance comes from this.
    pub seed: u64,
    /// Operations in flight, at most; more than zero.
    pub depth: usize,
    /// How time passes.
    pub pace: Pace,
    /// Whether operations that could end now end in drawn order, and some only at a later wait.
    pub reorder: bool,
    /// What goes wrong.
    pub faults: Faults,
}

impl SimConfig {
    /// A disk in virtual time, 50 to 500 µs an operation, reordering, without faults.
    #[must_use]
    pub fn from_seed(seed: u64) -> Self {
        let pace = Pace::Virtual { latency_us: 50..=500 };
        Self { seed, depth: 32, pace, reorder: true, faults: Faults::default() }
    }
}

pub(super) fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
