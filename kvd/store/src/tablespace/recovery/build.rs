//! Who stays of all that was read, and the tablespace that they make.
//!
//! Nothing here depends on the order in which things were read: an entry is named by its
//! generation, which is never used twice and grows with time. So a removal counts wherever it
//! stands, and of two entries that exclude each other the one with the larger generation was
//! the later one. Entries that are gone still exclude others: what they replaced was gone before.

use core::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};

use kvd_proto::block_key::Namespace;

use super::gather::{Gathered, Place};
use super::report::Report;
use crate::evict::Evict;
use crate::index::Index;
use crate::tablespace::format::BLOCK_BYTES;
use crate::tablespace::{Entry, EntryId, Tablespace, WallTime};

/// With fewer entries than this the index may as well grow by itself.
const RESERVED_FROM: u32 = 1 << 16;

/// What becomes of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Stays,
    Superseded,
    Overlapped,
    /// It was read twice, and this is the second time.
    Twin,
}

/// Fills an empty tablespace with what is alive.
pub(super) fn fill(tablespace: &mut Tablespace, mut gathered: Gathered, report: &mut Report) {
    let space_bytes = tablespace.settings.space_bytes;
    tablespace.generation = gathered.generation;
    report.generation_max = gathered.generation;
    report.dropped.malformed = gathered.malformed;
    gathered.places.sort_unstable();
    core::mem::swap(&mut tablespace.entries, &mut gathered.entries);
    core::mem::swap(&mut tablespace.namespaces, &mut gathered.namespaces);
    let mut fates = vec![Fate::Stays; tablespace.entries.end() as usize];
    settle_places(tablespace, &gathered.places, &mut fates);
    settle_names(tablespace, &mut fates);
    let mut judge = Judge::new(tablespace, &gathered);
    for number in 0..tablespace.entries.end() {
        let id = EntryId(number);
        let fate = fates[number as usize];
        if !judge.stays(tablespace.entry(id), fate, report) {
            drop_entry(tablespace, id, fate);
        }
    }
    place_all(tablespace, &gathered.places, space_bytes, report);
    order_all(tablespace);
    tablespace.name_bytes = tablespace.count_names();
    crowd_out(tablespace, report);
    report.entries = tablespace.entries.len().into();
    report.bytes = tablespace.payload_bytes;
}

const fn bytes_of(entry: &Entry) -> u64 {
    let len_bytes = entry.len_bytes as u64;
    let used = if len_bytes == 0 { 1 } else { len_bytes };
    used.next_multiple_of(BLOCK_BYTES)
}

/// Of entries that overlap, the latest counts: it found the others gone when it took their place.
/// That holds for what it overlaps even if a later one took its own place in turn.
fn settle_places(tablespace: &Tablespace, places: &[Place], fates: &mut [Fate]) {
    let mut rest = places;
    while let Some(first) = rest.first() {
        let mut reach = end_of(tablespace, first);
        let mut count = 1;
        while let Some(next) = rest.get(count).filter(|next| next.start < reach) {
            reach = reach.max(end_of(tablespace, next));
            count += 1;
        }
        let (heap, others) = rest.split_at(count);
        if count > 1 {
            settle_heap(tablespace, heap, fates);
        }
        rest = others;
    }
}

/// The same for places that hang together, in their order. Each is entered and left once.
fn settle_heap(tablespace: &Tablespace, heap: &[Place], fates: &mut [Fate]) {
    // Generation and end of what began before; the latest on top, also if it is overlapped.
    let mut begun = BinaryHeap::new();
    // Those of them that nothing is known to overlap, by generation.
    let mut standing = BTreeMap::new();
    for place in heap {
        let end = end_of(tablespace, place);
        let generation = tablespace.entry(place.id).generation;
        while begun.peek().is_some_and(|&(_, ended)| ended <= place.start) {
            begun.pop();
        }
        let later = standing.split_off(&generation);
        for (_, (ended, id)) in core::mem::replace(&mut standing, later) {
            if ended > place.start {
                overlapped(fates, id);
            }
        }
        if begun.peek().is_some_and(|&(latest, _)| latest >= generation) {
            overlapped(fates, place.id);
        } else {
            standing.insert(generation, (end, place.id));
        }
        begun.push((generation, end));
    }
}

fn end_of(tablespace: &Tablespace, place: &Place) -> u64 {
    place.start + bytes_of(tablespace.entry(place.id))
}

fn overlapped(fates: &mut [Fate], id: EntryId) {
    fates[id.0 as usize] = Fate::Overlapped;
}

