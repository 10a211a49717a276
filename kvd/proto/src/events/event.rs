//! One event. Decoded from an array or a map, whichever it is; encoded as a map.

use super::block::{BlockHash, ExtraKeys, Parent, Token};
use super::figures::{Digest, Stats};
use super::place::{CacheTier, Place};
use crate::malformed::Malformed;
use crate::pack::{Array, Items, Value, Wire, put_array_head, put_map_head, put_str};

pub(super) const STORED: &str = "BlockStored";
pub(super) const REMOVED: &str = "BlockRemoved";
pub(super) const CLEARED: &str = "AllBlocksCleared";

/// Something that happened to cached blocks, or that a daemon says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Event<'a> {
    /// Blocks can be read at a place.
    Stored(Stored<'a>),
    /// Blocks can no longer be read at a place.
    Removed(Removed<'a>),
    /// A place, or several, became empty.
    Cleared(Cleared<'a>),
    /// Measured bandwidths and queues.
    Stats(Stats<'a>),
    /// What a namespace's tier holds at this point of the stream.
    Digest(Digest<'a>),
}

/// Which model's blocks, and computed how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Namespace<'a> {
    /// The model, absent in events of engines.
    pub model: Option<&'a str>,
    /// What must be equal before blocks may be shared.
    pub compat_key: Option<&'a str>,
    /// The engine.
    pub engine: Option<&'a str>,
}

/// Who published: a host or a pool, and in which life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Owner<'a> {
    /// Id of the host, or of the pool; absent in events of engines.
    pub id: Option<&'a str>,
    /// Life of the daemon.
    pub epoch: Option<u64>,
}

/// The daemon's all-or-nothing unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Key of the entry.
    pub key: &'a [u8],
    /// Blocks that it covers; 0 if unknown.
    pub blocks: u32,
    /// Length of the value.
    pub bytes: u64,
}

/// Which part of a chunk a rank stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Number of the part, below `count`.
    pub index: u32,
    /// Parts of a whole, at least 1.
    pub count: u32,
}

impl Shard {
    /// The only part of a whole.
    pub const WHOLE: Self = Self { index: 0, count: 1 };
}

/// Why blocks moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// To make room.
    Evict,
    /// Into a lower tier.
    Demote,
    /// Into a higher tier.
    Promote,
    /// Their time was over.
    Ttl,
    /// Somebody asked for it.
    Clear,
}

impl Reason {
    const ALL: [Self; 5] = [Self::Evict, Self::Demote, Self::Promote, Self::Ttl, Self::Clear];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Evict => "evict",
            Self::Demote => "demote",
            Self::Promote => "promote",
            Self::Ttl => "ttl",
            Self::Clear => "clear",
        }
    }
}

/// What a clear covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Everything of the owner.
    #[default]
    All,
    /// One model.
    Model,
    /// One tier.
    Tier,
}

impl Scope {
    const ALL: [Self; 3] = [Self::All, Self::Model, Self::Tier];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Model => "model",
            Self::Tier => "tier",
        }
    }
}

/// Blocks that can be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stored<'a> {
    /// The engine's hashes in prefix order; empty if unknown.
    pub block_hashes: Array<'a, BlockHash<'a>>,
    /// What stands in front of the first one.
    pub parent: Parent<'a>,
    /// All tokens of the blocks, end to end; empty if unknown.
    pub tokens: Array<'a, Token>,
    /// Tokens in one block; 0 if unknown.
    pub block_size: u32,
    /// Number of the adapter.
    pub lora_id: Option<i64>,
    /// Name of the adapter.
    pub lora_name: Option<&'a str>,
    /// Adapter, salt and media, per block.
    pub extra_keys: Option<ExtraKeys<'a>>,
    /// Number of the cache group.
    pub group: Option<u32>,
    /// Kind of attention of the group.
    pub spec_kind: Option<&'a str>,
    /// The router's hashes of the same blocks; empty if unknown.
    pub router_hashes: Array<'a, u64>,
    /// The unit that holds the blocks, if it is not a key per block.
    pub chunk: Option<Chunk<'a>>,
    /// Which part of it.
    pub shard: Option<Shard>,
    /// Where.
    pub place: Place<'a>,
    /// Whose.
    pub owner: Owner<'a>,
    /// Of which model.
    pub namespace: Namespace<'a>,
    /// Why.
    pub reason: Option<Reason>,
}

