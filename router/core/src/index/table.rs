//! From the name of a block to the holders that have it.
//!
//! Open addressing, a slot is a tag and a word of bits. The tag is 48 bits of the name and the number of a *page* of 64
//! holders; a block that holders of several pages have takes several slots, one behind the other. A tag, once written,
//! stays until its shard is rebuilt, and a slot whose bits are all 0 counts for nothing. So a reader needs neither lock
//! nor version: it walks from tag to tag to the first slot never used. Writers of one shard take turns.
//!
//! A shard that fills up is built anew beside itself, without what counts for nothing, and put in its place; a reader
//! that is still in the old one sees what was true a moment ago.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::{ArcSwap, Guard};

use super::name::Name;
use super::roster::HolderId;

const SHARD_BITS: u32 = 8;
const SHARDS: usize = 1 << SHARD_BITS;
const TAG_BITS: u32 = 48;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const SLOTS_MIN: usize = 64;
/// Slots in use, of 8: beyond it the walks get long.
const FILL_MAX: usize = 5;
/// Longest walk. Names are hashes, so nobody gets here by chance.
const WALK_MAX: usize = 4096;

#[derive(Debug, Default)]
struct Slot {
    /// 0: never used.
    tag: AtomicU64,
    bits: AtomicU64,
}

#[derive(Clone, Debug)]
struct Shard {
    slots: Arc<[Slot]>,
}

/// What writers know of a shard.
#[derive(Debug)]
struct Fill {
    /// The one that readers find, too.
    shard: Shard,
    /// Slots with a tag.
    used: usize,
    /// Slots with bits.
    live: usize,
}

#[derive(Debug, Clone)]
struct Shards(Vec<Shard>);

#[derive(Debug)]
pub(super) struct Table {
    shards: ArcSwap<Shards>,
    fills: Vec<Mutex<Fill>>,
    slots: AtomicU64,
}

/// The table at one moment, for many look-ups.
#[derive(Debug)]
pub(super) struct Reading {
    shards: Guard<Arc<Shards>>,
}

const fn tag_of(name: Name, page: u16) -> u64 {
    let tag = (name.bits() & TAG_MASK) << 16 | page as u64;
    // The one tag that would look unused stands in for its neighbour.
    if tag == 0 { 1 << 16 } else { tag }
}

const fn shard_of(name: Name) -> usize {
    (name.bits() >> (u64::BITS - SHARD_BITS)) as usize
}

impl Shard {
    fn new(slots: usize) -> Self {
        Self { slots: (0..slots).map(|_| Slot::default()).collect() }
    }

    /// The slots that may hold `tag`, in the order of the walk.
    fn walk(&self, tag: u64) -> impl Iterator<Item = &Slot> {
        let mask = self.slots.len() - 1;
        let start = (tag >> 16) as usize & mask;
        let (front, back) = self.slots.split_at(start);
        back.iter().chain(front).take(WALK_MAX)
    }

    fn find(&self, tag: u64) -> Option<&Slot> {
        for slot in self.walk(tag) {
            match slot.tag.load(Ordering::Acquire) {
                0 => return None,
                found if found == tag => return Some(slot),
                _ => {}
            }
        }
        None
    }

    /// Puts a tag that is not there yet; only while nobody else writes. False if the walk is too long.
    fn put(&self, tag: u64, bits: u64) -> bool {
        let free = self.walk(tag).find(|slot| slot.tag.load(Ordering::Relaxed) == 0);
        if let Some(slot) = free {
            slot.bits.store(bits, Ordering::Relaxed);
            slot.tag.store(tag, Ordering::Release);
        }
        free.is_some()
    }

    /// The same without slots that count for nothing, large enough for half as many again.
    fn rebuilt(&self, live: usize) -> Self {
        let slots = (live * 8 / FILL_MAX * 3 / 2).next_power_of_two().max(SLOTS_MIN);
        let shard = Self::new(slots);
        for slot in self.slots.iter() {
            let bits = slot.bits.load(Ordering::Relaxed);
            if bits != 0 {
                shard.put(slot.tag.load(Ordering::Relaxed), bits);
            }
        }
        shard
    }
}

