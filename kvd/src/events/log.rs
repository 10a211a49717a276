//! Changes between the store, which appends under its lock, and the thread that publishes them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvd_store::TierChanges;

/// Most bytes that wait: some hundred thousand changes.
pub const LOG_BYTES_MAX: usize = 32 << 20;

/// A bounded log. Appending never waits for more than another append or a swap of two pointers.
#[derive(Debug)]
pub struct Log {
    filling: Mutex<Filling>,
    bytes_max: usize,
}

#[derive(Debug, Default)]
struct Filling {
    changes: TierChanges,
    lost: u64,
}

impl Default for Log {
    fn default() -> Self {
        Self::with_room_for(LOG_BYTES_MAX)
    }
}

impl Log {
    /// An empty log of at most so many bytes.
    #[must_use]
    pub fn with_room_for(bytes_max: usize) -> Self {
        Self { filling: Mutex::default(), bytes_max }
    }

    /// Appends changes, all of them or none. Once some found no room, nothing is appended until the log is emptied, so
    /// that what is lost lies at one place.
    pub fn append(&self, changes: &TierChanges) {
        if changes.is_empty() {
            return;
        }
        let mut filling = self.lock();
        if filling.lost > 0 || filling.changes.bytes() + changes.bytes() > self.bytes_max {
            filling.lost += changes.len() as u64;
        } else {
            filling.changes.append(changes);
        }
    }

    /// Takes everything, in exchange for an empty list whose memory is used from now on. How many changes were lost
    /// behind what is taken.
    pub fn take(&self, into: &mut TierChanges) -> u64 {
        into.clear();
        let mut filling = self.lock();
        std::mem::swap(&mut filling.changes, into);
        std::mem::take(&mut filling.lost)
    }

    fn lock(&self) -> MutexGuard<'_, Filling> {
        self.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kvd_proto::events::CacheTier;
    use kvd_store::TierChange;

    use super::*;

    fn cleared(count: usize) -> TierChanges {
        let mut changes = TierChanges::default();
        (0..count).for_each(|_| changes.push(TierChange::Cleared(CacheTier::L3)));
        changes
    }

    #[test]
    fn what_has_no_room_is_counted_and_lies_at_one_place() {
        let one = cleared(1).bytes();
        let log = Log::with_room_for(3 * one);
        let mut taken = TierChanges::default();
        log.append(&cleared(2));
        log.append(&cleared(2));
        log.append(&cleared(1));
        assert_eq!((log.take(&mut taken), taken.len()), (3, 2));
        log.append(&cleared(3));
        assert_eq!((log.take(&mut taken), taken.len()), (0, 3));
        assert_eq!((log.take(&mut taken), taken.len()), (0, 0));
    }
}
