//! One daemon's events: lives, moves, digests, snapshots.

use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kvd_proto::events::{
    Batch, BlockHash, CacheTier, Chunk as WireChunk, Cleared, Digest, Event, Removed, Replayed,
    Scope, Shard, SnapshotItem, Stored, Tally, TierFigures,
};
use kvd_proto::pack::Array;

use super::doubt::{DOUBTED_CREDIT, Doubt};
use super::families::{Chunk, Families, FamilyName, without_ranks};
use super::rows::{Row, RowKey, Rows, SpaceKey, SpaceName};
use super::sequence::{Arrival, Need, Sequence};
use super::{Counts, Moment, NAMES_MAX};
use crate::index::{Index, Kind, Name, Owner};

/// Whose events, and what the daemon offers.
#[derive(Clone, Debug)]
pub struct HostSource {
    /// The host.
    pub host: Arc<str>,
    /// Whether it has a replay socket.
    pub can_replay: bool,
    /// Whether it has snapshots.
    pub can_snapshot: bool,
}

/// Rows of one namespace in one tier, and what they are parts of.
#[derive(Debug)]
struct Space {
    rows: Rows,
    /// Nothing if there are too many families.
    family: Option<usize>,
    /// Which part this namespace stores, if the events don't say.
    shard: Shard,
}

/// What the index knows from one daemon.
#[derive(Debug)]
pub struct HostView {
    source: HostSource,
    epoch: Option<u64>,
    sequence: Sequence,
    doubt: Doubt,
    spaces: HashMap<SpaceKey, Space, FixedState>,
    families: Families,
    /// Rows of the snapshot that is being read.
    snapshot_rows: u64,
    generation: u32,
    /// What an earlier life left in pools was not seen since.
    are_pools_unverified: bool,
    /// Tiers that are left out until there is room.
    shed: [bool; CacheTier::ALL.len()],
    figures: Vec<TierFigures>,
    counts: Counts,
}

impl HostView {
    /// A view that knows nothing yet.
    #[must_use]
    pub fn new(source: HostSource) -> Self {
        Self {
            epoch: None,
            sequence: Sequence::new(source.can_replay, source.can_snapshot),
            doubt: Doubt::default(),
            spaces: HashMap::default(),
            families: Families::default(),
            snapshot_rows: 0,
            generation: 0,
            are_pools_unverified: false,
            shed: [false; CacheTier::ALL.len()],
            figures: Vec::new(),
            counts: Counts::default(),
            source,
        }
    }

    /// Whose events these are.
    #[must_use]
    pub const fn source(&self) -> &HostSource {
        &self.source
    }

    /// What to ask for when the subscription stands.
    pub fn begin(&mut self) -> Option<Need> {
        self.sequence.begin()
    }

    /// A message from the daemon's topic of events.
    pub fn live(&mut self, index: &Index, seq: u64, payload: &[u8], now: Moment) -> Option<Need> {
        if let Some(epoch) = epoch_of(payload) {
            self.enter(index, epoch);
        }
        let mut arrival = self.sequence.live(seq, payload);
        if arrival == Arrival::Restarted {
            self.counts.restarts += 1;
            self.sequence.restart();
            arrival = self.sequence.live(seq, payload);
        }
        let need = self.take(index, arrival, payload, now);
        self.show_credit(index);
        need
    }

    /// A message from the daemon's topic of figures; true if it said something.
    pub fn figure(&mut self, payload: &[u8]) -> bool {
        let Ok(batch) = Batch::decode(payload) else {
            self.counts.malformed += 1;
            return false;
        };
        let stats = batch.events().filter_map(|event| match event {
            Event::Stats(stats) => Some(stats),
            Event::Stored(_) | Event::Removed(_) | Event::Cleared(_) | Event::Digest(_) => None,
        });
        let Some(stats) = stats.last() else {
            return false;
        };
        self.figures.clear();
        self.figures.extend(stats.tiers.iter().take(CacheTier::ALL.len()));
        true
    }

