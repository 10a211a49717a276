//! The one place where a request meets the store: lock, decide, make headers visible, unlock.
//!
//! Everything else that a decision asks for (replies, copies, system calls) is done by the calling
//! thread afterwards, outside the lock. An L2 hit therefore makes no thread hop.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use kvd_shm::exit_watch::ExitWatch;
use kvd_shm::header;
use kvd_shm::mapping::Mapping;
use kvd_store::{Effects, HeaderWrite, Input, Store, Timestamp};

/// The store behind its lock, with the clock and the arena that belong to it.
#[derive(Debug)]
pub struct Brain {
    store: Mutex<Store>,
    arena: Arc<Mapping>,
    watch: Arc<ExitWatch>,
    started: Instant,
}

impl Brain {
    /// Joins a store to the arena that it carves and the processes that use it.
    pub fn new(store: Store, arena: Arc<Mapping>, watch: Arc<ExitWatch>) -> Self {
        Self { store: Mutex::new(store), arena, watch, started: Instant::now() }
    }

    /// The arena's bytes.
    pub fn arena(&self) -> &Mapping {
        &self.arena
    }

    /// Applies one input. `effects` is cleared first and holds the answer afterwards.
    ///
    /// Headers are written before the lock opens: nobody may learn of a block whose header a
    /// protocol-1 reader would still find odd.
    pub fn apply(&self, input: Input<'_>, effects: &mut Effects) {
        effects.clear();
        let mut store = self.lock();
        store.apply(input, self.now(), effects);
        for write in &effects.headers {
            let HeaderWrite { payload_offset, version, len_bytes } = *write;
            if version.is_multiple_of(2) {
                header::publish(&self.arena, payload_offset, version, len_bytes);
            } else {
                header::write_odd(&self.arena, payload_offset, version);
            }
        }
        drop(store);
        for session in &effects.forgotten {
            self.watch.unwatch(session.0);
        }
    }

    /// Reads the store under its lock. Keep it short: every session waits.
    pub fn inspect<R>(&self, read: impl FnOnce(&Store, Timestamp) -> R) -> R {
        let store = self.lock();
        read(&store, self.now())
    }

    fn now(&self) -> Timestamp {
        let millis = self.started.elapsed().as_millis();
        Timestamp(u64::try_from(millis).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // A panic while the lock is held aborts the process (fatal.rs); tests may see it poisoned.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
