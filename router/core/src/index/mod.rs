//! Who holds which block, and where.
//!
//! A *holder* is a set of blocks that comes and goes as one: one rank's device memory, one host's tier of one model.
//! The index maps the name of a block to the set of its holders, as bits, 64 holders a word; so one look-up names all
//! of them.
//!
//! 1. [`name`] – what blocks and chunks are called;
//! 2. [`table`] – from a name to bits, read without waiting;
//! 3. [`roster`] – which holders there are, and what each is worth;
//! 4. [`cracks`] – where a holder's blocks may not go all the way back to the beginning of a prompt;
//! 5. [`fleet`] – the targets of a question, resolved to holders once per change of the roster;
//! 6. [`query`] – the question: per target the prefix on the device, per site the runs in lower tiers.

mod cracks;
pub mod fleet;
pub mod name;
pub mod query;
pub mod roster;
mod table;

use core::sync::atomic::{AtomicU64, Ordering};

use kvd_proto::events::CacheTier;

use cracks::Cracks;
pub(crate) use fleet::is_same_model;
pub use fleet::{Fleet, TargetSpec};
pub use name::{Kind, Name};
pub use query::{Answer, Chains, Query, Run};
use roster::Register;
pub use roster::{Holder, HolderId, Owner, Roster};
use table::Table;

/// How much the index may take, and from which fill on it turns away which tier.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Memory of the index and of what keeps it up to date, in bytes.
    pub bytes_max: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes_max: 2 << 30 }
    }
}

/// What a block costs besides its slot in the table: its part of the reverse maps, measured over 4 M blocks.
const REVERSE_BYTES: u64 = 80;
/// What it costs to find a chunk's key by its name: the name and a pointer in a table that is half full on average, and
/// the counts beside the key.
const LINK_BYTES: u64 = 64;

/// The index. Questions and changes may come from any thread at the same time; changes of one holder from one thread.
#[derive(Debug)]
pub struct Index {
    table: Table,
    register: Register,
    cracks: Cracks,
    /// Keys that views know by names.
    links: AtomicU64,
    budget: Budget,
}

impl Index {
    /// An empty index.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self {
            table: Table::new(),
            register: Register::new(),
            cracks: Cracks::new(),
            links: AtomicU64::new(0),
            budget,
        }
    }

    /// A view that knew so many keys by names knows another number of them.
    pub(crate) fn count_links(&self, before: usize, after: usize) {
        if before != after {
            // Wraps around, as the sum over all views is never below 0.
            self.links.fetch_add((after as u64).wrapping_sub(before as u64), Ordering::Relaxed);
        }
    }

    /// Enters a holder, with full credit and without blocks; nothing if there are too many.
    #[must_use]
    pub fn open(&self, holder: Holder) -> Option<HolderId> {
        self.register.open(holder)
    }

    /// Strikes a holder out. Its blocks have to be gone.
    pub fn close(&self, id: HolderId) {
        self.register.close(id);
    }

    /// All holders there are.
    #[must_use]
    pub fn roster(&self) -> std::sync::Arc<Roster> {
        self.register.roster()
    }

    /// What a holder's blocks are worth, 0 to 1.
    pub fn set_credit(&self, id: HolderId, credit: f32) {
        self.register.set_credit(id, credit);
    }

    /// See [`Index::set_credit`].
    #[must_use]
    pub fn credit(&self, id: HolderId) -> f32 {
        self.register.credit(id)
    }

    /// Length of one of the holder's chunks, in bytes, as last seen.
    pub fn set_chunk_bytes(&self, id: HolderId, bytes: u64) {
        self.register.set_chunk_bytes(id, bytes);
    }

    /// Notes that a holder has a block. Returns false, and notes nothing, if there is no room for it.
    pub fn insert(&self, id: HolderId, name: Name) -> bool {
        let Some(is_new) = self.table.insert(name, id) else {
            return false;
        };
        if is_new {
            self.register.count(id, 1);
        }
        true
    }

    /// Notes that a holder no longer has a block.
    pub fn remove(&self, id: HolderId, name: Name) {
        if self.table.remove(name, id) {
            self.register.count(id, -1);
        }
    }

    /// Whether a holder has a block.
    #[must_use]
    pub fn contains(&self, id: HolderId, name: Name) -> bool {
        self.table.contains(name, id)
    }

    pub(crate) fn mark_crack(&self, name: Name) {
        self.cracks.mark(name);
    }

    pub(crate) fn unmark_crack(&self, name: Name) {
        self.cracks.unmark(name);
    }

    /// Whether any block is marked as one before which something may be missing. Such blocks make questions slower.
    #[must_use]
    pub fn has_cracks(&self) -> bool {
        self.cracks.are_there()
    }

    /// Number of blocks of a holder.
    #[must_use]
    pub fn blocks_of(&self, id: HolderId) -> u64 {
        self.register.blocks_of(id)
    }

    /// Number of entries of a tier, over all holders.
    #[must_use]
    pub fn entries(&self, tier: CacheTier) -> u64 {
        self.register.entries(tier)
    }

    /// Memory in use, in bytes, with what keeps the index up to date.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let entries: u64 = CacheTier::ALL.into_iter().map(|tier| self.entries(tier)).sum();
        let links = self.links.load(Ordering::Relaxed);
        self.table.bytes() + entries * REVERSE_BYTES + links * LINK_BYTES
    }

    /// Whether another entry of this tier may come in. Lower tiers are turned away first.
    #[must_use]
    pub fn admits(&self, tier: CacheTier) -> bool {
        self.bytes() < percent(self.budget.bytes_max, admitted_percent(tier))
    }

    /// Whether a tier that was turned away may come back: there is room for twice what there is.
    #[must_use]
    pub fn has_plenty_for(&self, tier: CacheTier) -> bool {
        self.bytes() * 2 < percent(self.budget.bytes_max, admitted_percent(tier))
    }

    /// The tier whose entries have to go now, if any: the lowest one that has entries, while memory is beyond what its
    /// own tier may fill. Whoever keeps a holder of it up to date drops all its entries.
    #[must_use]
    pub fn must_shed(&self) -> Option<CacheTier> {
        let lowest = CacheTier::ALL.into_iter().rev().find(|tier| self.entries(*tier) > 0)?;
        let limit = percent(self.budget.bytes_max, admitted_percent(lowest) + SHED_ABOVE_PERCENT);
        (lowest != CacheTier::Device && self.bytes() > limit).then_some(lowest)
    }
}

/// Between turning away and throwing out, so that a tier does not come and go at its limit.
const SHED_ABOVE_PERCENT: u64 = 3;

/// Up to which fill a tier's entries come in.
const fn admitted_percent(tier: CacheTier) -> u64 {
    match tier {
        CacheTier::Device => 100,
        CacheTier::L2 => 94,
        CacheTier::L3 => 88,
        CacheTier::L4 => 80,
    }
}

const fn percent(whole: u64, part: u64) -> u64 {
    whole / 100 * part
}
