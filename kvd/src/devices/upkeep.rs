//! The thread that makes a device ready and keeps it so: files, recovery, self-check, growth, health.
//! Engines are served meanwhile; blocks of a device that is not ready yet are misses.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvd_disk::FileId;
use kvd_store::tablespace::geometry::Plan;
use kvd_store::tablespace::{Settings, WallTime};
use kvd_store::{DeviceFault, DeviceHealth, DeviceInfo};

use super::claim::{Claim, is_gone};
use super::device::{Device, Order};
use super::directory::{self, Directory};
use super::growth::{Grown, Growth};
use super::mode::Mode;
use super::pieces::{container_file, journal_file, snapshot_file};
use super::recovery::recover;
use super::self_check::{self, Measured};
use super::{files, health, marker};
use crate::daemon::Daemon;
use crate::descriptors;

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

/// What the thread works with.
#[derive(Debug)]
pub struct Upkeep {
    daemon: Arc<Daemon>,
    device: Arc<Device>,
    claim: Arc<Claim>,
    mode: Mode,
}

/// A device that is ready.
struct Ready {
    directory: Directory,
    growth: Growth,
    first_container: Option<File>,
}

impl Upkeep {
    /// Upkeep of a device whose directory is ours.
    #[must_use]
    pub fn new(daemon: Arc<Daemon>, device: Arc<Device>, claim: Claim, mode: Mode) -> Self {
        Self { daemon, device, claim: Arc::new(claim), mode }
    }

    /// Works until the daemon's stop flag is raised.
    pub fn run(self) {
        match self.prepare() {
            Ok(ready) => {
                let Self { daemon, device, claim, .. } = self;
                Keeper::new(daemon, device, claim, ready).run();
            }
            Err(reason) => {
                let path = self.device.path.display();
                tracing::warn!(%path, "the disk tier does without a directory: {reason}");
                self.device.refuse(reason.clone());
                self.stay_refused(&reason);
            }
        }
    }

    /// Keeps others away from a device that is there and not used, and makes it forget its blocks once
    /// something was stored that may replace one of them.
    fn stay_refused(&self, reason: &str) {
        let daemon = &self.daemon;
        let mut is_over = false;
        while daemon.brain.inspect(|store, _| store.stats().totals.sets_total) == 0 {
            if is_over {
                return;
            }
            is_over = daemon.stop.wait(PAUSE);
        }
        if directory::holds_device(self.claim.folder()) {
            mark(&self.device, &self.claim, reason);
        }
        while !daemon.stop.wait(PAUSE) {}
    }

    /// Opens everything, recovers, and tells the device's thread. The reason if that fails.
    fn prepare(&self) -> Result<Ready, String> {
        let Self { daemon, device, claim, mode } = self;
        let began = Instant::now();
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let settings = &daemon.settings.disk;
        let set_id = daemon.set_id;
        let directory = Directory::open(Arc::clone(claim), settings, mode.direct, set_id)
            .map_err(|error| text(&error))?;
        let records = directory.records().map_err(|error| text(&error))?;
        let containers = directory.containers().map_err(|error| text(&error))?;
        let complete = u32::try_from(containers.len()).unwrap_or(u32::MAX);
        let plan = affordable(daemon, device, directory.plan, complete);
        let growth = Growth::new(directory.folder().to_path_buf(), plan, mode.direct, complete);
        let recovered = recover(
            directory.folder(),
            Settings {
                tag: directory.superblock.tag(),
                journal_bytes: plan.journal_bytes,
                snapshot_bytes_max: plan.snapshot_bytes_max,
                space_bytes: growth.ready_bytes(),
                expected_bytes: plan.container_bytes * u64::from(plan.containers_max),
                hash_seed: daemon.brain.hash_seed(),
                now: WallTime(daemon.brain.wall_ms()),
            },
        );
        let (tablespace, report) = recovered.map_err(|error| text(&error))?;
        let removed = directory.remove_surplus().map_err(|error| text(&error))?;
        device.prepared(plan.container_bytes);
        let first_container = containers.first().and_then(|file| file.try_clone().ok());
        attach(device, records, containers);
        device.order(Order::Ready(Box::new(tablespace)));
        if growth.ready_bytes() > 0 {
            device.order(growth.space());
        }
        let path = device.path.display();
        if report.is_damaged() {
            tracing::warn!(%path, "parts of the journal or the snapshot could not be read: {report}");
        }
        tracing::info!(
            %path,
            io_mode = mode.io_mode(),
            engine = device.engine(),
            depth = mode.depth,
            why = mode.why.join("; "),
            containers = complete,
            containers_max = plan.containers_max,
            containers_removed = removed,
            took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
            "disk tier ready: {report}"
        );
        Ok(Ready { directory, growth, first_container })
    }
}

/// The plan with no more containers than can be open: without descriptors nobody could connect any
/// more. (A directory keeps the size of its containers when its share grows.)
fn affordable(daemon: &Daemon, device: &Device, plan: Plan, complete: u32) -> Plan {
    let settings = &daemon.settings;
    let directories = settings.disk.paths.len();
    let open_max = descriptors::containers_max(settings.limits.sessions_max, directories);
    let containers_max = plan.containers_max.min(open_max.max(complete));
    if containers_max < plan.containers_max {
        tracing::warn!(
            path = %device.path.display(),
            containers = plan.containers_max,
            containers_max,
            "the descriptor limit is too low for so many containers: raise LimitNOFILE, or move the \
             directory away to begin with larger ones"
        );
    }
    Plan { containers_max, ..plan }
}

fn attach(device: &Device, records: Vec<(kvd_store::Half, File, File)>, containers: Vec<File>) {
    let attach = |file: FileId, handle| device.order(Order::Attach { file, handle });
    for (half, journal, snapshot) in records {
        attach(journal_file(half), journal);
        attach(snapshot_file(half), snapshot);
    }
    for (number, container) in (0..).zip(containers) {
        attach(container_file(number), container);
    }
}

/// Notes on a device that it was not used, as far as it takes that.
fn mark(device: &Device, claim: &Claim, reason: &str) {
    if let Err(error) = marker::write(claim, reason) {
        tracing::info!(path = %device.path.display(), "the device takes no note of that: {error}");
    }
}

/// What goes on for the daemon's life.
struct Keeper {
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
    fn new(daemon: Arc<Daemon>, device: Arc<Device>, claim: Arc<Claim>, ready: Ready) -> Self {
        let (written, now) = (Measured::default(), Instant::now());
        Self { daemon, device, claim, ready, written, grow_at: now, look_at: now }
    }

    fn run(mut self) {
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
        mark(&self.device, &self.claim, &reason);
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
            Ok(read) => tracing::info!(
                %path,
                read_bytes_per_second = read.bytes_per_second(),
                write_bytes_per_second = self.written.bytes_per_second(),
                "selfcheck: measured"
            ),
            Err(error) => tracing::warn!(%path, "selfcheck: reading failed: {error}"),
        }
    }
}
