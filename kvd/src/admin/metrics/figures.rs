//! One consistent look at store and daemon, taken once for each scrape.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{DeviceInfo, Stats};

use crate::daemon::Daemon;
use crate::devices::device::Device;
use crate::devices::health::{self, Health};
use crate::meters::{Counters, Label};

/// Label values and their counts.
pub(super) type Labelled = Vec<(Cow<'static, str>, u64)>;

/// What the metrics are read from.
#[derive(Debug)]
pub(super) struct Figures<'a> {
    pub(super) daemon: &'a Daemon,
    pub(super) stats: Stats,
    pub(super) devices: Vec<DeviceInfo>,
}

impl<'a> Figures<'a> {
    /// Reads the store once, under its lock.
    pub(super) fn of(daemon: &'a Daemon) -> Self {
        let (stats, devices) = daemon.brain.inspect(|store, _now| (store.stats(), store.devices()));
        Self { daemon, stats, devices }
    }

    pub(super) fn misses(&self) -> Labelled {
        let names = MissReason::ALL.iter().map(|reason| reason.as_str());
        labelled(names.zip(self.stats.totals.misses_by_reason_total))
    }

    pub(super) fn evictions(&self) -> Labelled {
        let names = Retention::ALL.iter().map(|class| class.as_str());
        labelled(names.zip(self.stats.totals.evictions_by_class_total))
    }

    pub(super) fn refusals(&self) -> Labelled {
        let names = Refusal::ALL.iter().map(|refusal| refusal.as_str());
        labelled(names.zip(self.stats.totals.refusals_total))
    }

    /// The four states that every touched byte is in.
    pub(super) fn space(&self) -> Labelled {
        let space = &self.stats.space;
        labelled([
            ("free", space.free_bytes),
            ("ticketed", space.ticketed_bytes),
            ("stored", space.stored_bytes),
            ("orphaned", space.orphaned_bytes),
        ])
    }

    pub(super) fn connections_refused(&self) -> Labelled {
        let meters = &self.daemon.meters;
        labelled([
            ("uid", load(&meters.connections_refused_uid)),
            ("full", load(&meters.connections_refused_full)),
            ("lost", load(&meters.connections_refused_lost)),
        ])
    }

    /// How many devices are in each state.
    pub(super) fn devices_by_health(&self) -> Labelled {
        let found: Vec<Health> = self
            .daemon
            .devices
            .with(&self.devices)
            .map(|(device, info)| health::of(device, &info).0)
            .collect();
        let count = |state: Health| found.iter().filter(|health| **health == state).count() as u64;
        labelled(Health::ALL.into_iter().map(|state| (state.as_str(), count(state))))
    }

    /// A figure of each device, by its directory.
    pub(super) fn by_device(&self, read: fn(&Device, &DeviceInfo) -> u64) -> Labelled {
        let all = self.daemon.devices.with(&self.devices);
        all.map(|(device, info)| {
            (escaped(&device.path.display().to_string()).into(), read(device, &info))
        })
        .collect()
    }
}

pub(super) fn labelled(pairs: impl IntoIterator<Item = (&'static str, u64)>) -> Labelled {
    pairs.into_iter().map(|(name, count)| (name.into(), count)).collect()
}

/// A text as the value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// All values of a labelled counter.
pub(super) fn each<L: Label>(counters: &Counters<L>) -> Labelled {
    labelled(L::ALL.iter().map(|label| (label.as_str(), counters.get(*label))))
}

/// The value of a counter.
pub(in crate::admin) fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