impl Table {
    pub(super) fn new() -> Self {
        let shards: Vec<_> = (0..SHARDS).map(|_| Shard::new(SLOTS_MIN)).collect();
        let fill = |shard| Mutex::new(Fill { shard: Shard::clone(shard), used: 0, live: 0 });
        Self {
            fills: shards.iter().map(fill).collect(),
            shards: ArcSwap::from_pointee(Shards(shards)),
            slots: AtomicU64::new((SHARDS * SLOTS_MIN) as u64),
        }
    }

    pub(super) fn reading(&self) -> Reading {
        Reading { shards: self.shards.load() }
    }

    /// Whether the bit is new; nothing if there is no room.
    pub(super) fn insert(&self, name: Name, id: HolderId) -> Option<bool> {
        let (number, tag, bit) = (shard_of(name), tag_of(name, id.page()), id.bit());
        let mut fill = self.fills.get(number)?.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = fill.shard.find(tag) {
            let before = slot.bits.fetch_or(bit, Ordering::Relaxed);
            fill.live += usize::from(before == 0);
            return Some(before & bit == 0);
        }
        if (fill.used + 1) * 8 > fill.shard.slots.len() * FILL_MAX {
            self.rebuild(number, &mut fill);
        }
        fill.shard.put(tag, bit).then(|| {
            fill.used += 1;
            fill.live += 1;
            true
        })
    }

    fn rebuild(&self, number: usize, fill: &mut Fill) {
        let rebuilt = fill.shard.rebuilt(fill.live + 1);
        self.slots.fetch_add(rebuilt.slots.len() as u64, Ordering::Relaxed);
        self.slots.fetch_sub(fill.shard.slots.len() as u64, Ordering::Relaxed);
        self.shards.rcu(|shards| {
            let mut shards = Shards::clone(shards);
            if let Some(slot) = shards.0.get_mut(number) {
                *slot = Shard::clone(&rebuilt);
            }
            shards
        });
        fill.used = fill.live;
        fill.shard = rebuilt;
    }

    /// Whether the bit was there.
    pub(super) fn remove(&self, name: Name, id: HolderId) -> bool {
        let (number, bit) = (shard_of(name), id.bit());
        let Some(fill) = self.fills.get(number) else {
            return false;
        };
        let mut fill = fill.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = fill.shard.find(tag_of(name, id.page()));
        let before = slot.map_or(0, |slot| slot.bits.fetch_and(!bit, Ordering::Relaxed));
        if before == bit {
            fill.live -= 1;
        }
        before & bit != 0
    }

    pub(super) fn contains(&self, name: Name, id: HolderId) -> bool {
        self.reading().bits(name, id.page()) & id.bit() != 0
    }

    /// Memory of the slots.
    pub(super) fn bytes(&self) -> u64 {
        self.slots.load(Ordering::Relaxed) * size_of::<Slot>() as u64
    }
}

impl Reading {
    fn bits(&self, name: Name, page: u16) -> u64 {
        let shard = self.shards.0.get(shard_of(name));
        let slot = shard.and_then(|shard| shard.find(tag_of(name, page)));
        slot.map_or(0, |slot| slot.bits.load(Ordering::Relaxed))
    }

    /// Brings the place where a block is looked up near the processor. Several at once wait for memory together, where
    /// look-ups, whose steps depend on what they read, would wait one after the other.
    pub(super) fn touch(&self, names: impl Iterator<Item = Name>) {
        let mut tags = 0;
        for name in names {
            if let Some(shard) = self.shards.0.get(shard_of(name)) {
                let home = (tag_of(name, 0) >> 16) as usize & (shard.slots.len() - 1);
                tags ^= shard.slots.get(home).map_or(0, |slot| slot.tag.load(Ordering::Relaxed));
            }
        }
        core::hint::black_box(tags);
    }

    /// Calls `each` with the page and the bits of every set of holders that has the block.
    pub(super) fn holders(&self, name: Name, mut each: impl FnMut(u16, u64)) {
        let wanted = tag_of(name, 0) >> 16;
        let Some(shard) = self.shards.0.get(shard_of(name)) else {
            return;
        };
        for slot in shard.walk(wanted << 16) {
            let tag = slot.tag.load(Ordering::Acquire);
            if tag == 0 {
                return;
            }
            if tag >> 16 == wanted {
                let [low, high, ..] = tag.to_le_bytes();
                each(u16::from_le_bytes([low, high]), slot.bits.load(Ordering::Relaxed));
            }
        }
    }
}
