//! What the index knows from one rank of an engine: its messages, its doubts.

mod apply;

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kvd_proto::events::{CacheTier, Replayed};

use super::doubt::{DOUBTED_CREDIT, Doubt};
use super::holding::Holding;
use super::in_order::InOrder;
use super::sequence::{Arrival, Need, Sequence};
use super::waiting::Waiting;
use super::{Counts, Moment, NAMES_MAX};
use crate::hash::BlockHasher;
use crate::index::{Holder, Index, Kind, Owner};

/// Whose events, and what the publisher offers.
#[derive(Clone, Debug)]
pub struct EngineSource {
    /// The worker.
    pub worker: Arc<str>,
    /// Its rank, 0 for a worker that is one target.
    pub rank: u32,
    /// The model that it serves.
    pub model: Arc<str>,
    /// Tokens in a block according to its record.
    pub block_size: Option<u32>,
    /// Whether its hashes are SGLang's, so that they tell content without tokens.
    pub names_content: bool,
    /// Whether it has a replay socket.
    pub can_replay: bool,
}

/// What the engine's own name of a block stands for, in one tier.
#[derive(Debug)]
struct Shelf {
    /// By the router's names.
    blocks: Holding,
    /// By the engine's, where they tell content.
    content: Option<Holding>,
    /// From the view's name of a block, to the router's.
    names: HashMap<u64, u64, FixedState>,
}

/// What the index knows from one rank of an engine.
#[derive(Debug)]
pub struct EngineView {
    source: EngineSource,
    sequence: Sequence,
    doubt: Doubt,
    shelves: [Option<Shelf>; CacheTier::ALL.len()],
    waiting: Waiting,
    /// Blocks that leave by time.
    unpaired: VecDeque<(Moment, CacheTier, u64)>,
    groups: Vec<Option<u32>>,
    /// Prefixes that the engine did not have, once.
    strikes: HashMap<u64, u32, FixedState>,
    block_size: Option<u32>,
    hasher: BlockHasher,
    counts: Counts,
}

impl EngineView {
    /// A view that knows nothing yet.
    #[must_use]
    pub fn new(source: EngineSource) -> Self {
        Self {
            sequence: Sequence::new(source.can_replay, false),
            doubt: Doubt::default(),
            shelves: [const { None }; CacheTier::ALL.len()],
            waiting: Waiting::default(),
            unpaired: VecDeque::new(),
            groups: Vec::new(),
            strikes: HashMap::default(),
            block_size: source.block_size,
            hasher: BlockHasher::new(),
            counts: Counts::default(),
            source,
        }
    }

    /// Whose events these are.
    #[must_use]
    pub const fn source(&self) -> &EngineSource {
        &self.source
    }

    /// What to ask for when the subscription stands.
    pub fn begin(&mut self) -> Option<Need> {
        self.sequence.begin()
    }

    /// A message from the publisher. `seq` is absent where the engine does not count.
    pub fn live(
        &mut self,
        index: &Index,
        seq: Option<u64>,
        payload: &[u8],
        now: Moment,
    ) -> Option<Need> {
        let Some(seq) = seq else {
            self.apply_events(index, payload, now);
            return None;
        };
        let mut arrival = self.sequence.live(seq, payload);
        if arrival == Arrival::Restarted {
            self.counts.restarts += 1;
            self.forget(index);
            self.sequence.restart();
            arrival = self.sequence.live(seq, payload);
        }
        let need = self.take(index, arrival, payload, now);
        self.show_credit(index);
        need
    }

    /// The connection was lost. Whoever is there next may be another life of the engine that has published as much already:
    /// its numbers go on where the former's ended, and nothing tells that all blocks are gone.
    pub fn disconnected(&mut self, index: &Index, now: Moment) {
        if self.sequence.last().is_some() {
            self.doubt.raise(now);
            self.show_credit(index);
        }
    }

    /// An answer of the replay socket. Nothing more is awaited after [`Replayed::End`] and [`Replayed::TooOld`].
    pub fn replayed(&mut self, index: &Index, answer: &Replayed<'_>, now: Moment) -> Option<Need> {
        match answer {
            Replayed::Message { seq, payload, .. } => {
                self.take_older(index, *seq, now);
                let arrival = self.sequence.replayed(*seq)?;
                self.take(index, arrival, payload, now)
            }
            Replayed::End => {
                if !self.sequence.replay_ended() {
                    return None;
                }
                self.catch_up(index, now)
            }
            Replayed::TooOld => self.replay_failed(index, now),
        }
    }

    /// No replay came, or not all of it.
    pub fn replay_failed(&mut self, index: &Index, now: Moment) -> Option<Need> {
        if self.sequence.is_recovering() {
            if self.sequence.last().is_some() {
                self.doubt.raise(now);
            }
            self.sequence.replay_failed();
        }
        self.catch_up(index, now)
    }