    /// The last measured figures of its tiers.
    #[must_use]
    pub fn figures(&self) -> &[TierFigures] {
        &self.figures
    }

    /// An answer of the replay socket. Nothing more is awaited after [`Replayed::End`] and [`Replayed::TooOld`].
    pub fn replayed(&mut self, index: &Index, answer: &Replayed<'_>, now: Moment) -> Option<Need> {
        match answer {
            Replayed::Message { seq, payload, epoch } => {
                let epoch = epoch.or_else(|| epoch_of(payload));
                if epoch.is_some() && self.epoch.is_some() && epoch != self.epoch {
                    // The numbers are of another life.
                    return self.replay_failed(index, now);
                }
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
        let was_missing = self.sequence.is_recovering() && self.sequence.last().is_some();
        if let Some(need) = self.sequence.replay_failed() {
            return Some(need);
        }
        if was_missing {
            self.doubt.raise(now);
        }
        self.catch_up(index, now)
    }

    /// An item of a snapshot.
    pub fn snapshot(
        &mut self,
        index: &Index,
        item: &SnapshotItem<'_>,
        now: Moment,
    ) -> Option<Need> {
        match item {
            SnapshotItem::Header { epoch, seq, .. } => {
                self.enter(index, *epoch);
                if self.sequence.snapshot_began(*seq) {
                    self.snapshot_rows = 0;
                    self.generation = self.generation.wrapping_add(1);
                }
                None
            }
            SnapshotItem::Row(stored) => {
                if self.sequence.is_in_snapshot() {
                    self.snapshot_rows += 1;
                    self.store(index, stored);
                }
                None
            }
            SnapshotItem::Skipped => {
                self.snapshot_rows += 1;
                None
            }
            SnapshotItem::End { count } => {
                if *count != self.snapshot_rows {
                    return self.snapshot_failed();
                }
                if !self.sequence.snapshot_ended() {
                    return None;
                }
                self.sweep(index);
                self.doubt.settle();
                self.are_pools_unverified = false;
                self.catch_up(index, now)
            }
        }
    }

    /// No snapshot came, or not all of it. Wait a little before asking again.
    pub fn snapshot_failed(&mut self) -> Option<Need> {
        self.sequence.snapshot_failed()
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
                self.apply(index, payload, now)
            }
            Arrival::Kept(need) => {
                self.counts.gaps += u64::from(need.is_some() && self.sequence.last().is_some());
                need
            }
            Arrival::Known | Arrival::Restarted => None,
        }
    }

    /// The daemon's life, as an event or a header says it.
    fn enter(&mut self, index: &Index, epoch: u64) {
        let before = self.epoch.replace(epoch);
        if before.is_none_or(|before| before == epoch) {
            return;
        }
        self.counts.restarts += 1;
        self.drop_rows(index, |space| space.tier != CacheTier::L4);
        self.are_pools_unverified = true;
        let was_in_recovery = self.sequence.is_recovering();
        self.sequence.restart();
        if was_in_recovery {
            // Whoever reads a snapshot goes on reading it.
            let _same_need = self.sequence.begin();
        }
    }

    /// Applies one payload; answers with what a digest or a hole in it asks for.
    fn apply(&mut self, index: &Index, payload: &[u8], now: Moment) -> Option<Need> {
        let Ok(batch) = Batch::decode(payload) else {
            self.counts.malformed += 1;
            return self.resynchronise(now);
        };
        let mut need = None;
        let mut events = batch.events();
        for event in events.by_ref() {
            match event {
                Event::Stored(stored) => self.store(index, &stored),
                Event::Removed(removed) => self.remove(index, &removed),
                Event::Cleared(cleared) => self.clear(index, &cleared),
                Event::Digest(digest) if self.differs(&digest) => {
                    self.counts.digest_mismatches += 1;
                    need = self.resynchronise(now).or(need);
                }
                Event::Digest(_) | Event::Stats(_) => {}
            }
        }
        let skipped = events.skipped();
        self.counts.unknown += u64::from(skipped.unknown_types) + u64::from(skipped.unknown_fields);
        if skipped.malformed > 0 {
            self.counts.malformed += u64::from(skipped.malformed);
            need = self.resynchronise(now).or(need);
        }
        need
    }

