//! One rank's events: from the engine's hashes and tokens to the router's names.

use std::collections::VecDeque;
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kvd_proto::events::{
    Batch, BlockHash, CacheTier, Cleared, Event, Parent, Removed, Replayed, Stored,
};

use super::doubt::{DOUBTED_CREDIT, Doubt};
use super::holding::{Before, Holding};
use super::sequence::{Arrival, Need, Sequence};
use super::waiting::{Orphan, Waiting};
use super::{Counts, Moment, NAMES_MAX};
use crate::hash::{self, BlockHasher};
use crate::index::{Holder, Index, Kind, Owner};

/// How long blocks count whose removal cannot be recognised.
const UNPAIRED_MS: u64 = 600_000;
/// Most of them.
const UNPAIRED_MAX: usize = 65_536;
/// Most cache groups that are told apart.
const GROUPS_MAX: usize = 16;
/// Kinds of attention whose blocks make a prefix.
const FULL_KINDS: &[&str] = &["full_attention", "mla_attention", "sink_full_attention"];

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
    /// From the view's name of a block, see [`label`], to the router's.
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

/// The view's name of an engine's block: groups have names of their own.
const fn label(group: Option<u32>, bits: u64) -> u64 {
    let group = match group {
        None => 0,
        Some(group) => (group as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    bits ^ group
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
            self.apply(index, payload, now);
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

    /// An answer of the replay socket. Nothing more is awaited after [`Replayed::End`] and [`Replayed::TooOld`].
    pub fn replayed(&mut self, index: &Index, answer: &Replayed<'_>, now: Moment) -> Option<Need> {
        match answer {
            Replayed::Message { seq, payload, .. } => {
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

    fn catch_up(&mut self, index: &Index, now: Moment) -> Option<Need> {
        let mut need = None;
        while let Some((payload, arrival)) = self.sequence.next_kept() {
            need = self.take(index, arrival, &payload, now).or(need);
        }
        self.show_credit(index);
        need
    }

    fn take(
        &mut self,
        index: &Index,
        arrival: Arrival,
        payload: &[u8],
        now: Moment,
    ) -> Option<Need> {
        match arrival {
            Arrival::Next => self.apply(index, payload, now),
            Arrival::AfterLoss => {
                self.counts.gaps += 1;
                self.doubt.raise(now);
                self.apply(index, payload, now);
            }
            Arrival::Kept(need) => {
                self.counts.gaps += u64::from(need.is_some() && self.sequence.last().is_some());
                return need;
            }
            Arrival::Known | Arrival::Restarted => {}
        }
        None
    }

    /// Applies one payload.
    fn apply(&mut self, index: &Index, payload: &[u8], now: Moment) {
        let Ok(batch) = Batch::decode(payload) else {
            self.counts.malformed += 1;
            // What it said is lost as if it had not come.
            self.doubt.raise(now);
            return;
        };
        let mut events = batch.events();
        for event in events.by_ref() {
            match event {
                Event::Stored(stored) => self.store(index, &stored, now),
                Event::Removed(removed) => self.remove(index, &removed),
                Event::Cleared(cleared) => self.clear(index, &cleared),
                Event::Stats(_) | Event::Digest(_) => self.counts.unknown += 1,
            }
        }
        let skipped = events.skipped();
        self.counts.unknown += u64::from(skipped.unknown_types) + u64::from(skipped.unknown_fields);
        if skipped.malformed > 0 {
            self.counts.malformed += u64::from(skipped.malformed);
            self.doubt.raise(now);
        }
    }

    fn store(&mut self, index: &Index, stored: &Stored<'_>, now: Moment) {
        self.counts.stored += 1;
        let Some(tier) = stored.place.cache_tier() else {
            self.counts.unknown_media += 1;
            return;
        };
        let is_full = stored.spec_kind.is_none_or(|kind| FULL_KINDS.contains(&kind));
        let is_elsewhere = stored.place.is_remote() && tier != CacheTier::L4;
        if !is_full || is_elsewhere {
            self.counts.not_credited += 1;
            return;
        }
        if !index.admits(tier) {
            self.counts.turned_away += 1;
            return;
        }
        self.note_group(stored.group);
        self.store_content(index, tier, stored);
        let block_size = self.block_size_of(stored.block_size);
        let blocks = stored.tokens.len() / block_size.max(1) as usize;
        if blocks == 0 {
            self.store_by_name(index, tier, stored);
            return;
        }
        let orphan = orphan_of(tier, stored, block_size);
        let adapter = adapter_of(stored);
        let salt = salt_of(stored, adapter.as_deref());
        match stored.parent {
            Parent::Root => {
                let root = hash::root(adapter.as_deref(), salt);
                self.store_chain(index, orphan, root, Before::Nothing, now);
            }
            Parent::Block(_) => match self.resolve(orphan.parent) {
                Some(parent) => {
                    self.store_chain(index, orphan, parent, Before::Block(parent), now);
                }
                None => self.counts.orphaned += self.waiting.hold(orphan, now),
            },
            Parent::Unknown => self.counts.unresolved += blocks as u64,
        }
    }

    /// Stores the blocks of an event behind a known one, then those that waited for them, and so on.
    fn store_chain(
        &mut self,
        index: &Index,
        orphan: Orphan,
        parent: u64,
        before: Before,
        now: Moment,
    ) {
        let mut ready = vec![(orphan, parent, before)];
        while let Some((orphan, mut parent, mut before)) = ready.pop() {
            let size = orphan.block_size.max(1) as usize;
            let is_paired = orphan.tokens.len() / size == orphan.blocks.len();
            let mut extra = orphan.extra.iter().peekable();
            for (at, tokens) in orphan.tokens.chunks_exact(size).enumerate() {
                let extra = extra.next_if(|(block, _)| *block == at);
                let extra = extra.map_or(&[][..], |(_, extra)| extra);
                let name = self.hasher.block(parent, tokens.iter().copied(), extra);
                if !is_paired {
                    self.store_unpaired(index, orphan.tier, name, before, now);
                } else if let Some(label) = orphan.blocks.get(at).copied().flatten() {
                    self.put(index, orphan.tier, label, name, before);
                    let children = self.waiting.release(label);
                    ready.extend(
                        children.into_iter().map(|child| (child, name, Before::Block(name))),
                    );
                }
                (parent, before) = (name, Before::Block(name));
            }
        }
    }

    fn store_unpaired(
        &mut self,
        index: &Index,
        tier: CacheTier,
        name: u64,
        before: Before,
        now: Moment,
    ) {
        self.counts.unpaired += 1;
        if self.unpaired.len() >= UNPAIRED_MAX {
            return;
        }
        let shelf = self.shelf(index, tier);
        if shelf.is_some_and(|shelf| shelf.blocks.add(index, name, before)) {
            self.unpaired.push_back((now.after(UNPAIRED_MS), tier, name));
        }
    }

    /// One block, by the engine's name and the router's.
    fn put(&mut self, index: &Index, tier: CacheTier, label: u64, name: u64, before: Before) {
        let Some(shelf) = self.shelf(index, tier) else {
            self.counts.turned_away += 1;
            return;
        };
        match shelf.names.get(&label).copied() {
            Some(known) if known == name && shelf.blocks.has(name) => return,
            Some(known) if known != name => shelf.blocks.release(index, known),
            Some(_) | None => {}
        }
        if shelf.blocks.add(index, name, before) {
            shelf.names.insert(label, name);
        } else {
            shelf.names.remove(&label);
            self.counts.turned_away += 1;
        }
    }

    /// Blocks without tokens: those that are known in another tier, or were here before.
    fn store_by_name(&mut self, index: &Index, tier: CacheTier, stored: &Stored<'_>) {
        for hash in stored.block_hashes.iter() {
            let label = label(stored.group, hash.bits());
            let known = self.shelves.iter().flatten().find_map(|shelf| {
                let name = *shelf.names.get(&label)?;
                Some((name, shelf.blocks.before(name)?))
            });
            match known {
                Some((name, before)) => self.put(index, tier, label, name, before),
                None => self.counts.unresolved += u64::from(!self.source.names_content),
            }
        }
    }

    /// Blocks by the engine's names, where these tell content.
    fn store_content(&mut self, index: &Index, tier: CacheTier, stored: &Stored<'_>) {
        if !self.source.names_content {
            return;
        }
        let mut before = match stored.parent {
            Parent::Root => Before::Nothing,
            Parent::Block(hash) => Before::Block(hash.bits()),
            Parent::Unknown => Before::Unknown,
        };
        let shelf = self.shelf(index, tier);
        let Some(content) = shelf.and_then(|shelf| shelf.content.as_mut()) else {
            return;
        };
        for bits in stored.block_hashes.iter().map(|hash| hash.bits()) {
            if !content.has(bits) {
                content.add(index, bits, before);
            }
            before = Before::Block(bits);
        }
    }

    fn remove(&mut self, index: &Index, removed: &Removed<'_>) {
        self.counts.removed += 1;
        let Some(tier) = removed.place.cache_tier() else {
            self.counts.unknown_media += 1;
            return;
        };
        if removed.place.is_remote() && tier != CacheTier::L4 {
            self.counts.not_credited += 1;
            return;
        }
        for bits in removed.block_hashes.iter().map(|hash| hash.bits()) {
            self.remove_block(index, tier, removed.group, bits);
        }
    }

    fn remove_block(&mut self, index: &Index, tier: CacheTier, group: Option<u32>, bits: u64) {
        if self.remove_label(index, tier, label(group, bits)) {
            return self.remove_content(index, tier, bits);
        }
        // Older engines name the group of what they store only.
        if group.is_none() {
            for group in self.groups.clone() {
                self.remove_label(index, tier, label(group, bits));
            }
        }
        self.remove_content(index, tier, bits);
    }

    fn remove_label(&mut self, index: &Index, tier: CacheTier, label: u64) -> bool {
        let shelf = self.shelves.get_mut(place_of(tier)).and_then(Option::as_mut);
        let stored = shelf.is_some_and(|shelf| {
            let name = shelf.names.remove(&label);
            if let Some(name) = name {
                shelf.blocks.release(index, name);
            }
            name.is_some()
        });
        self.waiting.remove(tier, label) || stored
    }

    fn remove_content(&mut self, index: &Index, tier: CacheTier, bits: u64) {
        let shelf = self.shelves.get_mut(place_of(tier)).and_then(Option::as_mut);
        if let Some(content) = shelf.and_then(|shelf| shelf.content.as_mut()) {
            content.drop_block(index, bits);
        }
    }

    fn clear(&mut self, index: &Index, cleared: &Cleared<'_>) {
        self.counts.cleared += 1;
        match cleared.tier {
            Some(tier) => self.empty(index, tier),
            None => self.forget(index),
        }
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

    fn block_size_of(&mut self, of_event: u32) -> u32 {
        let Some(of_event) = Some(of_event).filter(|size| *size > 0) else {
            return self.block_size.unwrap_or(0);
        };
        if self.block_size != Some(of_event) {
            self.counts.block_sizes += u64::from(self.block_size.is_some());
            self.block_size = Some(of_event);
        }
        of_event
    }

    fn note_group(&mut self, group: Option<u32>) {
        if !self.groups.contains(&group) && self.groups.len() < GROUPS_MAX {
            self.groups.push(group);
        }
    }

    fn resolve(&self, label: u64) -> Option<u64> {
        self.shelves.iter().flatten().find_map(|shelf| shelf.names.get(&label).copied())
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

const fn place_of(tier: CacheTier) -> usize {
    tier as usize - 1
}

fn orphan_of(tier: CacheTier, stored: &Stored<'_>, block_size: u32) -> Orphan {
    let adapter = adapter_of(stored);
    let salt = salt_of(stored, adapter.as_deref());
    let blocks: Vec<_> =
        stored.block_hashes.iter().map(|hash| Some(label(stored.group, hash.bits()))).collect();
    let mut extra = Vec::new();
    if let Some(keys) = stored.extra_keys.filter(|keys| !keys.is_empty()) {
        for at in 0..blocks.len() {
            let mut bytes = Vec::new();
            hash::put_extra(&keys, at, adapter.as_deref(), salt, &mut bytes);
            if !bytes.is_empty() {
                extra.push((at, bytes));
            }
        }
    }
    let parent = match stored.parent {
        Parent::Block(hash) => label(stored.group, BlockHash::bits(&hash)),
        Parent::Root | Parent::Unknown => 0,
    };
    let tokens = stored.tokens.iter().map(|token| token.0).collect();
    Orphan { tier, parent, block_size, blocks, tokens, extra }
}

fn adapter_of(stored: &Stored<'_>) -> Option<String> {
    let of_number = || stored.lora_id.map(|number| number.to_string());
    stored.lora_name.map(str::to_owned).or_else(of_number)
}

fn salt_of<'a>(stored: &Stored<'a>, adapter: Option<&str>) -> Option<&'a str> {
    if stored.parent != Parent::Root {
        return None;
    }
    hash::salt_of(&stored.extra_keys?, adapter)
}
