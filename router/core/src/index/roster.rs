//! Which holders there are, and what each is worth.

use core::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use kvd_proto::events::CacheTier;

use super::name::Kind;

/// Most holders at once: 256 pages of devices, as many of lower tiers.
pub const HOLDERS_MAX: u32 = 1 << 15;

/// Number of a holder; reused after it was struck out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(u32);

impl HolderId {
    /// The page of 64 holders that it is on.
    pub(crate) fn page(self) -> u16 {
        u16::try_from(self.0 / u64::BITS).unwrap_or(u16::MAX)
    }

    /// Its bit on that page.
    pub(crate) const fn bit(self) -> u64 {
        1 << (self.0 % u64::BITS)
    }

    const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Who a holder belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// One rank of a worker.
    Rank {
        /// The worker.
        worker: Arc<str>,
        /// Its rank, 0 for a worker that is one target.
        rank: u32,
    },
    /// A host: all workers on it.
    Host {
        /// Its id.
        host: Arc<str>,
    },
    /// A pool, as one host sees it: all workers on hosts that can read the pool.
    Pool {
        /// The pool.
        pool: Arc<str>,
        /// The host that told.
        told_by: Arc<str>,
    },
}

/// A set of blocks that comes and goes as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// Whose.
    pub owner: Owner,
    /// Where.
    pub tier: CacheTier,
    /// Of which model.
    pub model: Arc<str>,
    /// What must be equal before blocks may be shared, without the numbers of ranks.
    pub family: Arc<str>,
    /// What its blocks are called.
    pub kind: Kind,
    /// Blocks that come and go together, at least 1; a chunk goes by its last block.
    pub stride: u32,
}

/// All holders at one moment.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    /// Changes with every change of the list.
    pub generation: u64,
    /// The holders, by id.
    pub holders: Vec<(HolderId, Holder)>,
}

#[derive(Debug, Default)]
struct Figures {
    credit: AtomicU32,
    blocks: AtomicU64,
    chunk_bytes: AtomicU64,
    tier: AtomicU32,
}

#[derive(Debug)]
pub(super) struct Register {
    figures: Box<[Figures]>,
    /// Ids that are not in use: devices, then lower tiers. Devices stay together, so that few pages name them all.
    free: Mutex<[BTreeSet<u32>; 2]>,
    roster: ArcSwap<Roster>,
    entries: [AtomicI64; CacheTier::ALL.len()],
}

const fn place_of(tier: CacheTier) -> usize {
    tier as usize - 1
}

impl Register {
    pub(super) fn new() -> Self {
        let half = HOLDERS_MAX / 2;
        Self {
            figures: (0..HOLDERS_MAX).map(|_| Figures::default()).collect(),
            free: Mutex::new([(0..half).collect(), (half..HOLDERS_MAX).collect()]),
            roster: ArcSwap::default(),
            entries: Default::default(),
        }
    }

    pub(super) fn open(&self, holder: Holder) -> Option<HolderId> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let [devices, lower] = &mut *free;
        let is_device = holder.tier == CacheTier::Device;
        let id = HolderId(if is_device { devices.pop_first()? } else { lower.pop_first()? });
        let figures = self.figures.get(id.index())?;
        figures.credit.store(1.0_f32.to_bits(), Ordering::Relaxed);
        figures.chunk_bytes.store(0, Ordering::Relaxed);
        figures.tier.store(holder.tier as u32, Ordering::Relaxed);
        self.change(|holders| {
            let at = holders.partition_point(|(other, _)| *other < id);
            holders.insert(at, (id, holder.clone()));
        });
        Some(id)
    }

    pub(super) fn close(&self, id: HolderId) {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        self.change(|holders| holders.retain(|(other, _)| *other != id));
        let [devices, lower] = &mut *free;
        let set = if id.0 < HOLDERS_MAX / 2 { devices } else { lower };
        set.insert(id.0);
    }

    /// Only under the lock of `free`.
    fn change(&self, change: impl Fn(&mut Vec<(HolderId, Holder)>)) {
        let mut roster = Roster::clone(&self.roster.load());
        roster.generation += 1;
        change(&mut roster.holders);
        self.roster.store(Arc::new(roster));
    }

    pub(super) fn roster(&self) -> Arc<Roster> {
        self.roster.load_full()
    }

    pub(super) fn set_credit(&self, id: HolderId, credit: f32) {
        if let Some(figures) = self.figures.get(id.index()) {
            figures.credit.store(credit.clamp(0.0, 1.0).to_bits(), Ordering::Relaxed);
        }
    }

    pub(super) fn credit(&self, id: HolderId) -> f32 {
        let figures = self.figures.get(id.index());
        figures.map_or(0.0, |figures| f32::from_bits(figures.credit.load(Ordering::Relaxed)))
    }

    pub(super) fn set_chunk_bytes(&self, id: HolderId, bytes: u64) {
        if let Some(figures) = self.figures.get(id.index()) {
            figures.chunk_bytes.store(bytes, Ordering::Relaxed);
        }
    }

    pub(super) fn chunk_bytes(&self, id: HolderId) -> u64 {
        let figures = self.figures.get(id.index());
        figures.map_or(0, |figures| figures.chunk_bytes.load(Ordering::Relaxed))
    }

    pub(super) fn count(&self, id: HolderId, change: i64) {
        let Some(figures) = self.figures.get(id.index()) else {
            return;
        };
        figures.blocks.fetch_add(change.cast_unsigned(), Ordering::Relaxed);
        let tier = figures.tier.load(Ordering::Relaxed) as usize;
        if let Some(entries) = self.entries.get(tier.wrapping_sub(1)) {
            entries.fetch_add(change, Ordering::Relaxed);
        }
    }

    pub(super) fn blocks_of(&self, id: HolderId) -> u64 {
        self.figures.get(id.index()).map_or(0, |figures| figures.blocks.load(Ordering::Relaxed))
    }

    pub(super) fn entries(&self, tier: CacheTier) -> u64 {
        let entries = self.entries.get(place_of(tier));
        let entries = entries.map_or(0, |entries| entries.load(Ordering::Relaxed));
        u64::try_from(entries).unwrap_or(0)
    }
}