    fn resynchronise(&mut self, now: Moment) -> Option<Need> {
        let need = self.sequence.resynchronise();
        if need.is_none() {
            self.doubt.raise(now);
        }
        need
    }

    fn store(&mut self, index: &Index, stored: &Stored<'_>) {
        self.counts.stored += 1;
        let Some(tier) = stored.place.cache_tier() else {
            self.counts.unknown_media += 1;
            return;
        };
        if tier == CacheTier::Device || self.is_shed(tier) {
            self.counts.not_credited += 1;
            return;
        }
        if !index.admits(tier) {
            self.counts.turned_away += 1;
            return self.shed(index, tier);
        }
        let name = space_name(tier, stored.owner.id, &stored.namespace);
        let Some(shard) = self.space(name).map(|space| stored.shard.unwrap_or(space.shard)) else {
            self.counts.turned_away += 1;
            return;
        };
        let is_main_group = stored.group.is_none_or(|group| group == 0);
        let hashes = || stored.block_hashes.iter().map(|hash| hash.bits());
        let generation = self.generation;
        if let Some(wire) = stored.chunk {
            let tally = Tally::of_row(hashes(), wire.key);
            let chunk = chunk_of(stored, &wire).filter(|_| is_main_group);
            let part = chunk.map(|chunk| (chunk, shard));
            self.put(
                index,
                name,
                RowKey::Chunk(wire.key),
                Row { tally, part, generation },
                wire.bytes,
            );
            return;
        }
        let routed = stored.router_hashes;
        let is_routed = !routed.is_empty() && routed.len() == stored.block_hashes.len();
        let mut routed = routed.iter();
        for hash in stored.block_hashes.iter() {
            let chunk = match routed.next().filter(|_| is_routed) {
                Some(bits) => block(Kind::Router, bits),
                None => block(kind_of(stored, &hash), hash.bits()),
            };
            let tally = Tally::of_row([hash.bits()], &[]);
            let part = is_main_group.then_some((chunk, shard));
            self.put(index, name, RowKey::Block(hash.bits()), Row { tally, part, generation }, 0);
        }
    }

    fn put(&mut self, index: &Index, name: SpaceName<'_>, key: RowKey<'_>, row: Row, bytes: u64) {
        let Some(space) = self.spaces.get_mut(&name) else {
            return;
        };
        let before = space.rows.put(key, row).and_then(|before| before.part);
        let Some(family) = space.family else {
            return;
        };
        if before == row.part {
            return;
        }
        if let Some(before) = before {
            self.families.take(index, family, name.tier, before);
        }
        if let Some(part) = row.part
            && !self.families.add(index, family, name.tier, part, bytes)
        {
            self.counts.turned_away += 1;
        }
    }

    fn remove(&mut self, index: &Index, removed: &Removed<'_>) {
        self.counts.removed += 1;
        let Some(tier) = removed.place.cache_tier() else {
            self.counts.unknown_media += 1;
            return;
        };
        let name = space_name(tier, removed.owner.id, &removed.namespace);
        let Some(space) = self.spaces.get_mut(&name) else {
            return;
        };
        let mut gone = Vec::new();
        if let Some(chunk) = removed.chunk {
            gone.extend(space.rows.take(RowKey::Chunk(chunk.key)));
        } else {
            let keys = removed.block_hashes.iter().map(|hash| RowKey::Block(hash.bits()));
            gone.extend(keys.filter_map(|key| space.rows.take(key)));
        }
        let family = space.family;
        self.take_parts(index, family, tier, &gone);
    }

    fn take_parts(&mut self, index: &Index, family: Option<usize>, tier: CacheTier, gone: &[Row]) {
        if let Some(family) = family {
            for part in gone.iter().filter_map(|row| row.part) {
                self.families.take(index, family, tier, part);
            }
        }
    }

