//! The workers at a moment: an immutable snapshot that readers take without waiting ([`Fleet`]), what lives on
//! from one snapshot to the next ([`Life`]), and the one who makes snapshots ([`Keeper`]).

mod keeper;
mod life;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arc_swap::ArcSwap;
use router_core::record::{DisaggMode, Engine, Status, WorkerRecord};

pub use self::keeper::Keeper;
pub use self::life::{Leg, Life};

/// Where the current snapshot is.
pub type Shared = Arc<ArcSwap<Fleet>>;

/// Where a worker is known from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// It says itself what it is.
    Registered,
    /// Somebody named its URL, perhaps with a model, and nothing more.
    Named,
}

/// A worker as it is in one snapshot.
#[derive(Debug)]
pub struct Worker {
    /// What it says of itself.
    pub record: Arc<WorkerRecord>,
    /// Where it is known from.
    pub origin: Origin,
    /// What is known of it from elsewhere.
    pub life: Arc<Life>,
}

impl Worker {
    /// Its engine, if that is known.
    #[must_use]
    pub fn engine(&self) -> Option<Engine> {
        (self.origin == Origin::Registered).then_some(self.record.engine)
    }

    fn is_for_any_model(&self) -> bool {
        self.origin == Origin::Named && self.record.model_name.is_empty()
    }

    fn is_routable(&self) -> bool {
        self.record.status == Status::Active && self.record.disagg_mode == DisaggMode::Mixed
    }
}

/// Where a request can go: a worker, or one of the ranks behind it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The worker.
    pub worker: Arc<Worker>,
    /// The rank; `None` if the worker is not several.
    pub rank: Option<u32>,
}

impl Target {
    /// Requests in flight there.
    #[must_use]
    pub fn load(&self) -> u32 {
        self.worker.life.load(self.rank)
    }
}

/// Who serves a model.
#[derive(Debug, Default)]
pub struct Pool {
    targets: Vec<Target>,
    /// Requests so far; it goes on from snapshot to snapshot.
    turns: Arc<AtomicUsize>,
}

impl Pool {
    /// Routable targets in order of worker and rank.
    #[must_use]
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// The number of the next request.
    #[must_use]
    pub fn next_turn(&self) -> usize {
        self.turns.fetch_add(1, Ordering::Relaxed)
    }
}

/// All workers, and which of them serve what.
#[derive(Debug, Default)]
pub struct Fleet {
    workers: BTreeMap<String, Arc<Worker>>,
    /// Each holds those that are for any model too.
    by_model: BTreeMap<String, Pool>,
    for_any_model: Pool,
}

impl Fleet {
    /// These workers, in place of those `before`.
    fn new(workers: BTreeMap<String, Arc<Worker>>, before: &Self) -> Self {
        let routable = || workers.values().filter(|worker| worker.is_routable());
        let pool = |before: Option<&Pool>, serves: &dyn Fn(&Worker) -> bool| {
            let targets = routable().filter(|worker| serves(worker)).flat_map(targets_of);
            let turns = before.map(|before| Arc::clone(&before.turns)).unwrap_or_default();
            Pool { targets: targets.collect(), turns }
        };
        let named = routable().filter(|worker| !worker.is_for_any_model());
        let models: BTreeSet<&str> = named.map(|worker| &*worker.record.model_name).collect();
        let by_model = models.into_iter().map(|model| {
            let serves =
                |worker: &Worker| worker.is_for_any_model() || worker.record.model_name == model;
            (model.to_owned(), pool(before.by_model.get(model), &serves))
        });
        let by_model = by_model.collect();
        let for_any_model = pool(Some(&before.for_any_model), &|worker| worker.is_for_any_model());
        Self { workers, by_model, for_any_model }
    }

    /// All workers in order of their names, routable or not.
    pub fn workers(&self) -> impl Iterator<Item = &Arc<Worker>> {
        self.workers.values()
    }

    /// Who serves `model`.
    #[must_use]
    pub fn pool(&self, model: &str) -> &Pool {
        self.by_model.get(model).unwrap_or(&self.for_any_model)
    }

    /// The models that somebody serves.
    pub fn models(&self) -> impl Iterator<Item = &str> {
        self.by_model.keys().map(String::as_str).filter(|model| !model.is_empty())
    }

    /// Whether there is anything that can be served.
    #[must_use]
    pub fn serves_something(&self) -> bool {
        !self.by_model.is_empty() || !self.for_any_model.targets.is_empty()
    }

    /// How many workers say that they are active, of one kind or of all.
    #[must_use]
    pub fn active(&self, mode: Option<DisaggMode>) -> usize {
        let is_counted = |worker: &&Arc<Worker>| {
            worker.record.status == Status::Active
                && mode.is_none_or(|mode| worker.record.disagg_mode == mode)
        };
        self.workers.values().filter(is_counted).count()
    }
}

fn targets_of(worker: &Arc<Worker>) -> Vec<Target> {
    let target = |rank| Target { worker: Arc::clone(worker), rank };
    match worker.record.ranks() {
        None => vec![target(None)],
        Some(ranks) => ranks.map(|rank| target(Some(rank))).collect(),
    }
}
