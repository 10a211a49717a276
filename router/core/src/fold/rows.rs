//! What a daemon holds of one namespace in one tier, row by row.

use core::hash::{Hash, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::{Equivalent, HashMap};
use kvd_proto::events::{CacheTier, Shard, Tally};

use super::families::Chunk;
use crate::index::Name;

/// Whose rows, in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct SpaceName<'a> {
    /// The pool, of rows in one.
    pub(super) pool: Option<&'a str>,
    pub(super) model: &'a str,
    pub(super) compat_key: &'a str,
    pub(super) tier: CacheTier,
}

/// The same, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SpaceKey {
    pub(super) pool: Option<Box<str>>,
    pub(super) model: Box<str>,
    pub(super) compat_key: Box<str>,
    pub(super) tier: CacheTier,
}

impl SpaceKey {
    pub(super) fn name(&self) -> SpaceName<'_> {
        let Self { pool, model, compat_key, tier } = self;
        SpaceName { pool: pool.as_deref(), model, compat_key, tier: *tier }
    }
}

impl From<SpaceName<'_>> for SpaceKey {
    fn from(name: SpaceName<'_>) -> Self {
        Self {
            pool: name.pool.map(Box::from),
            model: name.model.into(),
            compat_key: name.compat_key.into(),
            tier: name.tier,
        }
    }
}

impl Hash for SpaceKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.name().hash(state);
    }
}

impl Equivalent<SpaceKey> for SpaceName<'_> {
    fn equivalent(&self, key: &SpaceKey) -> bool {
        *self == key.name()
    }
}

/// A row: an entry of the daemon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// What it adds to the digest.
    pub(super) tally: Tally,
    /// What it is a part of, if that can be looked up.
    pub(super) part: Option<(Chunk, Shard)>,
    /// The last snapshot that had it.
    pub(super) generation: u32,
}

/// What names a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowKey<'a> {
    /// The key of a chunk.
    Chunk(&'a [u8]),
    /// The hash of the one block.
    Block(u64),
}

/// Rows of one namespace in one tier.
#[derive(Debug)]
pub(super) struct Rows {
    rows: HashMap<Arc<[u8]>, Row, FixedState>,
    /// By the names of chunks: their keys. Only in tiers from which the daemon reads ahead.
    keys: Option<HashMap<Name, Arc<[u8]>, FixedState>>,
    tally: Tally,
}

impl RowKey<'_> {
    fn with_bytes<T>(self, then: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Self::Chunk(key) => then(key),
            // Nine bytes with a mark in front: keys of chunks that look so are of blocks, or of nobody.
            Self::Block(bits) => {
                let [a, b, c, d, e, f, g, h] = bits.to_be_bytes();
                then(&[0, a, b, c, d, e, f, g, h])
            }
        }
    }
}

impl Rows {
    /// No rows yet, of this tier.
    pub(super) fn new(tier: CacheTier) -> Self {
        let is_read_ahead = matches!(tier, CacheTier::L3 | CacheTier::L4);
        let keys = is_read_ahead.then(HashMap::default);
        Self { rows: HashMap::default(), keys, tally: Tally::default() }
    }

    pub(super) const fn tally(&self) -> Tally {
        self.tally
    }

    /// Whether there is a row with the key of this chunk.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.rows.contains_key(key)
    }

    /// The key of a chunk, by its name.
    pub(super) fn key_of(&self, name: Name) -> Option<&Arc<[u8]>> {
        self.keys.as_ref()?.get(&name)
    }

    /// How many keys are known by names.
    pub(super) fn links(&self) -> usize {
        self.keys.as_ref().map_or(0, HashMap::len)
    }

    /// Puts a row in; returns the one that it takes the place of.
    pub(super) fn put(&mut self, key: RowKey<'_>, row: Row) -> Option<Row> {
        let before = key.with_bytes(|bytes| {
            let before = self.rows.remove_entry(bytes);
            let (bytes, before) = before
                .map_or_else(|| (Arc::from(bytes), None), |(known, before)| (known, Some(before)));
            if let Some(before) = &before {
                unlink(&mut self.keys, &bytes, before);
            }
            if let (Some(keys), RowKey::Chunk(_), Some((chunk, _))) =
                (&mut self.keys, key, row.part)
            {
                keys.insert(chunk.name, Arc::clone(&bytes));
            }
            self.rows.insert(bytes, row);
            before
        });
        if let Some(before) = before {
            self.tally.take_out(before.tally);
        }
        self.tally.add(row.tally);
        before
    }

    pub(super) fn take(&mut self, key: RowKey<'_>) -> Option<Row> {
        let (key, row) = key.with_bytes(|key| self.rows.remove_entry(key))?;
        unlink(&mut self.keys, &key, &row);
        self.tally.take_out(row.tally);
        Some(row)
    }

    /// Takes out what the last snapshot did not have.
    pub(super) fn sweep(&mut self, generation: u32) -> Vec<Row> {
        let Self { rows, keys, tally } = self;
        let gone = rows.extract_if(|_, row| row.generation != generation).map(|(key, row)| {
            unlink(keys, &key, &row);
            tally.take_out(row.tally);
            row
        });
        gone.collect()
    }

    pub(super) fn take_all(&mut self) -> Vec<Row> {
        self.tally = Tally::default();
        if let Some(keys) = &mut self.keys {
            keys.clear();
        }
        self.rows.drain().map(|(_, row)| row).collect()
    }
}

/// Forgets the key of a row by its name, unless another row has that name by now.
fn unlink(keys: &mut Option<HashMap<Name, Arc<[u8]>, FixedState>>, key: &Arc<[u8]>, row: &Row) {
    if let (Some(keys), Some((chunk, _))) = (keys, row.part)
        && keys.get(&chunk.name).is_some_and(|known| Arc::ptr_eq(known, key))
    {
        keys.remove(&chunk.name);
    }
}