    fn clear(&mut self, index: &Index, cleared: &Cleared<'_>) {
        self.counts.cleared += 1;
        let host = Arc::clone(&self.source.host);
        let is_owned = |space: &SpaceName<'_>| match (cleared.owner.id, space.pool) {
            (None, _) => true,
            (Some(owner), None) => owner == &*host,
            (Some(owner), Some(pool)) => owner == pool,
        };
        let is_meant = |space: &SpaceName<'_>| match cleared.scope {
            Scope::All => true,
            Scope::Model => cleared.namespace.model == Some(space.model),
            Scope::Tier => cleared.tier == Some(space.tier),
        };
        self.drop_rows(index, |space| is_owned(space) && is_meant(space));
    }

    fn drop_rows(&mut self, index: &Index, is_meant: impl Fn(&SpaceName<'_>) -> bool) {
        self.take_rows(
            index,
            |space, rows| if is_meant(space) { rows.take_all() } else { Vec::new() },
        );
    }

    fn sweep(&mut self, index: &Index) {
        let generation = self.generation;
        self.take_rows(index, |_, rows| rows.sweep(generation));
        let families = &self.families;
        let _kept = families;
        self.spaces.retain(|_, space| space.rows.tally() != Tally::default());
    }

    fn take_rows(
        &mut self,
        index: &Index,
        mut take: impl FnMut(&SpaceName<'_>, &mut Rows) -> Vec<Row>,
    ) {
        let mut gone = Vec::new();
        self.spaces.iter_mut().for_each(|(key, space)| {
            gone.push((space.family, key.tier, take(&key.name(), &mut space.rows)));
        });
        for (family, tier, rows) in gone {
            self.take_parts(index, family, tier, &rows);
        }
    }

    fn differs(&self, digest: &Digest<'_>) -> bool {
        let Some(tier) = digest.tier.filter(|tier| !self.is_shed(*tier)) else {
            return false;
        };
        let name = space_name(tier, digest.owner.id, &digest.namespace);
        let held = self.spaces.get(&name).map(|space| space.rows.tally());
        held.unwrap_or_default() != digest.tally
    }

    /// The space of that name, made if there is none; nothing if there are too many.
    fn space(&mut self, name: SpaceName<'_>) -> Option<&Space> {
        if !self.spaces.contains_key(&name) {
            if self.spaces.len() >= NAMES_MAX {
                return None;
            }
            let host = &self.source.host;
            let owner = match name.pool {
                Some(pool) => Owner::Pool { pool: pool.into(), told_by: Arc::clone(host) },
                None => Owner::Host { host: Arc::clone(host) },
            };
            let (text, shard) = without_ranks(name.compat_key);
            let family = FamilyName { owner, model: name.model.into(), text: text.into() };
            let family = self.families.number(&family);
            self.spaces.insert(name.into(), Space { rows: Rows::default(), family, shard });
        }
        self.spaces.get(&name)
    }

    /// Time passes: doubts end, lower tiers make room or come back.
    pub fn tick(&mut self, index: &Index, now: Moment) -> Option<Need> {
        self.doubt.tick(now);
        if let Some(tier) = index.must_shed() {
            self.shed(index, tier);
        }
        let may_return = |tier: &CacheTier| self.is_shed(*tier) && index.has_plenty_for(*tier);
        let back = CacheTier::ALL.into_iter().find(may_return);
        let mut need = None;
        if let Some(tier) = back {
            self.set_shed(tier, false);
            need = self.resynchronise(now);
        }
        self.show_credit(index);
        need
    }

    fn shed(&mut self, index: &Index, tier: CacheTier) {
        self.set_shed(tier, true);
        self.drop_rows(index, |space| space.tier == tier);
    }

    fn set_shed(&mut self, tier: CacheTier, is_shed: bool) {
        if let Some(place) = self.shed.get_mut(tier as usize - 1) {
            *place = is_shed;
        }
    }

    fn is_shed(&self, tier: CacheTier) -> bool {
        self.shed.get(tier as usize - 1).copied().unwrap_or(false)
    }

    /// Leaves the index, before the view is dropped.
    pub fn leave(&mut self, index: &Index) {
        self.drop_rows(index, |_| true);
        self.families.leave(index);
        self.spaces.clear();
    }

    /// Whether something may have been missed, or is being asked for.
    #[must_use]
    pub const fn is_doubted(&self) -> bool {
        self.doubt.is_raised() || self.sequence.is_recovering()
    }

    /// What is held of a namespace in a tier.
    #[must_use]
    pub fn tally(&self, model: &str, compat_key: &str, tier: CacheTier) -> Tally {
        let name = SpaceName { pool: None, model, compat_key, tier };
        self.spaces.get(&name).map(|space| space.rows.tally()).unwrap_or_default()
    }

    /// The daemon's life, once it is known.
    #[must_use]
    pub const fn epoch(&self) -> Option<u64> {
        self.epoch
    }

    /// What happened to the view.
    #[must_use]
    pub const fn counts(&self) -> &Counts {
        &self.counts
    }

    fn show_credit(&self, index: &Index) {
        for (tier, id) in self.families.holders() {
            let is_unverified = tier == CacheTier::L4 && self.are_pools_unverified;
            let is_worth_half = self.is_doubted() || is_unverified;
            index.set_credit(id, if is_worth_half { DOUBTED_CREDIT } else { 1.0 });
        }
    }
}

/// The life that the first event of a payload names.
fn epoch_of(payload: &[u8]) -> Option<u64> {
    let owner = match Batch::decode(payload).ok()?.events().next()? {
        Event::Stored(stored) => stored.owner,
        Event::Removed(removed) => removed.owner,
        Event::Cleared(cleared) => cleared.owner,
        Event::Stats(stats) => stats.owner,
        Event::Digest(digest) => digest.owner,
    };
    owner.epoch
}

fn space_name<'a>(
    tier: CacheTier,
    owner: Option<&'a str>,
    namespace: &kvd_proto::events::Namespace<'a>,
) -> SpaceName<'a> {
    SpaceName {
        pool: owner.filter(|_| tier == CacheTier::L4),
        model: namespace.model.unwrap_or_default(),
        compat_key: namespace.compat_key.unwrap_or_default(),
        tier,
    }
}

