//! Ids of pieces of text that were seen before, bounded in bytes.
//!
//! Two generations: new entries and used ones go into the young one; when that has half of the bytes, it becomes the old
//! one and what was old is forgotten. Texts are compared, not their hashes: the cache may forget, it does not lie.

use std::collections::HashMap;
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

/// What an entry costs beside its text and ids: two allocations with their counters, a slot in the table.
const ENTRY_BYTES: usize = 128;

type Table = HashMap<Box<str>, Arc<[u32]>, RandomState>;

/// Shared by every thread that tokenises for one model.
#[derive(Debug)]
pub(crate) struct Cache {
    generation_bytes_max: usize,
    generations: Mutex<Generations>,
}

#[derive(Debug, Default)]
struct Generations {
    young: Generation,
    old: Generation,
}

/// One table for pieces that a text begins with, and one for all others: a tokenizer may treat them differently.
#[derive(Debug, Default)]
struct Generation {
    first: Table,
    further: Table,
    bytes: usize,
}

impl Generation {
    fn table(&mut self, first: bool) -> &mut Table {
        if first { &mut self.first } else { &mut self.further }
    }
}

impl Cache {
    /// Holds at most about `bytes`; 0 holds nothing.
    pub(crate) fn new(bytes: usize) -> Self {
        Self { generation_bytes_max: bytes / 2, generations: Mutex::default() }
    }

    /// The ids of `text`, if they are known. `first`: the text stands at the beginning.
    pub(crate) fn get(&self, first: bool, text: &str) -> Option<Arc<[u32]>> {
        let mut generations = self.lock();
        if let Some(ids) = generations.young.table(first).get(text) {
            return Some(Arc::clone(ids));
        }
        let (text, ids) = generations.old.table(first).remove_entry(text)?;
        generations.old.bytes -= cost(&text, &ids);
        self.insert(&mut generations, first, text, Arc::clone(&ids));
        Some(ids)
    }

    /// Remembers the ids of `text`, unless it would fill a generation alone.
    pub(crate) fn put(&self, first: bool, text: &str, ids: Arc<[u32]>) {
        if cost(text, &ids) <= self.generation_bytes_max {
            self.insert(&mut self.lock(), first, text.into(), ids);
        }
    }

    /// Bytes held.
    pub(crate) fn bytes(&self) -> usize {
        let generations = self.lock();
        generations.young.bytes + generations.old.bytes
    }

    fn insert(&self, generations: &mut Generations, first: bool, text: Box<str>, ids: Arc<[u32]>) {
        let bytes = cost(&text, &ids);
        if generations.young.bytes + bytes > self.generation_bytes_max {
            generations.old = mem::take(&mut generations.young);
        }
        // Another thread may have put the same text, which has the same ids.
        if generations.young.table(first).insert(text, ids).is_none() {
            generations.young.bytes += bytes;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Generations> {
        self.generations.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn cost(text: &str, ids: &[u32]) -> usize {
    ENTRY_BYTES + text.len() + size_of_val(ids)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &Cache, text: &str) {
        cache.put(false, text, [7].into());
    }

    #[test]
    fn first_pieces_are_apart_from_others() {
        let cache = Cache::new(10_000);
        cache.put(true, "a", [1].into());
        assert_eq!(cache.get(true, "a").as_deref(), Some(&[1][..]));
        assert_eq!(cache.get(false, "a"), None);
    }

    #[test]
    fn what_is_used_outlives_what_is_not() {
        let cache = Cache::new(4000);
        put(&cache, "used");
        put(&cache, "unused");
        for number in 0..100 {
            put(&cache, &number.to_string());
            assert!(cache.get(false, "used").is_some(), "{number}");
            assert!(cache.bytes() <= 4000);
        }
        assert_eq!(cache.get(false, "unused"), None);
    }

    #[test]
    fn bytes_come_back_to_what_the_entries_cost() {
        let cache = Cache::new(4000);
        for _ in 0..3 {
            put(&cache, "same");
        }
        assert_eq!(cache.bytes(), cost("same", &[7]));
    }

    #[test]
    fn nothing_is_held_without_bytes_and_nothing_too_large() {
        let cache = Cache::new(0);
        put(&cache, "a");
        assert_eq!((cache.get(false, "a"), cache.bytes()), (None, 0));
        let cache = Cache::new(1000);
        put(&cache, &"a".repeat(500));
        assert_eq!(cache.bytes(), 0);
    }
}
