//! Looking up many keys at once.
//!
//! At a million rows nearly every access to a row, its extent or its neighbours in the eviction
//! order misses the caches. One pass per key would wait for each miss in turn; here each kind of
//! access has a pass of its own over all keys, short enough for the processor to have many of
//! them under way at once. The passes called `foresee` only bring memory near.

use crate::keys::Keys;
use crate::lookup::Named;
use crate::rows::RowId;
use crate::store::Store;

/// Hash and row of each key of a batch; [`RowId::NONE`] for a key that is not stored.
pub(crate) type Lookups = Vec<(u64, RowId)>;

impl Store {
    /// Hash and row (or none) of every key. Rows may have expired.
    pub(crate) fn look_up(&self, named: Named, keys: Keys<'_>, into: &mut Lookups) {
        into.clear();
        keys.each(|key| {
            into.push((self.hash(named.hash, key), RowId::NONE));
            true
        });
        let Some(namespace) = named.id else {
            return;
        };
        for (hash, row) in into.iter_mut() {
            *row = self.index.likely(*hash).unwrap_or(RowId::NONE);
        }
        self.foresee_rows(into);
        let mut at = into.iter_mut();
        keys.each(|key| {
            if let Some((hash, row)) = at.next()
                && *row != RowId::NONE
                && !self.is_named(*row, namespace, key)
            {
                *row = self.find(namespace, *hash, key).unwrap_or(RowId::NONE);
            }
            true
        });
    }

    fn foresee_rows(&self, lookups: &Lookups) {
        let sum = rows_of(lookups).fold(0, |sum, row| sum ^ self.rows[row].len_bytes);
        core::hint::black_box(sum);
    }

    /// For whoever will pin or promise the rows.
    pub(crate) fn foresee_extents(&self, lookups: &Lookups) {
        let extents = rows_of(lookups).map(|row| self.rows[row].host_extent());
        let sum = extents.fold(0, |sum, extent| sum ^ self.space[extent].version());
        core::hint::black_box(sum);
    }

    /// For whoever will touch the rows.
    pub(crate) fn foresee_touches(&self, lookups: &Lookups) {
        let sum = rows_of(lookups).fold(0, |sum, row| sum ^ self.evict.foresee(row));
        core::hint::black_box(sum);
    }
}

fn rows_of(lookups: &Lookups) -> impl Iterator<Item = RowId> {
    lookups.iter().map(|&(_, row)| row).filter(|&row| row != RowId::NONE)
}
