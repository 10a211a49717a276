//! From events to the index.
//!
//! A *view* is what the index knows from one publisher: [`EngineView`] of one rank of a worker, [`HostView`] of one
//! daemon. A view is changed by one thread. It takes payloads, keeps its part of the index up to date, and answers with
//! what it [`Need`]s: whoever does the I/O asks for a replay or a snapshot, and hands in what comes, or that nothing did.
//!
//! 1. [`sequence`] – numbers of messages: restarts, gaps, what is kept until a gap is closed;
//! 2. [`holding`] – the blocks of one holder, counted, and where they don't go back to a beginning;
//! 3. [`waiting`] – blocks whose parent has not been seen yet;
//! 4. [`engine`] – chains of an engine's events;
//! 5. [`doubt`] – when what a view knows is worth half; [`in_order`] – messages as they count, whoever sent them;
//! 6. [`rows`], [`families`] – what a daemon holds: row by row, and what of it is whole;
//! 7. [`host`] – a daemon's events: lives, moves, digests, snapshots;
//! 8. [`parking`] – views of workers that went, and may come back.
//!
//! **Invariant:** a block is in the index only while its last event said that it can be read, or while the view's credit
//! says that it may have missed one.

pub mod doubt;
pub mod engine;
mod families;
mod holding;
pub mod host;
mod in_order;
pub mod parking;
mod rows;
pub mod sequence;
mod waiting;

pub use doubt::Doubt;
pub use engine::{EngineSource, EngineView};
pub use host::{Ahead, HostSource, HostView, Keys};
pub use parking::Parking;
pub use sequence::Need;

/// A moment on the caller's clock, in milliseconds. Only differences count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(pub u64);

impl Moment {
    /// So many milliseconds later.
    #[must_use]
    pub const fn after(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}

/// What happened to a view, ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Events that said that blocks can be read.
    pub stored: u64,
    /// Events that said that blocks can no longer be read.
    pub removed: u64,
    /// Events that said that a place is empty.
    pub cleared: u64,
    /// Payloads and events that could not be read.
    pub malformed: u64,
    /// Events and fields of types that are not known.
    pub unknown: u64,
    /// Events that name a medium without a meaning.
    pub unknown_media: u64,
    /// Events that cannot give credit: windows, blocks on other hosts.
    pub not_credited: u64,
    /// Messages that are missing in a row.
    pub gaps: u64,
    /// Lives of the publisher after the first one.
    pub restarts: u64,
    /// Events whose block size is not the one in the worker's record.
    pub block_sizes: u64,
    /// Blocks whose tokens and hashes could not be paired.
    pub unpaired: u64,
    /// Blocks that nothing is known of but their hash.
    pub unresolved: u64,
    /// Events that waited for their parent in vain.
    pub orphaned: u64,
    /// Entries for which there was no room.
    pub turned_away: u64,
    /// Digests that were not equal.
    pub digest_mismatches: u64,
    /// Prefixes dropped because the engine did not have them.
    pub distrusted: u64,
}

/// Most entries of a map that a peer could fill without end.
const NAMES_MAX: usize = 4096;
