//! Everything the store knows about one device: which blocks are where, what makes room, and what
//! must be written so that a restart finds them again. No file is touched here: bytes to write are
//! handed out, bytes that were read are handed in.
//!
//! The truth is in memory. The [`journal`] says how it changed, a [`snapshot`] says now and then
//! what it was, and [`recovery`] makes a tablespace of both. What is written where, byte by byte,
//! and why no crash can make it lie, is in `docs/ondisk.md`.
//!
//! An extent is used again only after its entry's removal is written. An entry that is lost is a
//! miss; one that should be gone fails its checksum, unless the loss of its removal is noticed
//! before ([`journal`]).

mod bytes;
mod change;
mod check;
mod checksum;
mod entry;
mod format;
pub mod geometry;
mod hold;
pub mod image;
pub mod journal;
mod lookup;
pub mod offline;
pub mod recovery;
mod room;
mod settle;
pub mod snapshot;
mod superblock;
#[cfg(test)]
mod tests;
mod wall;
mod write;

use std::collections::{BTreeSet, VecDeque};

use foldhash::quality::FixedState;

pub(crate) use bytes::Reader;
pub(crate) use change::Refused;
pub(crate) use checksum::crc64;
pub(crate) use entry::{Entry, EntryId, Gone, NewEntry};
pub use format::{BLOCK_BYTES, FORMAT_VERSION, SEGMENTS_OFFSET};
pub(crate) use journal::JournalWrite;
pub(crate) use room::NoRoom;
pub(crate) use snapshot::SnapshotWrite;
pub use superblock::{SUPERBLOCK_BYTES, Superblock, SuperblockFault};
pub use wall::WallTime;

use crate::events::TierChanges;
use crate::evict::Lru;
use crate::index::Index;
use crate::namespaces::Namespaces;
use crate::promises::Promises;
use crate::room::Evictable;
use crate::slab::Slab;
use crate::space::{ExtentId, Layout, Search, Space, State};
use journal::{Journal, Position};
use snapshot::Snapshots;

/// What a tablespace must be told.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Tells the journals and snapshots of this device from those of others.
    pub tag: u64,
    /// Size of each journal file.
    pub journal_bytes: u64,
    /// Most bytes of a snapshot.
    pub snapshot_bytes_max: u64,
    /// Bytes of all containers that exist.
    pub space_bytes: u64,
    /// Bytes of all containers once they have grown; room is waited for until then.
    pub expected_bytes: u64,
    /// Seed of the index's hash function, the store's.
    pub hash_seed: u64,
    /// The wall clock.
    pub now: WallTime,
}

/// One device's contents. A pure value; lives behind the store's lock.
#[derive(Debug)]
pub struct Tablespace {
    settings: Settings,
    hasher: FixedState,
    pub(crate) entries: Slab<Entry>,
    index: Index<EntryId>,
    pub(crate) namespaces: Namespaces,
    space: Space<EntryId>,
    order: Lru<EntryId>,
    evictable: Evictable,
    promises: Promises<EntryId, u32>,
    /// Entries with a time to live, the next to end first. Nobody finds them beyond it, so they may leave
    /// a second late, and the set is half as large as with milliseconds.
    expiries: BTreeSet<(u32, EntryId)>,
    journal: Journal,
    snapshots: Snapshots,
    /// Extents that wait for a batch: its number, and who waits.
    limbo: VecDeque<(u64, ExtentId)>,
    limbo_bytes: u64,
    quarantined_bytes: u64,
    /// Entries that left by themselves, not yet told.
    gone: Vec<Gone>,
    payload_bytes: u64,
    /// Bytes of keys and lineages.
    blob_bytes: u64,
    /// Bytes of the names of all namespaces.
    name_bytes: u64,
    search: Search,
    victims: Vec<EntryId>,
    /// The latest generation of an entry or of a clear.
    generation: u64,
    /// Whether sums are kept and changes told.
    pub(crate) events: bool,
    /// What changed since the store took it, for events.
    pub(crate) changes: TierChanges,
}

/// What there is on a device at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Blocks.
    pub entries: u64,
    /// Their bytes.
    pub payload_bytes: u64,
    /// Bytes of all extents of entries.
    pub stored_bytes: u64,
    /// Bytes that can be taken at once.
    pub free_bytes: u64,
    /// Bytes that wait for the journal to say that they are free.
    pub limbo_bytes: u64,
    /// Bytes that failed and are left alone until a restart.
    pub quarantined_bytes: u64,
    /// Bytes of all of that and of what is being written.
    pub space_bytes: u64,
    /// Bytes of extents that were promised.
    pub promised_bytes: u64,
    /// Bytes that a snapshot would have.
    pub snapshot_bytes: u64,
}

impl Tablespace {
    /// An empty device: one whose files were just made.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        let first = Position {
            number: 1,
            offset: 0,
            sequence: 1,
            vitals: 0,
            vitals_at_start: 0,
            generation: 0,
        };
        let mut tablespace = Self::empty(settings, first);
        tablespace.space.grow_to(settings.space_bytes);
        tablespace
    }

    /// No entries and no space, with the journal at some place.
    fn empty(settings: Settings, position: Position) -> Self {
        Self {
            settings,
            hasher: FixedState::with_seed(settings.hash_seed),
            entries: Slab::new(),
            index: Index::new(),
            namespaces: Namespaces::new(FixedState::with_seed(settings.hash_seed)),
            space: Space::new(Layout::TABLESPACE),
            order: Lru::new(),
            evictable: Evictable::default(),
            promises: Promises::default(),
            expiries: BTreeSet::new(),
            journal: Journal::new(settings.tag, settings.journal_bytes, position),
            snapshots: Snapshots { complete: position.number, ..Snapshots::default() },
            limbo: VecDeque::new(),
            limbo_bytes: 0,
            quarantined_bytes: 0,
            gone: Vec::new(),
            payload_bytes: 0,
            blob_bytes: 0,
            name_bytes: 0,
            search: Search::default(),
            victims: Vec::new(),
            generation: 0,
            events: false,
            changes: TierChanges::default(),
        }
    }

    /// The latest generation that it knows of; new ones must be larger.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The seed that its hashes depend on.
    #[must_use]
    pub const fn hash_seed(&self) -> u64 {
        self.settings.hash_seed
    }

    /// What there is.
    #[must_use]
    pub fn figures(&self) -> Figures {
        Figures {
            entries: self.entries.len().into(),
            payload_bytes: self.payload_bytes,
            stored_bytes: self.space.bytes_in(State::Stored),
            free_bytes: self.space.bytes_in(State::Free),
            limbo_bytes: self.limbo_bytes,
            quarantined_bytes: self.quarantined_bytes,
            space_bytes: self.space.end(),
            promised_bytes: self.promises.bytes,
            snapshot_bytes: self.snapshot_bytes(),
        }
    }
}
