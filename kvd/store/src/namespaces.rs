//! Namespaces by number. A namespace exists while it holds a row; their number is bounded.

use core::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use kvd_proto::block_key::Namespace;
use kvd_proto::events::Tally;

use crate::slab::Slab;

/// Most namespaces that hold rows at once; a row of one more is refused.
pub(crate) const NAMESPACES_MAX: u32 = 65_536;

/// Number of a namespace. Reused after its last row left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NamespaceId(pub(crate) u32);

#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) model: Box<str>,
    pub(crate) compat_key: Box<str>,
    /// Hash of both parts; the base of the hashes of its keys.
    pub(crate) hash: u64,
    /// Hash of the model alone; the base of the hashes of families.
    pub(crate) model_hash: u64,
    pub(crate) rows: u32,
    /// What they add up to; kept only for events.
    pub(crate) tally: Tally,
}

impl Entry {
    fn is(&self, namespace: Namespace<'_>) -> bool {
        *self.model == *namespace.model && *self.compat_key == *namespace.compat_key
    }
}

#[derive(Debug)]
pub(crate) struct Namespaces {
    entries: Slab<Entry>,
    by_name: HashTable<NamespaceId>,
    hasher: FixedState,
}

impl Namespaces {
    pub(crate) fn new(hasher: FixedState) -> Self {
        Self { entries: Slab::new(), by_name: HashTable::new(), hasher }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.entries.len()
    }

    pub(crate) fn hash(&self, namespace: Namespace<'_>) -> u64 {
        self.hasher.hash_one((namespace.model, namespace.compat_key))
    }

    pub(crate) fn at(&self, id: NamespaceId) -> &Entry {
        self.entries.at(id.0)
    }

    pub(crate) fn get(&self, id: NamespaceId) -> Option<&Entry> {
        self.entries.get(id.0)
    }

    pub(crate) fn tally_mut(&mut self, id: NamespaceId) -> &mut Tally {
        &mut self.entries.at_mut(id.0).tally
    }

    pub(crate) fn find(&self, namespace: Namespace<'_>, hash: u64) -> Option<NamespaceId> {
        self.by_name.find(hash, |&id| self.at(id).is(namespace)).copied()
    }

    /// Whether one more namespace would be one too many.
    pub(crate) const fn is_full(&self) -> bool {
        self.entries.len() >= NAMESPACES_MAX
    }

    /// Counts one more row in `namespace`, which comes into being if need be.
    pub(crate) fn add_row(&mut self, namespace: Namespace<'_>, hash: u64) -> NamespaceId {
        let id = self.find(namespace, hash).unwrap_or_else(|| self.insert(namespace, hash));
        self.entries.at_mut(id.0).rows += 1;
        id
    }

    /// A namespace that is about to get rows, with a number beyond all others so far.
    pub(crate) fn insert_at(&mut self, id: NamespaceId, namespace: Namespace<'_>) {
        let hash = self.hash(namespace);
        let entry = self.entry(namespace, hash);
        self.entries.insert_at(id.0, entry);
        self.by_name.insert_unique(hash, id, |&id| self.entries.at(id.0).hash);
    }

    /// Counts one more row in a namespace that has some.
    pub(crate) fn add_row_to(&mut self, id: NamespaceId) {
        self.entries.at_mut(id.0).rows += 1;
    }

    /// Counts one row less; the last one takes the namespace with it. Whether it was that.
    pub(crate) fn remove_row(&mut self, id: NamespaceId) -> bool {
        let entry = self.entries.at_mut(id.0);
        assert!(entry.rows > 0, "a namespace without rows exists");
        entry.rows -= 1;
        let is_last = entry.rows == 0;
        if is_last {
            let hash = entry.hash;
            let Ok(found) = self.by_name.find_entry(hash, |&other| other == id) else {
                panic!("{id:?} is not listed");
            };
            found.remove();
            self.entries.remove(id.0);
        }
        is_last
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (NamespaceId, &Entry)> {
        self.entries.iter().map(|(index, entry)| (NamespaceId(index), entry))
    }

    fn insert(&mut self, namespace: Namespace<'_>, hash: u64) -> NamespaceId {
        assert!(!self.is_full(), "callers refuse before");
        let entry = self.entry(namespace, hash);
        let id = NamespaceId(self.entries.insert(entry));
        self.by_name.insert_unique(hash, id, |&id| self.entries.at(id.0).hash);
        id
    }

    fn entry(&self, namespace: Namespace<'_>, hash: u64) -> Entry {
        Entry {
            model: namespace.model.into(),
            compat_key: namespace.compat_key.into(),
            hash,
            model_hash: self.hasher.hash_one(namespace.model),
            rows: 0,
            tally: Tally::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Namespaces;
    use foldhash::quality::FixedState;
    use kvd_proto::block_key::Namespace;

    #[test]
    fn a_namespace_lives_as_long_as_its_rows() {
        let mut all = Namespaces::new(FixedState::with_seed(1));
        let one = Namespace { model: "ab", compat_key: "c" };
        let other = Namespace { model: "a", compat_key: "bc" };
        let (hash, other_hash) = (all.hash(one), all.hash(other));
        assert_ne!(hash, other_hash);
        let id = all.add_row(one, hash);
        assert_eq!(all.add_row(one, hash), id);
        assert_ne!(all.add_row(other, other_hash), id);
        all.remove_row(id);
        assert_eq!(all.find(one, hash), Some(id));
        all.remove_row(id);
        assert_eq!(all.find(one, hash), None);
        assert_eq!(all.len(), 1);
    }
}
