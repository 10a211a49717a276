//! The thread that makes a device ready, files and recovery, and goes on as its keeper.
//! Engines are served meanwhile; blocks of a device that is not ready yet are misses.

use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kvd_disk::FileId;
use kvd_store::tablespace::geometry::Plan;
use kvd_store::tablespace::{Settings, WallTime};

use super::claim::Claim;
use super::device::{Device, Order};
use super::directory::Directory;
use super::growth::Growth;
use super::keeper::{Keeper, Ready};
use super::mode::Mode;
use super::pieces::{container_file, journal_file, snapshot_file};
use super::recovery::recover;
use super::{identity, marker};
use crate::daemon::Daemon;
use crate::descriptors;

/// Between two looks at whether anything was stored without the device.
const PAUSE: Duration = Duration::from_millis(200);

/// What the thread works with.
#[derive(Debug)]
pub struct Upkeep {
    daemon: Arc<Daemon>,
    device: Arc<Device>,
    claim: Arc<Claim>,
    mode: Mode,
}

impl Upkeep {
    /// Upkeep of a device whose directory is ours.
    #[must_use]
    pub fn new(daemon: Arc<Daemon>, device: Arc<Device>, claim: Claim, mode: Mode) -> Self {
        Self { daemon, device, claim: Arc::new(claim), mode }
    }

    /// Works until the daemon's stop flag is raised.
    pub fn run(self) {
        let was_there = identity::holds_device(self.claim.folder());
        match self.prepare() {
            Ok(ready) => {
                let Self { daemon, device, claim, .. } = self;
                Keeper::new(daemon, device, claim, ready).run();
            }
            Err(reason) => {
                let path = self.device.path.display();
                tracing::warn!(%path, "the disk tier does without a directory: {reason}");
                self.device.refuse(reason.clone());
                if was_there {
                    self.stay_refused(&reason);
                }
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
        marker::try_to_write(&self.device, &self.claim, reason);
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
        let growth = Growth::new(Arc::clone(claim), plan, mode.direct, complete);
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