/// Of entries with one name, the latest counts. Enters it into the index.
fn settle_names(tablespace: &mut Tablespace, fates: &mut [Fate]) {
    if tablespace.entries.len() >= RESERVED_FROM {
        tablespace.index = Index::with_room_for(tablespace.entries.len() as usize);
    }
    for number in 0..tablespace.entries.end() {
        let id = EntryId(number);
        let hash = tablespace.hash_of(id);
        let entry = tablespace.entry(id);
        let known = tablespace.index.find(hash, |&other| {
            let other = tablespace.entry(other);
            other.namespace == entry.namespace && other.key() == entry.key()
        });
        match known {
            None => tablespace.enter(id, hash),
            Some(known) => match tablespace.entry(known).generation.cmp(&entry.generation) {
                Ordering::Less => {
                    tablespace.index.replace(hash, known, id);
                    fates[known.0 as usize] = Fate::Superseded;
                }
                Ordering::Equal => fates[number as usize] = Fate::Twin,
                Ordering::Greater => fates[number as usize] = Fate::Superseded,
            },
        }
    }
}

/// Decides about one entry after the other.
struct Judge<'a> {
    gathered: &'a Gathered,
    now: WallTime,
    /// By number of the namespace: generations below are cleared.
    bounds: Vec<u64>,
}

impl<'a> Judge<'a> {
    fn new(tablespace: &Tablespace, gathered: &'a Gathered) -> Self {
        let mut bounds = Vec::new();
        if !gathered.clears.is_empty() {
            for (id, namespace) in tablespace.namespaces.iter() {
                let name = Namespace { model: &namespace.model, compat_key: &namespace.compat_key };
                let covering = gathered.clears.iter().filter(|(scope, _)| scope.covers(name));
                let bound = covering.map(|&(_, below)| below).max().unwrap_or(0);
                bounds.resize(id.0 as usize, 0);
                bounds.push(bound);
            }
        }
        Self { gathered, now: tablespace.settings.now, bounds }
    }

    fn stays(&mut self, entry: &Entry, fate: Fate, report: &mut Report) -> bool {
        let bound = self.bounds.get(entry.namespace.0 as usize).copied().unwrap_or(0);
        let dropped = &mut report.dropped;
        if fate == Fate::Twin {
            return false;
        }
        let count = if self.gathered.removed.contains(entry.generation) {
            &mut dropped.removed
        } else if entry.generation < bound {
            &mut dropped.cleared
        } else if fate == Fate::Superseded {
            &mut dropped.superseded
        } else if fate == Fate::Overlapped {
            &mut dropped.overlapping
        } else if entry.generation <= self.gathered.doubtful {
            &mut dropped.doubtful
        } else if entry.is_expired(self.now) {
            &mut dropped.expired
        } else {
            return true;
        };
        *count += 1;
        false
    }
}

fn drop_entry(tablespace: &mut Tablespace, id: EntryId, fate: Fate) {
    if matches!(fate, Fate::Stays | Fate::Overlapped) {
        let hash = tablespace.hash_of(id);
        tablespace.index.remove(hash, id);
    }
    let entry = tablespace.entries.remove(id.0);
    tablespace.namespaces.remove_row(entry.namespace);
}

/// Carves the places of those that stay out of the space.
fn place_all(tablespace: &mut Tablespace, places: &[Place], space_bytes: u64, report: &mut Report) {
    for &Place { start, id } in places {
        let Some(entry) = tablespace.entries.get(id.0) else {
            continue;
        };
        let bytes = bytes_of(entry);
        if start + bytes > space_bytes {
            report.dropped.outside += 1;
            drop_entry(tablespace, id, Fate::Stays);
            continue;
        }
        let class = entry.class;
        let extent = tablespace.space.append(start, bytes, id, class);
        tablespace.entries.at_mut(id.0).extent = extent;
    }
    tablespace.space.grow_to(space_bytes);
}

/// Orders, figures and times to live.
fn order_all(tablespace: &mut Tablespace) {
    for number in 0..tablespace.entries.end() {
        let id = EntryId(number);
        let Some(entry) = tablespace.entries.get(number) else {
            continue;
        };
        tablespace.order.insert(id, entry.class);
        tablespace.account(id);
    }
}

/// Evicts until a snapshot of everything has room again.
fn crowd_out(tablespace: &mut Tablespace, report: &mut Report) {
    while tablespace.snapshot_bytes() > tablespace.settings.snapshot_bytes_max
        && tablespace.evict_one(kvd_proto::retention::Retention::Long)
    {
        report.dropped.crowded += 1;
    }
    tablespace.gone.clear();
}
