//! One daemon's events: rows that come and go, and whether they are those that the daemon has.

use std::sync::Arc;

use kvd_proto::events::{
    Batch, BlockHash, CacheTier, Chunk as WireChunk, Cleared, Digest, Event, Namespace, Removed,
    Scope, Stored, Tally,
};
use kvd_proto::pack::{Array, Wire};

use super::super::families::{Chunk, FamilyName, without_ranks};
use super::super::rows::{Row, RowKey, Rows, SpaceName};
use super::super::sequence::Need;
use super::super::{Moment, NAMES_MAX};
use super::{HostView, Share, Space};
use crate::index::{Index, Kind, Name, Owner};

/// Most rows of one daemon.
const ROWS_MAX: usize = 16 << 20;

impl HostView {
    /// Applies one payload; answers with what a digest or a hole in it asks for.
    pub(super) fn apply_events(
        &mut self,
        index: &Index,
        payload: &[u8],
        now: Moment,
    ) -> Option<Need> {
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

    pub(super) fn resynchronise(&mut self, now: Moment) -> Option<Need> {
        let need = self.sequence.resynchronise();
        if need.is_none() {
            self.doubt.raise(now);
        }
        need
    }

    pub(super) fn store(&mut self, index: &Index, stored: &Stored<'_>) {
        self.counts.stored += 1;
        let Some(tier) = stored.place.cache_tier() else {
            self.counts.unknown_media += 1;
            return;
        };
        if tier == CacheTier::Device || self.share(tier) != Share::All {
            self.counts.not_credited += 1;
            return;
        }
        let has_too_many = self.row_count >= ROWS_MAX;
        if has_too_many || !index.admits(tier) {
            self.counts.turned_away += 1;
            let share = if has_too_many { Share::TooMany } else { Share::LeftOut };
            return self.leave_out(index, tier, share);
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
        let links = space.rows.links();
        let before = space.rows.put(key, row);
        index.count_links(links, space.rows.links());
        self.row_count += usize::from(before.is_none());
        let before = before.and_then(|before| before.part);
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
        let links = space.rows.links();
        if let Some(chunk) = removed.chunk {
            gone.extend(space.rows.take(RowKey::Chunk(chunk.key)));
        } else {
            let keys = removed.block_hashes.iter().map(|hash| RowKey::Block(hash.bits()));
            gone.extend(keys.filter_map(|key| space.rows.take(key)));
        }
        index.count_links(links, space.rows.links());
        let family = space.family;
        self.take_parts(index, family, tier, &gone);
    }

    fn take_parts(&mut self, index: &Index, family: Option<usize>, tier: CacheTier, gone: &[Row]) {
        self.row_count -= gone.len();
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

    pub(super) fn drop_rows(&mut self, index: &Index, is_meant: impl Fn(&SpaceName<'_>) -> bool) {
        self.take_rows(
            index,
            |space, rows| if is_meant(space) { rows.take_all() } else { Vec::new() },
        );
    }

    pub(super) fn sweep(&mut self, index: &Index) {
        let generation = self.generation;
        self.take_rows(index, |_, rows| rows.sweep(generation));
        self.spaces.retain(|_, space| space.rows.tally() != Tally::default());
    }

    fn take_rows(
        &mut self,
        index: &Index,
        mut take: impl FnMut(&SpaceName<'_>, &mut Rows) -> Vec<Row>,
    ) {
        let mut gone = Vec::new();
        self.spaces.iter_mut().for_each(|(key, space)| {
            let links = space.rows.links();
            gone.push((space.family, key.tier, take(&key.name(), &mut space.rows)));
            index.count_links(links, space.rows.links());
        });
        for (family, tier, rows) in gone {
            self.take_parts(index, family, tier, &rows);
        }
    }

    fn differs(&self, digest: &Digest<'_>) -> bool {
        let Some(tier) = digest.tier.filter(|tier| self.share(*tier) == Share::All) else {
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
            let rows = Rows::new(name.tier);
            self.spaces.insert(name.into(), Space { rows, family, shard });
        }
        self.spaces.get(&name)
    }
}

fn space_name<'a>(
    tier: CacheTier,
    owner: Option<&'a str>,
    namespace: &Namespace<'a>,
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

fn last<'a, T: Wire<'a>>(list: &Array<'a, T>) -> Option<T> {
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
