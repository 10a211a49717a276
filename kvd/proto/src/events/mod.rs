//! Key-value cache events: what engines and the daemon publish, and what the daemon says of itself.
//!
//! Read in this order:
//! 1. [`block`] – hashes, parents and tokens of blocks, in each of their spellings;
//! 2. [`place`] – tiers, and the words that stand for them;
//! 3. [`event`] – one event, decoded from an array or a map, encoded as a map;
//! 4. [`batch`] – the payload of one message: `[timestamp, events, rank?]`;
//! 5. [`frames`] – the frames around a payload, live and replayed;
//! 6. [`snapshot`] – everything that a daemon holds, as one stream;
//! 7. [`figures`] – measured bandwidths, and the digest that finds what was never published;
//! 8. [`registration`] – the daemon's record in etcd;
//! 9. [`row`] – what all of these say of one entry of the daemon.
//!
//! Engines of many releases speak here, so the decoder is lenient: what it does not know it skips and counts, and a
//! bad event does not spoil its batch. It does not guess: a hash that cannot be read rejects its event, a parent that
//! cannot be read is unknown, and a medium without a meaning is no place.

pub mod batch;
pub mod block;
mod decode;
mod encode;
pub mod event;
pub mod figures;
pub mod frames;
pub mod place;
pub mod registration;
pub mod row;
pub mod snapshot;

pub use batch::{Batch, BatchWriter, Events, Skipped};
pub use block::{BlockHash, ExtraKeys, Parent, Token};
pub use event::{Chunk, Cleared, Event, Namespace, Owner, Reason, Removed, Scope, Shard, Stored};
pub use figures::{Digest, Stats, Tally, TierFigures};
pub use frames::{Live, Replayed};
pub use place::{CacheTier, Place};
pub use registration::{LoadPolicy, Registration, TierRecord};
pub use row::Row;
pub use snapshot::{SnapshotItem, SnapshotReader};
