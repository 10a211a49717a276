//! Hash tables of item numbers in many small shards, so that growing one of them is never felt.
//! The keys stay in the items: callers bring equality and hashes.

use hashbrown::HashTable;

use crate::rows::RowId;
use crate::slab::Id;

/// At a million rows a shard holds about 250, and growing it takes some microseconds.
const SHARDS: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Index<I = RowId> {
    shards: Vec<HashTable<I>>,
}

impl<I: Id> Index<I> {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| HashTable::new()).collect() }
    }

    /// With room for so many items, so that none of the first ones is hashed again.
    pub(crate) fn with_room_for(items: usize) -> Self {
        let each = usize::try_from(items as u64 / SHARDS).unwrap_or(0);
        Self { shards: (0..SHARDS).map(|_| HashTable::with_capacity(each)).collect() }
    }

    pub(crate) fn find(&self, hash: u64, equal: impl FnMut(&I) -> bool) -> Option<I> {
        self.shards[Self::shard_of(hash)].find(hash, equal).copied()
    }

    /// Most likely what [`Self::find`] will find, or none if that will find nothing. Looks at no
    /// row: callers that have many keys let the memory accesses of all of them overlap.
    pub(crate) fn likely(&self, hash: u64) -> Option<I> {
        self.shards[Self::shard_of(hash)].find(hash, |_| true).copied()
    }

    /// `hash_of` must give for every row the hash that it was inserted with.
    pub(crate) fn insert(&mut self, hash: u64, row: I, hash_of: impl Fn(&I) -> u64) {
        self.shards[Self::shard_of(hash)].insert_unique(hash, row, hash_of);
    }

    /// # Panics
    /// If the row is not in the index under this hash.
    pub(crate) fn remove(&mut self, hash: u64, row: I) {
        let found = self.shards[Self::shard_of(hash)].find_entry(hash, |&other| other == row);
        let Ok(found) = found else {
            panic!("{row:?} is not in the index");
        };
        found.remove();
    }

    /// Puts `by` into the place of `row`; both have this hash.
    ///
    /// # Panics
    /// If `row` is not in the index under this hash.
    pub(crate) fn replace(&mut self, hash: u64, row: I, by: I) {
        let found = self.shards[Self::shard_of(hash)].find_mut(hash, |&other| other == row);
        let Some(found) = found else {
            panic!("{row:?} is not in the index");
        };
        *found = by;
    }

    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(HashTable::len).sum()
    }

    /// Which of its tables has what has this hash. Bits from the middle: the tables use those at both ends.
    pub(crate) fn shard_of(hash: u64) -> usize {
        usize::try_from((hash >> 32) % SHARDS).unwrap_or(0)
    }
}
