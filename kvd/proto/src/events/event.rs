//! What an event says.

use super::block::{BlockHash, ExtraKeys, Parent, Token};
use super::figures::{Digest, Stats};
use super::place::{CacheTier, Place};
use crate::pack::Array;

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
    pub(super) const ALL: [Self; 5] =
        [Self::Evict, Self::Demote, Self::Promote, Self::Ttl, Self::Clear];

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
    pub(super) const ALL: [Self; 3] = [Self::All, Self::Model, Self::Tier];

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
