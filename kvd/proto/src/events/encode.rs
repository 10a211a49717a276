//! One event as a map.

use super::block::Parent;
use super::event::{
    Chunk, Cleared, Event, Namespace, Owner, Reason, Removed, Scope, Shard, Stored,
};
use super::place::{CacheTier, Place};
use crate::pack::{Wire, put_array_head, put_map_head, put_str};

pub(super) const STORED: &str = "BlockStored";
pub(super) const REMOVED: &str = "BlockRemoved";
pub(super) const CLEARED: &str = "AllBlocksCleared";

impl Event<'_> {
    /// Appends the event as a map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Stored(stored) => stored.encode(out),
            Self::Removed(removed) => removed.encode(out),
            Self::Cleared(cleared) => cleared.encode(out),
            Self::Stats(stats) => stats.encode(out),
            Self::Digest(digest) => digest.encode(out),
        }
    }
}

impl Stored<'_> {
    /// Appends the event as a map; what is unknown is left out, except what every reader expects.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::begin(out, STORED);
        map.field("block_hashes", self.block_hashes);
        match self.parent {
            Parent::Root => map.field("parent_block_hash", None::<u64>),
            Parent::Block(hash) => map.field("parent_block_hash", hash),
            Parent::Unknown => {}
        }
        map.field("token_ids", self.tokens);
        map.field("block_size", self.block_size);
        map.optional("lora_id", self.lora_id);
        map.optional("lora_name", self.lora_name);
        map.optional("extra_keys", self.extra_keys);
        map.optional("group_idx", self.group);
        map.optional("kv_cache_spec_kind", self.spec_kind);
        let router_hashes = Some(self.router_hashes).filter(|hashes| !hashes.is_empty());
        map.optional("router_hashes", router_hashes);
        map.held(self.chunk, self.shard, &self.place);
        map.owned(&self.owner, &self.namespace);
        map.optional("reason", self.reason.map(Reason::as_str));
        map.finish();
    }
}

impl Removed<'_> {
    /// Appends the event as a map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::begin(out, REMOVED);
        map.field("block_hashes", self.block_hashes);
        map.optional("group_idx", self.group);
        let router_hashes = Some(self.router_hashes).filter(|hashes| !hashes.is_empty());
        map.optional("router_hashes", router_hashes);
        map.held(self.chunk, self.shard, &self.place);
        map.owned(&self.owner, &self.namespace);
        map.optional("reason", self.reason.map(Reason::as_str));
        map.finish();
    }
}

impl Cleared<'_> {
    /// Appends the event as a map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::begin(out, CLEARED);
        map.owned(&self.owner, &self.namespace);
        map.optional("tier", self.tier.map(CacheTier::as_str));
        if self.scope != Scope::All {
            map.field("scope", self.scope.as_str());
        }
        map.finish();
    }
}

/// Appends a map whose size is known at its end.
pub(super) struct MapWriter<'b> {
    out: &'b mut Vec<u8>,
    head_at: usize,
    fields: u16,
}

/// `map 16`, so that the head can be written before the number of fields is known.
const MAP_16: u8 = 0xde;

impl<'b> MapWriter<'b> {
    pub(super) fn begin(out: &'b mut Vec<u8>, tag: &str) -> Self {
        let head_at = out.len();
        out.extend_from_slice(&[MAP_16, 0, 0]);
        let mut map = Self { out, head_at, fields: 0 };
        map.field("type", tag);
        map
    }

    pub(super) fn field<'v>(&mut self, name: &str, value: impl Wire<'v>) {
        put_str(self.out, name);
        value.put(self.out);
        self.fields = self.fields.saturating_add(1);
    }

    pub(super) fn optional<'v>(&mut self, name: &str, value: Option<impl Wire<'v>>) {
        if let Some(value) = value {
            self.field(name, value);
        }
    }

    pub(super) fn field_with(&mut self, name: &str, put: impl FnOnce(&mut Vec<u8>)) {
        put_str(self.out, name);
        put(self.out);
        self.fields = self.fields.saturating_add(1);
    }

    fn held(&mut self, chunk: Option<Chunk<'_>>, shard: Option<Shard>, place: &Place<'_>) {
        if let Some(chunk) = chunk {
            self.field_with("chunk", |out| {
                put_map_head(out, 3);
                put_str(out, "key");
                chunk.key.put(out);
                put_str(out, "n_blocks");
                chunk.blocks.put(out);
                put_str(out, "bytes");
                chunk.bytes.put(out);
            });
        }
        if let Some(shard) = shard {
            self.field_with("shard", |out| {
                put_array_head(out, 2);
                shard.index.put(out);
                shard.count.put(out);
            });
        }
        self.optional("medium", place.medium);
        self.optional("locality", place.locality);
        self.optional("tier", place.tier);
    }

    pub(super) fn owned(&mut self, owner: &Owner<'_>, namespace: &Namespace<'_>) {
        self.optional("owner", owner.id);
        self.optional("epoch", owner.epoch);
        self.optional("model", namespace.model);
        self.optional("compat_key", namespace.compat_key);
        self.optional("engine", namespace.engine);
    }

    pub(super) fn finish(self) {
        let count_at = self.head_at.saturating_add(1);
        let count_end = self.head_at.saturating_add(3);
        if let Some(count) = self.out.get_mut(count_at..count_end) {
            count.copy_from_slice(&self.fields.to_be_bytes());
        }
    }
}
