//! The one place where a request meets the store: lock, decide, make headers visible, unlock, wake.
//!
//! Everything else that a decision asks for (replies, copies, system calls) is done by the calling
//! thread afterwards, outside the lock. An L2 hit therefore makes no thread hop.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kvd_disk::Waker;
use kvd_shm::exit_watch::ExitWatch;
use kvd_shm::header;
use kvd_shm::mapping::Mapping;
use kvd_store::{
    DEVICES_MAX, DeviceId, Effects, HeaderWrite, Input, Store, StoreConfig, Timestamp,
};

use crate::parkers::Parkers;

/// The store behind its lock, with the clock and the arena that belong to it.
#[derive(Debug)]
pub struct Brain {
    store: Mutex<Store>,
    arena: Arc<Mapping>,
    watch: Arc<ExitWatch>,
    started: Instant,
    wall_origin_ms: u64,
    hash_seed: u64,
    devices: u8,
    /// Session threads that wait for storage.
    pub parkers: Parkers,
    /// Who drives each device, once somebody does.
    drivers: [OnceLock<Waker>; DEVICES_MAX as usize],
}

impl Brain {
    /// Builds a store and joins it to the arena that it carves and the processes that use it. The
    /// wall clock at the store's beginning is filled in here.
    pub fn new(mut config: StoreConfig, arena: Arc<Mapping>, watch: Arc<ExitWatch>) -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        config.disk.wall_origin_ms = millis(since_1970);
        Self {
            store: Mutex::new(Store::new(config)),
            arena,
            watch,
            started: Instant::now(),
            wall_origin_ms: config.disk.wall_origin_ms,
            hash_seed: config.hash_seed,
            devices: config.disk.devices,
            parkers: Parkers::default(),
            drivers: [const { OnceLock::new() }; DEVICES_MAX as usize],
        }
    }

    /// The arena's bytes.
    pub fn arena(&self) -> &Arc<Mapping> {
        &self.arena
    }

    /// The wall clock as the store sees it, in milliseconds since 1970: it never runs backwards.
    pub fn wall_ms(&self) -> u64 {
        self.wall_origin_ms.saturating_add(self.now().0)
    }

    /// The seed of the store's hash functions.
    pub fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// How many devices the store knows.
    pub fn devices(&self) -> u8 {
        self.devices
    }

    /// From now on `waker` is called when `device` has something to do. Only the first one counts.
    pub fn drive(&self, device: DeviceId, waker: Waker) {
        if let Some(driver) = self.drivers.get(usize::from(device.0)) {
            let _first = driver.get_or_init(|| waker);
        }
    }

    /// Applies one input. `effects` is cleared first and holds the answer afterwards.
    ///
    /// Headers are written before the lock opens: nobody may learn of a block whose header a
    /// protocol-1 reader would still find odd. Whoever has something to do is woken after it.
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
        // Large, and taking it apart takes a while: nobody waits for that.
        effects.retired.clear();
        for session in &effects.forgotten {
            self.watch.unwatch(session.0);
        }
        self.parkers.wake(effects);
        self.wake_drivers(effects.devices_to_wake);
    }

    fn wake_drivers(&self, mut devices: u64) {
        while devices != 0 {
            let device = devices.trailing_zeros() as usize;
            devices &= devices - 1;
            if let Some(waker) = self.drivers.get(device).and_then(OnceLock::get) {
                waker.wake();
            }
        }
    }

    /// Reads the store under its lock. Keep it short: every session waits.
    pub fn inspect<R>(&self, read: impl FnOnce(&Store, Timestamp) -> R) -> R {
        let store = self.lock();
        read(&store, self.now())
    }

    fn now(&self) -> Timestamp {
        Timestamp(millis(self.started.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, Store> {
        // A panic while the lock is held aborts the process (fatal.rs); tests may see it poisoned.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
