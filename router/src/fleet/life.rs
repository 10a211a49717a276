//! What is known of a worker beyond its record: its breaker, what is in flight, how often it was picked. It
//! lives as long as the worker does, over any number of snapshots.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use router_core::account::TargetLoad;
use router_core::score::fit::{ModelFit, SpeedFit};
use router_core::score::{Speed, Terms};

use super::Target;
use crate::breaker::{Breaker, Claim, Limits, Outcome, State};
use crate::picker::Placement;
use crate::relay::Usage;

/// So many answers in a row about another number of tokens, and the router does not know the worker's tokens.
const MISCOUNTS_MAX: u32 = 3;

/// What answers told of a model's workers, all together.
pub(super) type Model = Arc<Mutex<ModelFit>>;

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One life of one worker.
#[derive(Debug)]
pub struct Life {
    worker_id: Box<str>,
    born: Instant,
    breaker: Mutex<Breaker>,
    /// Requests in flight, by rank.
    loads: Box<[AtomicU32]>,
    /// What they are, by rank, in the words of a choice by cache.
    accounts: Box<[Mutex<TargetLoad>]>,
    speed: Mutex<SpeedFit>,
    model: Model,
    picks: AtomicU64,
    /// Answers in a row whose prompt had another number of tokens than the router thought.
    miscounts: AtomicU32,
    /// Whether its tokenizer is the router's, once that is known; nothing if it does not say.
    tokenizer: OnceLock<Option<bool>>,
}

impl Life {
    pub(super) fn new(worker_id: &str, ranks: u32, limits: Limits, model: Model) -> Self {
        Self {
            worker_id: worker_id.into(),
            born: Instant::now(),
            breaker: Mutex::new(Breaker::new(limits)),
            loads: (0..ranks).map(|_| AtomicU32::new(0)).collect(),
            accounts: (0..ranks).map(|_| Mutex::default()).collect(),
            speed: Mutex::default(),
            model,
            picks: AtomicU64::new(0),
            miscounts: AtomicU32::new(0),
            tokenizer: OnceLock::new(),
        }
    }

    /// Whose it is.
    #[must_use]
    pub fn worker_id(&self) -> &str {
        &self.worker_id
    }

    fn now(&self) -> Duration {
        self.born.elapsed()
    }

    fn breaker(&self) -> MutexGuard<'_, Breaker> {
        held(&self.breaker)
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

    /// What a rank has in flight, in tokens and blocks.
    pub fn account(&self, rank: Option<u32>) -> MutexGuard<'_, TargetLoad> {
        held(&self.accounts[rank.map_or(0, |rank| rank as usize)])
    }

    /// An answer told whether the router had counted the tokens of its prompt right.
    pub fn compare_tokens(&self, is_right: bool) {
        if is_right {
            self.miscounts.store(0, Ordering::Relaxed);
        } else if self.miscounts.fetch_add(1, Ordering::Relaxed) + 1 == MISCOUNTS_MAX {
            tracing::warn!(
                worker = &*self.worker_id,
                "no credit for a worker that counts other tokens; see --kv-tokenizer"
            );
        }
    }

    /// Whether its tokenizer is the router's; nothing as long as that is not known.
    #[must_use]
    pub fn has_same_tokenizer(&self) -> Option<bool> {
        self.tokenizer.get().copied().flatten()
    }

    /// It is known now whether its tokenizer is the router's. The first word counts. True if this is it.
    pub fn set_same_tokenizer(&self, is_same: bool) -> bool {
        self.tokenizer.set(Some(is_same)).is_ok()
    }

    /// It does not say which tokenizer it has, unless that is known by now.
    pub fn give_up_asking_for_tokenizer(&self) {
        self.tokenizer.get_or_init(|| None);
    }

    /// Whether it is still to be found out which tokenizer it has.
    #[must_use]
    pub fn is_tokenizer_asked_for(&self) -> bool {
        self.tokenizer.get().is_none()
    }

    /// Whether the router makes the same tokens as the worker, as far as it and its answers tell.
    #[must_use]
    pub fn has_same_tokens(&self) -> bool {
        self.miscounts.load(Ordering::Relaxed) < MISCOUNTS_MAX
            && self.has_same_tokenizer() != Some(false)
    }

    /// Blocks of prompts in flight, over all ranks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.accounts.iter().map(|account| held(account).blocks()).sum()
    }

    /// Seconds of its life: the clock of its account.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.now().as_secs_f64()
    }

    /// How fast it computes.
    #[must_use]
    pub fn speed(&self) -> Speed {
        let own = held(&self.speed);
        own.speed(&held(&self.model))
    }

    /// The first token of an answer came after so many seconds; `terms` were predicted.
    pub fn observe(&self, prompt_tokens: f64, terms: &Terms, observed: f64) {
        let mut own = held(&self.speed);
        own.observe(&mut held(&self.model), prompt_tokens, terms, observed);
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
    /// Its part in what is in flight, if that is kept.
    placement: Option<Placement>,
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
        Some(Self { claim: Some(claim), placement: None, target })
    }

    /// Where it goes.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// What it asks of the target, to be given back with the leg.
    pub fn place(&mut self, placement: Option<Placement>) {
        self.placement = placement;
    }

    /// The first token has come.
    pub fn first_token(&mut self) {
        if let Some(placement) = &mut self.placement {
            placement.first_token();
        }
    }

    /// The worker said what the request took.
    pub fn used(&mut self, usage: Usage) {
        if let Some(placement) = &self.placement {
            placement.used(usage);
        }
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
