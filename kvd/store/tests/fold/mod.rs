//! What somebody knows who only hears of changes, compared with what the store shows when it is asked.

use std::collections::{BTreeMap, BTreeSet};

use kvd_proto::block_key::Namespace;
use kvd_proto::events::{CacheTier, Tally};
use kvd_proto::lineage::Lineage;
use kvd_store::{
    DeviceId, EntryCursor, RowCursor, Store, TierBlock, TierChange, TierChanges, TierCursor,
};

/// Tier, model, compatibility key, key.
type Name = (CacheTier, String, String, Vec<u8>);
/// Length and lineage.
type What = (u32, Option<Vec<u8>>);

/// Everything that was told to be held.
#[derive(Debug, Default)]
pub(crate) struct Fold {
    held: BTreeMap<Name, What>,
}

impl Fold {
    /// Follows the changes of one input, and compares.
    pub(crate) fn follow(&mut self, store: &Store, changes: &TierChanges) {
        let mut untold = false;
        for change in changes.iter() {
            match change {
                TierChange::Stored(block) => drop(self.held.insert(name(&block), what(&block))),
                TierChange::Removed(block, _) => {
                    let known = self.held.remove(&name(&block)).is_some();
                    assert!(known || untold, "{change:?} was not held");
                }
                TierChange::Cleared(tier) => self.held.retain(|held, _| held.0 != tier),
                TierChange::Untold => untold = true,
                TierChange::Digest(..) => panic!("nobody asked for {change:?}"),
            }
        }
        if untold {
            self.look(store);
        }
        self.compare(store);
    }

    /// Begins anew with a look at everything.
    pub(crate) fn look(&mut self, store: &Store) {
        self.held = look(store, 3);
    }

    /// # Panics
    /// If something else is held than was told.
    pub(crate) fn compare(&self, store: &Store) {
        let names: Vec<&Name> = self.held.keys().collect();
        let listed = listed(store);
        assert!(names.iter().copied().eq(&listed), "told {names:#?}, but there is {listed:#?}");
        // Twins are one name with two values for a while.
        if store.tier_digest(Namespace { model: "", compat_key: "" }).l3.is_some() {
            assert_eq!(self.held, look(store, 1_000));
            self.compare_sums(store);
        }
    }

    fn compare_sums(&self, store: &Store) {
        let mut sums: BTreeMap<(CacheTier, &str, &str), Tally> = BTreeMap::new();
        for ((tier, model, compat_key, key), (_, lineage)) in &self.held {
            let lineage = lineage.as_ref().and_then(|bytes| Lineage::decode(bytes).ok());
            let hashes = lineage.iter().flat_map(|lineage| &lineage.engine_hashes);
            let hashes =
                hashes.map(|hash| hash.last_chunk().map_or(0, |last| u64::from_be_bytes(*last)));
            let sum = sums.entry((*tier, model, compat_key)).or_default();
            sum.add(Tally::of_row(hashes, key));
        }
        let names = sums.keys().map(|&(_, model, key)| (model.to_owned(), key.to_owned()));
        let mut left: BTreeSet<(String, String)> = names.collect();
        store.tier_namespaces(|namespace| {
            let digest = store.tier_digest(namespace);
            left.remove(&(namespace.model.to_owned(), namespace.compat_key.to_owned()));
            let sum = |tier| sums.get(&(tier, namespace.model, namespace.compat_key)).copied();
            assert_eq!(digest.l2, sum(CacheTier::L2).unwrap_or_default());
            assert_eq!(digest.l3, Some(sum(CacheTier::L3).unwrap_or_default()));
        });
        assert!(left.is_empty(), "{left:?} are not listed");
    }
}

fn name(block: &TierBlock<'_>) -> Name {
    let Namespace { model, compat_key } = block.namespace;
    (block.tier, model.into(), compat_key.into(), block.key.into())
}

fn what(block: &TierBlock<'_>) -> What {
    (block.len_bytes, block.lineage.map(<[u8]>::to_vec))
}

/// By slices, as for somebody who begins to listen.
fn look(store: &Store, slots: u32) -> BTreeMap<Name, What> {
    let mut found = TierChanges::default();
    let mut cursor = Some(TierCursor::default());
    while let Some(at) = cursor {
        cursor = store.tier_slice(at, slots, &mut found);
    }
    let blocks = found.iter().map(|change| match change {
        TierChange::Stored(block) => (name(&block), what(&block)),
        other => panic!("{other:?}"),
    });
    blocks.collect()
}

/// By the listings for operators.
fn listed(store: &Store) -> Vec<Name> {
    let mut names = Vec::new();
    let mut cursor = Some(RowCursor::default());
    while let Some(at) = cursor {
        let (rows, next) = store.rows(at, 1_000);
        names.extend(
            rows.into_iter().map(|row| (CacheTier::L2, row.model, row.compat_key, row.key)),
        );
        cursor = next;
    }
    for device in store.devices() {
        let mut cursor = Some(EntryCursor::default());
        while let Some(at) = cursor {
            let (entries, next) = store.entries(DeviceId(device.device.0), at, 1_000);
            let entries = entries.into_iter();
            names.extend(entries.map(|at| (CacheTier::L3, at.model, at.compat_key, at.key)));
            cursor = next;
        }
    }
    names.sort_unstable();
    names.dedup();
    names
}