impl Default for Stored<'_> {
    fn default() -> Self {
        Self {
            block_hashes: Array::Slice(&[]),
            parent: Parent::Unknown,
            tokens: Array::Slice(&[]),
            block_size: 0,
            lora_id: None,
            lora_name: None,
            extra_keys: None,
            group: None,
            spec_kind: None,
            router_hashes: Array::Slice(&[]),
            chunk: None,
            shard: None,
            place: Place::default(),
            owner: Owner::default(),
            namespace: Namespace::default(),
            reason: None,
        }
    }
}

/// Blocks that are gone from one place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Removed<'a> {
    /// The engine's hashes; empty if unknown.
    pub block_hashes: Array<'a, BlockHash<'a>>,
    /// Number of the cache group.
    pub group: Option<u32>,
    /// The router's hashes of the same blocks; empty if unknown.
    pub router_hashes: Array<'a, u64>,
    /// The unit that held them.
    pub chunk: Option<Chunk<'a>>,
    /// Which part of it.
    pub shard: Option<Shard>,
    /// From where.
    pub place: Place<'a>,
    /// Whose.
    pub owner: Owner<'a>,
    /// Of which model.
    pub namespace: Namespace<'a>,
    /// Why.
    pub reason: Option<Reason>,
}

impl Default for Removed<'_> {
    fn default() -> Self {
        Self {
            block_hashes: Array::Slice(&[]),
            group: None,
            router_hashes: Array::Slice(&[]),
            chunk: None,
            shard: None,
            place: Place::default(),
            owner: Owner::default(),
            namespace: Namespace::default(),
            reason: None,
        }
    }
}

/// Places that are empty now.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cleared<'a> {
    /// How much of the owner's.
    pub scope: Scope,
    /// The tier, for [`Scope::Tier`].
    pub tier: Option<CacheTier>,
    /// Whose.
    pub owner: Owner<'a>,
    /// Of which model, for [`Scope::Model`].
    pub namespace: Namespace<'a>,
}

/// What one event was decoded to.
#[derive(Debug)]
pub(super) struct Decoded<'a> {
    /// Nothing if its type is unknown.
    pub(super) event: Option<Event<'a>>,
    /// Fields that nobody knows.
    pub(super) unknown_fields: u32,
}