    fn empty(&mut self, index: &Index, tier: CacheTier) {
        if let Some(Some(shelf)) = self.shelves.get_mut(place_of(tier)) {
            shelf.names.clear();
            shelf.blocks.drop_all(index);
            if let Some(content) = &mut shelf.content {
                content.drop_all(index);
            }
        }
        self.unpaired.retain(|(_, other, _)| *other != tier);
        self.waiting.clear();
    }

    /// Everything is gone.
    fn forget(&mut self, index: &Index) {
        for tier in CacheTier::ALL {
            self.empty(index, tier);
        }
        self.doubt.settle();
    }

    /// Leaves the index, before the view is dropped.
    pub fn leave(&mut self, index: &Index) {
        self.forget(index);
        for shelf in self.shelves.iter_mut().filter_map(Option::take) {
            index.close(shelf.blocks.id());
            if let Some(content) = shelf.content {
                index.close(content.id());
            }
        }
    }

    /// Time passes: doubts end, what waited in vain goes, lower tiers make room.
    pub fn tick(&mut self, index: &Index, now: Moment) {
        self.doubt.tick(now);
        self.counts.orphaned += self.waiting.expire(now);
        while let Some((until, tier, name)) = self.unpaired.front().copied() {
            if until > now {
                break;
            }
            self.unpaired.pop_front();
            if let Some(Some(shelf)) = self.shelves.get_mut(place_of(tier)) {
                shelf.blocks.release(index, name);
            }
        }
        if let Some(tier) = index.must_shed() {
            self.empty(index, tier);
        }
        self.show_credit(index);
    }

    /// The engine answered a request: of `chain`, the names of the prompt's blocks, it was to have `predicted` blocks on
    /// the device, and had `observed`. Twice less than half, and the rest is no longer believed.
    pub fn observe(&mut self, index: &Index, chain: &[u64], predicted: u32, observed: u32) {
        let Some(last) = predicted.checked_sub(1).and_then(|last| chain.get(last as usize)) else {
            return;
        };
        if u64::from(observed) * 2 >= u64::from(predicted) {
            self.strikes.remove(last);
            if observed >= predicted {
                self.doubt.confirm();
                self.show_credit(index);
            }
            return;
        }
        if self.strikes.len() >= NAMES_MAX {
            self.strikes.clear();
        }
        let strikes = self.strikes.entry(*last).or_insert(0);
        *strikes += 1;
        if *strikes < 2 {
            return;
        }
        self.strikes.remove(last);
        self.counts.distrusted += 1;
        let shelf = self.shelves.get_mut(place_of(CacheTier::Device)).and_then(Option::as_mut);
        if let Some(shelf) = shelf {
            let range = observed as usize..predicted as usize;
            for name in chain.get(range).unwrap_or_default() {
                shelf.blocks.drop_block(index, *name);
            }
        }
    }

    /// Tokens in a block: the events' word, or else the record's.
    #[must_use]
    pub const fn block_size(&self) -> Option<u32> {
        self.block_size
    }

    /// Whether something may have been missed, or is being asked for.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        self.doubt.is_raised() || self.sequence.is_recovering()
    }

    /// What happened to the view.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The shelf of a tier; nothing if there are too many holders.
    fn shelf(&mut self, index: &Index, tier: CacheTier) -> Option<&mut Shelf> {
        let place = self.shelves.get_mut(place_of(tier))?;
        if place.is_none() {
            let source = &self.source;
            let open = |kind| {
                let owner = Owner::Rank { worker: Arc::clone(&source.worker), rank: source.rank };
                let (model, family) = (Arc::clone(&source.model), Arc::from(""));
                let id = index.open(Holder { owner, tier, model, family, kind, stride: 1 })?;
                Some(Holding::new(id, kind))
            };
            let blocks = open(Kind::Router)?;
            let content = if source.names_content { open(Kind::Sglang) } else { None };
            *place = Some(Shelf { blocks, content, names: HashMap::default() });
        }
        place.as_mut()
    }
}

impl InOrder for EngineView {
    fn course(&mut self) -> (&mut Sequence, &mut Doubt, &mut Counts) {
        (&mut self.sequence, &mut self.doubt, &mut self.counts)
    }

    fn apply(&mut self, index: &Index, payload: &[u8], now: Moment) -> Option<Need> {
        self.apply_events(index, payload, now);
        None
    }

    fn show_credit(&self, index: &Index) {
        // What a first replay brings can only add.
        let is_missing_some = self.sequence.is_recovering() && self.sequence.last().is_some();
        let is_doubted = self.doubt.is_raised() || is_missing_some;
        let credit = if is_doubted { DOUBTED_CREDIT } else { 1.0 };
        for shelf in self.shelves.iter().flatten() {
            index.set_credit(shelf.blocks.id(), credit);
            if let Some(content) = &shelf.content {
                index.set_credit(content.id(), credit);
            }
        }
    }
}

const fn place_of(tier: CacheTier) -> usize {
    tier as usize - 1
}
