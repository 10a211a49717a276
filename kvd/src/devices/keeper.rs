//! What goes on with a device that is ready, for the daemon's life: growth, health, and whether its files
//! are where they were.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvd_store::{DeviceFault, DeviceHealth, DeviceInfo};

use super::claim::{Claim, is_gone};
use super::device::{Device, Order};
use super::directory::Directory;
use super::growth::{Grown, Growth};
use super::self_check::{self, Measured};
use super::{files, health, marker};
use crate::daemon::Daemon;

/// Between two looks at a device that has all its containers.
const PAUSE: Duration = Duration::from_millis(200);
/// The same while it grows.
const PAUSE_GROWING: Duration = Duration::from_millis(50);
/// Before growth is tried again that failed, as it does where the file system is full.
const PAUSE_FULL: Duration = Duration::from_secs(2);
/// Free room that is kept ahead, at most; for small containers it is one of them.
const AHEAD_BYTES_MAX: u64 = 1 << 30;
/// With less free room than this, growth does not pause for others.
const SHORT_BYTES: u64 = 64 << 20;

/// A device that is ready.
pub(super) struct Ready {
    pub(super) directory: Directory,
    pub(super) growth: Growth,
    pub(super) first_container: Option<File>,
}

/// Sees to one device.
pub(super) struct Keeper {
    daemon: Arc<Daemon>,
    device: Arc<Device>,
    claim: Arc<Claim>,
    ready: Ready,
    /// What growth has written so far.
    written: Measured,
    /// No growth before this time.
    grow_at: Instant,
    /// The next look at whether the files are where they were.
    look_at: Instant,
}

impl Keeper {
    pub(super) fn new(
        daemon: Arc<Daemon>,
        device: Arc<Device>,
        claim: Arc<Claim>,
        ready: Ready,
    ) -> Self {
        let (written, now) = (Measured::default(), Instant::now());
        Self { daemon, device, claim, ready, written, grow_at: now, look_at: now }
    }

    pub(super) fn run(mut self) {
        let mut is_checked = !self.daemon.settings.disk.self_check;
        loop {
            let Some(info) = self.info() else {
                return;
            };
            if self.notice(&info) {
                // The lock stays ours: what was written last may still be on its way.
                while !self.daemon.stop.wait(PAUSE) {}
                return;
            }
            let pause = if self.is_in_place() { self.grow(&info) } else { PAUSE_GROWING };
            let is_ready = info.health == DeviceHealth::Ready && info.capacity_bytes > 0;
            if is_ready && !is_checked {
                is_checked = true;
                self.check();
            }
            if self.daemon.stop.wait(pause) {
                // It may have failed at the very end.
                if let Some(info) = self.info() {
                    self.notice(&info);
                }
                return;
            }
        }
    }

    /// Whether the next start would find what is written. If not, the device is given up: nothing more is
    /// acknowledged as durable, and nothing gets into files that took the place of ours.
    fn is_in_place(&mut self) -> bool {
        if Instant::now() < self.look_at {
            return true;
        }
        self.look_at = Instant::now() + PAUSE;
        // If the system does not say, I/O will show what is wrong.
        let is_whole = self.ready.directory.is_whole(self.ready.growth.containers());
        if matches!(is_whole, Ok(false)) {
            self.give_up();
        }
        !matches!(is_whole, Ok(false))
    }

    fn give_up(&mut self) {
        self.device.order(Order::Failed(DeviceFault::Removed));
        self.look_at = Instant::now();
    }

    fn info(&self) -> Option<DeviceInfo> {
        let devices = self.daemon.brain.inspect(|store, _| store.devices());
        devices.into_iter().find(|info| info.device == self.device.id)
    }

    /// Says once when a device is out of use; true if it is.
    fn notice(&self, info: &DeviceInfo) -> bool {
        if !matches!(info.health, DeviceHealth::Failed(_)) {
            return false;
        }
        let (_, reason) = health::of(&self.device, info);
        let (path, reason) = (self.device.path.display(), reason.unwrap_or_default());
        tracing::error!(%path, "a device of the disk tier is out of use: {reason}");
        marker::try_to_write(&self.device, &self.claim, &reason);
        true
    }

    /// Adds room if it is getting short; how long to wait before the next look.
    fn grow(&mut self, info: &DeviceInfo) -> Duration {
        let growth = &mut self.ready.growth;
        if growth.is_complete() || Instant::now() < self.grow_at {
            return PAUSE;
        }
        let plan = self.ready.directory.plan;
        let ahead_bytes = plan.container_bytes.min(AHEAD_BYTES_MAX);
        let is_begun = !growth.ready_bytes().is_multiple_of(plan.container_bytes);
        if info.free_bytes >= ahead_bytes && !is_begun {
            return PAUSE_GROWING;
        }
        match growth.step(&self.device) {
            Ok(Grown::Piece { bytes, took }) => {
                self.written.add(bytes, took);
                self.set_condition(None);
                let is_busy = info.loads > 0 || info.spills > 0;
                if is_busy && info.free_bytes > SHORT_BYTES { took } else { Duration::ZERO }
            }
            Ok(Grown::Complete) => PAUSE,
            Ok(Grown::Full) => {
                self.device.meters.growth_refused.fetch_add(1, Ordering::Relaxed);
                self.set_condition(Some("the file system is full; it grows no further".into()));
                self.grow_at = Instant::now() + PAUSE_FULL;
                PAUSE
            }
            Err(error) if is_gone(&error) => {
                self.give_up();
                PAUSE_GROWING
            }
            Err(error) => {
                self.set_condition(Some(format!("it cannot grow: {error}")));
                self.grow_at = Instant::now() + PAUSE_FULL;
                PAUSE
            }
        }
    }

    fn set_condition(&self, condition: Option<String>) {
        let path = self.device.path.display();
        let text = condition.clone();
        if self.device.set_condition(condition) {
            match text {
                Some(text) => tracing::warn!(%path, "disk tier: {text}"),
                None => tracing::info!(%path, "disk tier: it grows again"),
            }
        }
    }

    /// Measures what the directory can do, and logs it.
    fn check(&self) {
        let path = self.device.path.display();
        let container = match &self.ready.first_container {
            Some(container) => container.try_clone(),
            None => {
                let name = kvd_store::tablespace::geometry::container_name(0);
                let directory = &self.ready.directory;
                files::open(&directory.folder().join(name), directory.direct)
            }
        };
        match container.and_then(|container| self_check::read(&container)) {
            Ok(read) => {
                let bytes_per_s = read.bytes_per_second();
                self.device.order(Order::Reads { bytes_per_s });
                tracing::info!(
                    %path,
                    read_bytes_per_second = bytes_per_s,
                    write_bytes_per_second = self.written.bytes_per_second(),
                    "selfcheck: measured"
                );
            }
            Err(error) => tracing::warn!(%path, "selfcheck: reading failed: {error}"),
        }
    }
}
