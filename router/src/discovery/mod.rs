//! Who the workers are, and the daemons of their hosts: looked up in etcd (`etcd`) or named at start (`fixed`). One task owns the
//! [`Keeper`] and publishes each change as one snapshot; nothing else waits for it.

mod etcd;
mod fixed;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kvd_etcd::Etcd;
use kvd_proto::events::Registration;
use tokio::sync::watch;

use crate::flags::Discovery;
use crate::fleet::Keeper;
use crate::meters::Meters;
use crate::phase;

/// How well the workers are known.
#[derive(Debug)]
pub struct Standing {
    began: SystemTime,
    is_synced: AtomicBool,
    /// Since when the source of records has not been heard of; `None` while it is.
    lost_since: Mutex<Option<Instant>>,
    /// Connections to it that were given up.
    losses: AtomicU64,
}

impl Default for Standing {
    fn default() -> Self {
        Self {
            began: SystemTime::now(),
            is_synced: AtomicBool::new(false),
            lost_since: Mutex::new(Some(Instant::now())),
            losses: AtomicU64::new(0),
        }
    }
}

impl Standing {
    /// Whether workers have been looked up at least once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.is_synced.load(Ordering::Relaxed)
    }

    /// How old what is known may be; zero while the source is heard of.
    #[must_use]
    pub fn stale_for(&self) -> Duration {
        let lost = *self.lost_since.lock().unwrap_or_else(PoisonError::into_inner);
        lost.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Connections to the source that were given up.
    #[must_use]
    pub fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// When the process began, as seconds of the Unix epoch.
    #[must_use]
    pub fn began_unix_s(&self) -> u64 {
        self.began.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
    }

    /// Workers have been looked up, whether or not the source is heard of after that.
    fn sync(&self) {
        self.is_synced.store(true, Ordering::Relaxed);
    }

    /// The source was heard of: what is known is true. Whether it was lost before.
    fn confirm(&self) -> bool {
        self.sync();
        self.lost_since.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// The source is not heard of any more.
    fn lose(&self) {
        let mut lost = self.lost_since.lock().unwrap_or_else(PoisonError::into_inner);
        if lost.is_none() {
            self.losses.fetch_add(1, Ordering::Relaxed);
            *lost = Some(Instant::now());
        }
    }
}

/// What discovery works with.
#[derive(Debug)]
pub struct Tools {
    /// Publishes snapshots.
    pub keeper: Keeper,
    /// Told how it goes.
    pub standing: Arc<Standing>,
    /// Counts bad records.
    pub meters: Arc<Meters>,
    /// When to end.
    pub phase: phase::Current,
}

/// What the discovery of daemons works with.
#[derive(Debug)]
pub struct HostTools {
    /// Takes all records there are.
    pub registrations: watch::Sender<Vec<Arc<Registration>>>,
    /// Counts bad records.
    pub meters: Arc<Meters>,
    /// When to end.
    pub phase: phase::Current,
}

/// Keeps the daemons up to date until the process is closing. Where workers are named, nobody is looked up.
pub async fn run_hosts(discovery: Discovery, prefix: String, tools: HostTools) {
    match discovery {
        Discovery::Fixed(_) => {
            let mut phase = tools.phase.clone();
            phase::reached(&mut phase, phase::Phase::Closing).await;
        }
        Discovery::Etcd { access, .. } => {
            etcd::run_hosts(Etcd::new(access), prefix, tools).await;
        }
    }
}

/// Keeps the fleet up to date until the process is closing.
pub async fn run(discovery: Discovery, tools: Tools) {
    match discovery {
        Discovery::Fixed(workers) => fixed::run(&workers, tools).await,
        Discovery::Etcd { access, prefix } => {
            Box::pin(etcd::run(Etcd::new(access), prefix, tools)).await;
        }
    }
}