const fn block(kind: Kind, bits: u64) -> Chunk {
    Chunk { kind, name: Name::new(kind, bits), stride: 1 }
}

/// How a chunk is looked up: by the router's hash of its last block, or the engine's, or its key.
fn chunk_of(stored: &Stored<'_>, wire: &WireChunk<'_>) -> Option<Chunk> {
    let covers = |len: usize| {
        let len = u32::try_from(len).ok().filter(|len| *len > 0)?;
        (wire.blocks == 0 || wire.blocks == len).then_some(len)
    };
    if let Some(stride) = covers(stored.router_hashes.len()) {
        let bits = last(&stored.router_hashes)?;
        return Some(Chunk { kind: Kind::Router, name: Name::new(Kind::Router, bits), stride });
    }
    if let Some(stride) = covers(stored.block_hashes.len()) {
        let hash = last(&stored.block_hashes)?;
        let kind = kind_of(stored, &hash);
        return Some(Chunk { kind, name: Name::new(kind, hash.bits()), stride });
    }
    let name = Name::of_chunk_key(wire.key);
    (wire.blocks > 0).then_some(Chunk { kind: Kind::ChunkKey, name, stride: wire.blocks })
}

fn last<'a, T: kvd_proto::pack::Wire<'a>>(list: &Array<'a, T>) -> Option<T> {
    list.iter().last()
}

/// What an engine's hash is: vLLM's are whole digests, unless the engine is named.
fn kind_of(stored: &Stored<'_>, hash: &BlockHash<'_>) -> Kind {
    match stored.namespace.engine {
        Some("vllm") => Kind::Vllm,
        Some("sglang") => Kind::Sglang,
        _ if matches!(hash, BlockHash::Digest(_)) => Kind::Vllm,
        _ => Kind::Sglang,
    }
}