impl<'a> Event<'a> {
    /// Decodes one event.
    pub(super) fn decode(value: Value<'a>) -> Result<Decoded<'a>, Malformed> {
        match value {
            Value::Array(items) => from_array(items),
            Value::Map(items) => from_map(items),
            Value::Nil
            | Value::Bool(_)
            | Value::Unsigned(_)
            | Value::Negative(_)
            | Value::Float(_)
            | Value::Text(_)
            | Value::Bytes(_)
            | Value::Extension => Err(Malformed::WrongType { field: "event" }),
        }
    }

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

/// The fields of an event in the order of engines that send arrays.
const STORED_ORDER: &[&str] = &[
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
    "kv_cache_spec_sliding_window",
    "locality",
];
const REMOVED_ORDER: &[&str] = &["block_hashes", "medium", "group_idx", "locality"];

fn from_array(items: Items<'_>) -> Result<Decoded<'_>, Malformed> {
    let mut values = items.values();
    let tag = values.next().and_then(<&str>::from_value);
    let tag = tag.ok_or(Malformed::WrongType { field: "type" })?;
    let (mut draft, order) = match tag {
        STORED => (Draft::Stored(Stored::default()), STORED_ORDER),
        REMOVED => (Draft::Removed(Removed::default()), REMOVED_ORDER),
        CLEARED => (Draft::Cleared(Cleared::default()), &[][..]),
        _ => return Ok(Decoded { event: None, unknown_fields: 0 }),
    };
    let mut unknown_fields = 0_u32;
    let mut names = order.iter();
    for value in values {
        let Some(name) = names.next() else {
            unknown_fields = unknown_fields.saturating_add(1);
            continue;
        };
        draft.set(name, value)?;
    }
    Ok(Decoded { event: Some(draft.finish()?), unknown_fields })
}

fn from_map(items: Items<'_>) -> Result<Decoded<'_>, Malformed> {
    let mut values = items.values();
    let mut tag = None;
    while let (Some(name), Some(value)) = (values.next(), values.next()) {
        if name == Value::Text("type") {
            tag = <&str>::from_value(value);
        }
    }
    let mut draft = match tag.ok_or(Malformed::WrongType { field: "type" })? {
        STORED => Draft::Stored(Stored::default()),
        REMOVED => Draft::Removed(Removed::default()),
        CLEARED => Draft::Cleared(Cleared::default()),
        Stats::TYPE => Draft::Stats(Stats::default()),
        Digest::TYPE => Draft::Digest(Digest::default()),
        _ => return Ok(Decoded { event: None, unknown_fields: 0 }),
    };
    let mut unknown_fields = 0_u32;
    let mut values = items.values();
    while let (Some(name), Some(value)) = (values.next(), values.next()) {
        let name = <&str>::from_value(name).unwrap_or_default();
        if name != "type" && !draft.set(name, value)? {
            unknown_fields = unknown_fields.saturating_add(1);
        }
    }
    Ok(Decoded { event: Some(draft.finish()?), unknown_fields })
}

/// An event whose fields are still being read.
enum Draft<'a> {
    Stored(Stored<'a>),
    Removed(Removed<'a>),
    Cleared(Cleared<'a>),
    Stats(Stats<'a>),
    Digest(Digest<'a>),
}

impl<'a> Draft<'a> {
    /// Takes one field; false if the event has no such field.
    fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match self {
            Self::Stored(stored) => stored.set(name, value),
            Self::Removed(removed) => removed.set(name, value),
            Self::Cleared(cleared) => cleared.set(name, value),
            Self::Stats(stats) => stats.set(name, value),
            Self::Digest(digest) => digest.set(name, value),
        }
    }

    fn finish(self) -> Result<Event<'a>, Malformed> {
        match self {
            Self::Stored(stored) => Ok(Event::Stored(stored)),
            Self::Removed(removed) => Ok(Event::Removed(removed)),
            Self::Cleared(cleared) => cleared.check().map(Event::Cleared),
            Self::Stats(stats) => Ok(Event::Stats(stats)),
            Self::Digest(digest) => digest.check().map(Event::Digest),
        }
    }
}

impl<'a> Stored<'a> {
    fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match name {
            "block_hashes" => self.block_hashes = required("block_hashes", value)?,
            "parent_block_hash" => self.parent = Parent::of(value),
            "token_ids" => self.tokens = list("token_ids", value)?,
            "block_size" => self.block_size = lenient(value).unwrap_or(0),
            "lora_id" => self.lora_id = lenient(value),
            "lora_name" => self.lora_name = lenient(value),
            "extra_keys" => self.extra_keys = optional("extra_keys", value)?,
            "group_idx" => self.group = optional("group_idx", value)?,
            "kv_cache_spec_kind" => self.spec_kind = optional("kv_cache_spec_kind", value)?,
            "router_hashes" => self.router_hashes = list("router_hashes", value)?,
            "chunk" => self.chunk = chunk(value)?,
            "shard" => self.shard = shard(value)?,
            "reason" => self.reason = reason(value),
            // Known, and of no use: a window is refused by its kind.
            "kv_cache_spec_sliding_window" => {}
            _ => {
                return Ok(set_place(&mut self.place, name, value)?
                    || set_owner(&mut self.owner, &mut self.namespace, name, value)?);
            }
        }
        Ok(true)
    }

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

impl<'a> Removed<'a> {
    fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match name {
            "block_hashes" => self.block_hashes = required("block_hashes", value)?,
            "group_idx" => self.group = optional("group_idx", value)?,
            "router_hashes" => self.router_hashes = list("router_hashes", value)?,
            "chunk" => self.chunk = chunk(value)?,
            "shard" => self.shard = shard(value)?,
            "reason" => self.reason = reason(value),
            _ => {
                return Ok(set_place(&mut self.place, name, value)?
                    || set_owner(&mut self.owner, &mut self.namespace, name, value)?);
            }
        }
        Ok(true)
    }

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

impl<'a> Cleared<'a> {
    fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match name {
            // A scope that is not known covers everything: to forget is safe.
            "scope" => {
                let word = lenient::<&str>(value);
                let known = Scope::ALL.into_iter().find(|scope| Some(scope.as_str()) == word);
                self.scope = known.unwrap_or_default();
            }
            "tier" => self.tier = lenient::<&str>(value).and_then(CacheTier::parse),
            _ => return set_owner(&mut self.owner, &mut self.namespace, name, value),
        }
        Ok(true)
    }

    /// A clear of something that it does not name covers everything.
    #[expect(clippy::unnecessary_wraps, reason = "the same shape as the other events")]
    fn check(mut self) -> Result<Self, Malformed> {
        let is_named = match self.scope {
            Scope::All => true,
            Scope::Model => self.namespace.model.is_some(),
            Scope::Tier => self.tier.is_some(),
        };
        if !is_named {
            self.scope = Scope::All;
        }
        Ok(self)
    }

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

pub(super) fn set_owner<'a>(
    owner: &mut Owner<'a>,
    namespace: &mut Namespace<'a>,
    name: &str,
    value: Value<'a>,
) -> Result<bool, Malformed> {
    match name {
        "owner" => owner.id = optional("owner", value)?,
        "epoch" => owner.epoch = optional("epoch", value)?,
        "model" => namespace.model = optional("model", value)?,
        "compat_key" => namespace.compat_key = optional("compat_key", value)?,
        "engine" => namespace.engine = optional("engine", value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn set_place<'a>(place: &mut Place<'a>, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
    match name {
        "medium" => place.medium = optional("medium", value)?,
        "locality" => place.locality = optional("locality", value)?,
        "tier" => place.tier = optional("tier", value)?,
        _ => return Ok(false),
    }
    Ok(true)
}

fn chunk(value: Value<'_>) -> Result<Option<Chunk<'_>>, Malformed> {
    let Value::Map(items) = value else {
        return if value == Value::Nil { Ok(None) } else { wrong("chunk") };
    };
    let (mut key, mut blocks, mut bytes) = (None, 0, 0);
    let mut values = items.values();
    while let (Some(name), Some(value)) = (values.next(), values.next()) {
        match <&str>::from_value(name) {
            Some("key") => key = <&[u8]>::from_value(value),
            Some("n_blocks") => blocks = required("n_blocks", value)?,
            Some("bytes") => bytes = required("bytes", value)?,
            _ => {}
        }
    }
    let key = key.ok_or(Malformed::WrongType { field: "chunk" })?;
    Ok(Some(Chunk { key, blocks, bytes }))
}

fn shard(value: Value<'_>) -> Result<Option<Shard>, Malformed> {
    let Some(pair) = optional::<Array<'_, u32>>("shard", value)? else {
        return Ok(None);
    };
    let mut pair = pair.iter();
    let (Some(index), Some(count), None) = (pair.next(), pair.next(), pair.next()) else {
        return wrong("shard");
    };
    if index >= count {
        return Err(Malformed::BadValue { field: "shard" });
    }
    Ok(Some(Shard { index, count }))
}

fn reason(value: Value<'_>) -> Option<Reason> {
    let word = lenient::<&str>(value)?;
    Reason::ALL.into_iter().find(|reason| reason.as_str() == word)
}

fn wrong<T>(field: &'static str) -> Result<T, Malformed> {
    Err(Malformed::WrongType { field })
}

pub(super) fn required<'a, T: Wire<'a>>(
    field: &'static str,
    value: Value<'a>,
) -> Result<T, Malformed> {
    T::from_value(value).ok_or(Malformed::WrongType { field })
}

/// Nil is as good as absent; any other kind is an error.
pub(super) fn optional<'a, T: Wire<'a>>(
    field: &'static str,
    value: Value<'a>,
) -> Result<Option<T>, Malformed> {
    required(field, value)
}

/// Nil is as good as an empty list.
fn list<'a, T: Wire<'a>>(field: &'static str, value: Value<'a>) -> Result<Array<'a, T>, Malformed> {
    Ok(optional::<Array<'a, T>>(field, value)?.unwrap_or(Array::Slice(&[])))
}

/// Another kind is as good as absent.
fn lenient<'a, T: Wire<'a>>(value: Value<'a>) -> Option<T> {
    T::from_value(value)
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
