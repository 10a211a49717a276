//! One device as its threads and everybody else see it: what it is told, what is known of it.

use std::collections::VecDeque;
use std::fmt::Display;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kvd_disk::{Fault, FileId, Waker};
use kvd_store::tablespace::Tablespace;
use kvd_store::{DeviceFault, DeviceId, DiskDone, LoadFault};

use super::meters::DeviceMeters;
use crate::sparing::Sparing;

/// What the thread that drives a device is told.
#[derive(Debug)]
pub enum Order {
    /// A file that work may name from now on.
    Attach {
        /// Its number.
        file: FileId,
        /// The open file.
        handle: File,
    },
    /// What recovery found.
    Ready(Box<Tablespace>),
    /// Room for blocks.
    Space {
        /// Bytes of the containers that may be used.
        bytes: u64,
        /// Bytes that there will be, unless the file system gets full.
        expected_bytes: u64,
    },
    /// How fast it was found to read.
    Reads {
        /// Bytes a second.
        bytes_per_s: u64,
    },
    /// The device is of no use.
    Failed(DeviceFault),
    /// Put everything on stable storage, and say so under this number.
    Flush(u64),
    /// Write what is waiting until then, then end.
    Finish(Instant),
}

/// One directory of the disk tier.
#[derive(Debug)]
pub struct Device {
    /// Its number in the store.
    pub id: DeviceId,
    /// The directory as configured.
    pub path: PathBuf,
    /// Its counters.
    pub meters: DeviceMeters,
    orders: Mutex<VecDeque<Order>>,
    waker: OnceLock<Waker>,
    container_bytes: AtomicU64,
    prepared: AtomicBool,
    /// No block is to be moved from or to the arena.
    held: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
    faults: Sparing,
}

#[derive(Debug, Default)]
struct State {
    engine: Option<&'static str>,
    /// Why it is not used, for people: what is wrong and the way out.
    refusal: Option<String>,
    /// What is amiss at the moment, for as long as it is.
    condition: Option<String>,
    /// No block is under way while it is held.
    stands_still: bool,
    flushes: u64,
    /// The latest flush that ended, and whether everything is on stable storage.
    flushed: (u64, bool),
}

impl Device {
    /// A device of which nothing is known yet.
    #[must_use]
    pub fn new(id: DeviceId, path: PathBuf) -> Self {
        Self {
            id,
            path,
            meters: DeviceMeters::default(),
            orders: Mutex::default(),
            waker: OnceLock::new(),
            container_bytes: AtomicU64::new(u64::MAX),
            prepared: AtomicBool::new(false),
            held: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
            faults: Sparing::default(),
        }
    }

