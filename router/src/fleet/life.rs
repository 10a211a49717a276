//! What is known of a worker beyond its record: its breaker, what is in flight, how often it was picked. It
//! lives as long as the worker does, over any number of snapshots.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Target;
use crate::breaker::{Breaker, Claim, Limits, Outcome, State};

/// One life of one worker.
#[derive(Debug)]
pub struct Life {
    born: Instant,
    breaker: Mutex<Breaker>,
    /// Requests in flight, by rank.
    loads: Box<[AtomicU32]>,
    picks: AtomicU64,
}

impl Life {
    pub(super) fn new(ranks: u32, limits: Limits) -> Self {
        Self {
            born: Instant::now(),
            breaker: Mutex::new(Breaker::new(limits)),
            loads: (0..ranks).map(|_| AtomicU32::new(0)).collect(),
            picks: AtomicU64::new(0),
        }
    }

    fn now(&self) -> Duration {
        self.born.elapsed()
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        self.breaker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether its breaker lets a request through.
    #[must_use]
    pub fn admits(&self) -> bool {
        self.breaker().admits(self.now())
    }

    /// What its breaker is now.
    #[must_use]
    pub fn breaker_state(&self) -> State {
        self.breaker().state(self.now())
    }

    /// How often its breaker has opened.
    #[must_use]
    pub fn breaker_trips(&self) -> u64 {
        self.breaker().trips()
    }

    /// How often it was picked.
    #[must_use]
    pub fn picks(&self) -> u64 {
        self.picks.load(Ordering::Relaxed)
    }

    /// Requests in flight, over all ranks.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.loads.iter().map(|load| load.load(Ordering::Relaxed)).sum()
    }

    fn slot(&self, rank: Option<u32>) -> &AtomicU32 {
        // A rank beyond those of the record is nobody's: `Target`s are made of the record.
        &self.loads[rank.map_or(0, |rank| rank as usize)]
    }

    pub(super) fn load(&self, rank: Option<u32>) -> u32 {
        self.slot(rank).load(Ordering::Relaxed)
    }
}

/// One request on its way to a target. While it lives it counts as load; the breaker hears of it once.
#[derive(Debug)]
pub struct Leg {
    target: Target,
    /// Taken when the outcome is told.
    claim: Option<Claim>,
}

impl Leg {
    /// A request is being sent to `target`. `None` if its breaker does not let it through, unless it is
    /// sent all the same (`is_forced`).
    #[must_use]
    pub fn start(target: Target, is_forced: bool) -> Option<Self> {
        let life = &target.worker.life;
        let claim = {
            let mut breaker = life.breaker();
            if !is_forced && !breaker.admits(life.now()) {
                return None;
            }
            breaker.claim(life.now())
        };
        life.picks.fetch_add(1, Ordering::Relaxed);
        life.slot(target.rank).fetch_add(1, Ordering::Relaxed);
        Some(Self { claim: Some(claim), target })
    }

    /// Where it goes.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Tells the breaker what came of it; only the first word counts.
    pub fn settle(&mut self, outcome: Outcome) {
        if let Some(claim) = self.claim.take() {
            let life = &self.target.worker.life;
            life.breaker().settle(claim, outcome, life.now());
        }
    }
}

impl Drop for Leg {
    fn drop(&mut self) {
        self.settle(Outcome::Neutral);
        self.target.worker.life.slot(self.target.rank).fetch_sub(1, Ordering::Relaxed);
    }
}
