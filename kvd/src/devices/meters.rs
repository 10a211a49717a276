//! Counters of one device, written by the thread that drives it and by its upkeep.

use std::sync::atomic::{AtomicU64, Ordering};

use kvd_store::{DiskDone, LoadFault};

/// What one device did since the start.
#[derive(Debug, Default)]
pub struct DeviceMeters {
    /// Blocks read and right.
    pub loads: AtomicU64,
    /// Blocks written.
    pub spills: AtomicU64,
    /// Bytes read for blocks.
    pub read_bytes: AtomicU64,
    /// Bytes written for blocks, padding included.
    pub written_bytes: AtomicU64,
    /// Bytes written for journals and snapshots.
    pub record_bytes: AtomicU64,
    /// Bytes of new containers that were written once before use.
    pub zeroed_bytes: AtomicU64,
    /// Blocks that did not fit their checksum when they were read.
    pub corrupt: AtomicU64,
    /// Operations that failed.
    pub faults: AtomicU64,
    /// Times that a container could not be made because the file system is full.
    pub growth_refused: AtomicU64,
}

impl DeviceMeters {
    pub(super) fn count(&self, done: &DiskDone) {
        let counter = match done {
            DiskDone::Loaded { result: Ok(()), .. } => &self.loads,
            DiskDone::Loaded { result: Err(LoadFault::Corrupt), .. } => &self.corrupt,
            DiskDone::Spilled { result: Ok(_), .. } => &self.spills,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn add(counter: &AtomicU64, bytes: u64) {
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn fault(&self) {
        self.faults.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use kvd_store::{LoadId, SpillId};

    use super::*;

    #[test]
    fn each_end_is_counted_where_it_belongs() {
        let meters = DeviceMeters::default();
        let load = |result| DiskDone::Loaded { load: LoadId(1), result, took_us: 0 };
        meters.count(&load(Ok(())));
        meters.count(&load(Err(LoadFault::Corrupt)));
        meters.count(&load(Err(LoadFault::Io)));
        meters.count(&DiskDone::Spilled { spill: SpillId(1), result: Ok(7), took_us: 0 });
        let counts = [&meters.loads, &meters.corrupt, &meters.spills]
            .map(|counter| counter.load(Ordering::Relaxed));
        assert_eq!(counts, [1, 1, 1]);
    }
}