    /// Tells the thread that drives it.
    pub fn order(&self, order: Order) {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner).push_back(order);
        self.wake();
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Everything that has been ordered and not been taken yet.
    pub fn take_orders(&self) -> VecDeque<Order> {
        std::mem::take(&mut *self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who drives it, and by what.
    pub fn is_driven(&self, waker: Waker, engine: &'static str) {
        let _first = self.waker.get_or_init(|| waker);
        self.lock().engine = Some(engine);
    }

    /// The engine that drives it.
    #[must_use]
    pub fn engine(&self) -> Option<&'static str> {
        self.lock().engine
    }

    /// Its files are there, with containers of this size.
    pub fn prepared(&self, container_bytes: u64) {
        self.container_bytes.store(container_bytes, Ordering::Release);
        self.prepared.store(true, Ordering::Release);
    }

    /// Whether its files are there.
    #[must_use]
    pub fn is_prepared(&self) -> bool {
        self.prepared.load(Ordering::Acquire)
    }

    /// Size of its containers.
    #[must_use]
    pub fn container_bytes(&self) -> u64 {
        self.container_bytes.load(Ordering::Acquire)
    }

    /// The device is not used, and why.
    pub fn refuse(&self, reason: impl Into<String>) {
        self.lock().refusal = Some(reason.into());
        self.order(Order::Failed(DeviceFault::Unusable));
    }

    /// Why the device is not used, if it is not.
    #[must_use]
    pub fn refusal(&self) -> Option<String> {
        self.lock().refusal.clone()
    }

    /// Notes, or ends, what is amiss at the moment; true if that is news.
    pub fn set_condition(&self, condition: Option<String>) -> bool {
        let mut state = self.lock();
        let is_news = state.condition != condition;
        state.condition = condition;
        is_news
    }

    /// What is amiss at the moment.
    #[must_use]
    pub fn condition(&self) -> Option<String> {
        self.lock().condition.clone()
    }

    /// Asks for everything to be put on stable storage; the number to wait for.
    pub fn flush(&self) -> u64 {
        let number = {
            let mut state = self.lock();
            state.flushes += 1;
            state.flushes
        };
        self.order(Order::Flush(number));
        number
    }

    /// A flush has ended.
    pub(super) fn flushed(&self, number: u64, is_durable: bool) {
        self.lock().flushed = (number, is_durable);
        self.changed.notify_all();
    }

    /// Whether flush `number` has ended, and whether everything is on stable storage.
    #[must_use]
    pub fn has_flushed(&self, number: u64) -> Option<bool> {
        let (latest, is_durable) = self.lock().flushed;
        (latest >= number).then_some(is_durable)
    }

    /// Moves no more blocks from or to the arena, until [`Device::let_go`].
    pub fn hold(&self) {
        self.lock().stands_still = false;
        self.held.store(true, Ordering::Release);
        self.wake();
    }

    /// Ends [`Device::hold`].
    pub fn let_go(&self) {
        self.held.store(false, Ordering::Release);
        self.wake();
    }

    /// Whether no block is to be moved.
    pub(super) fn is_held(&self) -> bool {
        self.held.load(Ordering::Acquire)
    }

    /// It was held, and no block is under way.
    pub(super) fn stands_still(&self) {
        self.lock().stands_still = true;
        self.changed.notify_all();
    }

    /// Waits until no block is under way after [`Device::hold`]; false if one is by then. A device that nobody drives
    /// moves none.
    #[must_use]
    pub fn wait_still(&self, deadline: Instant) -> bool {
        self.waker.get().is_none() || self.wait_until(deadline, |state| state.stands_still)
    }

    /// Waits until the last flush, that of the end, is over; false if it is not by then.
    #[must_use]
    pub fn wait_finished(&self, deadline: Instant) -> bool {
        self.wait_until(deadline, |state| state.flushed.0 == u64::MAX)
    }

    fn wait_until(&self, deadline: Instant, is_so: fn(&State) -> bool) -> bool {
        let mut state = self.lock();
        while !is_so(&state) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let slice = left.min(Duration::from_secs(1));
            (state, _) =
                self.changed.wait_timeout(state, slice).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Counts what ended, and logs what is worth it.
    pub(super) fn note(&self, done: &DiskDone, fault: Option<Fault>) {
        self.meters.count(done);
        match (done, fault) {
            (DiskDone::Loaded { result: Err(LoadFault::Corrupt), .. }, _) => {
                self.log_fault("a block does not fit its checksum; it is dropped and a miss");
            }
            (_, Some(fault)) => self.log_fault(fault),
            (_, None) => {}
        }
    }

    /// One line for many troubles.
    pub(super) fn log_fault(&self, trouble: impl Display) {
        if let Some(left_out) = self.faults.allows() {
            let path = self.path.display();
            tracing::warn!(%path, left_out, "disk tier: {trouble}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_taken_once_in_their_order() {
        let device = Device::new(DeviceId(0), "/x".into());
        device.order(Order::Space { bytes: 1, expected_bytes: 2 });
        let number = device.flush();
        let taken: Vec<Order> = device.take_orders().into();
        assert!(matches!(taken[..], [Order::Space { bytes: 1, .. }, Order::Flush(1)]), "{taken:?}");
        assert!(device.take_orders().is_empty());
        assert_eq!(device.has_flushed(number), None);
        device.flushed(number, true);
        assert_eq!(device.has_flushed(number), Some(true));
        assert!(!device.wait_finished(Instant::now()));
        device.flushed(u64::MAX, false);
        assert!(device.wait_finished(Instant::now() + Duration::from_secs(60)));
    }

    #[test]
    fn a_condition_is_news_once() {
        let device = Device::new(DeviceId(0), "/x".into());
        assert!(device.set_condition(Some("full".into())));
        assert!(!device.set_condition(Some("full".into())));
        assert!(device.set_condition(None));
        assert_eq!(device.condition(), None);
    }
}
