//! One consistent look at store and daemon, taken once for each scrape.

use std::sync::atomic::{AtomicU64, Ordering};

use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::Stats;

use crate::daemon::Daemon;
use crate::meters::{Counters, Label};

/// Label values and their counts.
pub(super) type Labelled = Vec<(&'static str, u64)>;

/// What the metrics are read from.
#[derive(Debug)]
pub(super) struct Figures<'a> {
    pub(super) daemon: &'a Daemon,
    pub(super) stats: Stats,
}

impl<'a> Figures<'a> {
    /// Reads the store once, under its lock.
    pub(super) fn of(daemon: &'a Daemon) -> Self {
        Self { daemon, stats: daemon.brain.inspect(|store, _now| store.stats()) }
    }

    pub(super) fn misses(&self) -> Labelled {
        let names = MissReason::ALL.iter().map(|reason| reason.as_str());
        names.zip(self.stats.totals.misses_by_reason_total).collect()
    }

    pub(super) fn evictions(&self) -> Labelled {
        let names = Retention::ALL.iter().map(|class| class.as_str());
        names.zip(self.stats.totals.evictions_by_class_total).collect()
    }

    pub(super) fn refusals(&self) -> Labelled {
        let names = Refusal::ALL.iter().map(|refusal| refusal.as_str());
        names.zip(self.stats.totals.refusals_total).collect()
    }

    /// The four states that every touched byte is in.
    pub(super) fn space(&self) -> Labelled {
        let space = &self.stats.space;
        vec![
            ("free", space.free_bytes),
            ("ticketed", space.ticketed_bytes),
            ("stored", space.stored_bytes),
            ("orphaned", space.orphaned_bytes),
        ]
    }

    pub(super) fn connections_refused(&self) -> Labelled {
        let meters = &self.daemon.meters;
        vec![
            ("uid", load(&meters.connections_refused_uid)),
            ("full", load(&meters.connections_refused_full)),
            ("lost", load(&meters.connections_refused_lost)),
        ]
    }
}

/// All values of a labelled counter.
pub(super) fn each<L: Label>(counters: &Counters<L>) -> Labelled {
    L::ALL.iter().map(|label| (label.as_str(), counters.get(*label))).collect()
}

/// The value of a counter.
pub(super) fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}
