//! From names to entries.

use core::hash::BuildHasher;

use kvd_proto::block_key::Namespace;
use kvd_proto::events::Tally;

use super::{Entry, EntryId, Tablespace, WallTime};
use crate::rows::RowId;

impl Tablespace {
    /// Hash of a name: equal to the store's for the same seed.
    pub(crate) fn hash(&self, namespace: Namespace<'_>, key: &[u8]) -> u64 {
        self.hasher.hash_one((self.namespaces.hash(namespace), key))
    }

    /// The entry with this name, unless its time is over.
    pub(crate) fn find(
        &self,
        namespace: Namespace<'_>,
        key: &[u8],
        now: WallTime,
    ) -> Option<EntryId> {
        self.find_hashed(self.hash(namespace, key), namespace, key, now)
    }

    /// As [`Self::find`], for a name whose hash is known.
    pub(crate) fn find_hashed(
        &self,
        hash: u64,
        namespace: Namespace<'_>,
        key: &[u8],
        now: WallTime,
    ) -> Option<EntryId> {
        let id = self.index.find(hash, |&id| self.is_named(id, namespace, key))?;
        (!self.entry(id).is_expired(now)).then_some(id)
    }

    /// What is known of an entry.
    ///
    /// # Panics
    /// If there is no such entry.
    pub(crate) fn entry(&self, id: EntryId) -> &Entry {
        self.entries.at(id.0)
    }

    /// The entry, if there is one with this number.
    pub(crate) fn get(&self, id: EntryId) -> Option<&Entry> {
        self.entries.get(id.0)
    }

    /// Namespace of an entry.
    pub(crate) fn namespace_of(&self, id: EntryId) -> Namespace<'_> {
        let namespace = self.namespaces.at(self.entry(id).namespace);
        Namespace { model: &namespace.model, compat_key: &namespace.compat_key }
    }

    /// Byte offset on the device, and bytes of the block.
    pub(crate) fn range(&self, id: EntryId) -> (u64, u32) {
        let entry = self.entry(id);
        (self.space.payload_offset(entry.extent), entry.len_bytes)
    }

    /// Links an entry with its copy in the arena, or with [`RowId::NONE`].
    pub(crate) fn set_host(&mut self, id: EntryId, host: RowId) {
        self.entries.at_mut(id.0).host = host;
    }

    /// What the entries of a namespace add up to, if there are any; kept only for events.
    pub(crate) fn tally(&self, namespace: Namespace<'_>) -> Option<Tally> {
        let id = self.namespaces.find(namespace, self.namespaces.hash(namespace))?;
        Some(self.namespaces.at(id).tally)
    }

    /// All namespaces that have entries here.
    pub(crate) fn namespaces(&self) -> impl Iterator<Item = Namespace<'_>> {
        self.namespaces.iter().map(|(_, namespace)| Namespace {
            model: &namespace.model,
            compat_key: &namespace.compat_key,
        })
    }

    /// Entries with numbers from `from` on, in the order of their numbers.
    pub(crate) fn entries_from(&self, from: u32) -> impl Iterator<Item = (EntryId, &Entry)> {
        (from..self.entries.end())
            .filter_map(|number| self.entries.get(number).map(|entry| (EntryId(number), entry)))
    }

    /// One more than the largest number of an entry so far.
    pub(crate) const fn entries_end(&self) -> u32 {
        self.entries.end()
    }

    pub(super) fn hash_of(&self, id: EntryId) -> u64 {
        let entry = self.entry(id);
        let namespace = self.namespaces.at(entry.namespace).hash;
        self.hasher.hash_one((namespace, entry.key.as_bytes()))
    }

    fn is_named(&self, id: EntryId, namespace: Namespace<'_>, key: &[u8]) -> bool {
        self.entry(id).key() == key && self.namespace_of(id) == namespace
    }

    /// Enters an entry into the index.
    pub(super) fn enter(&mut self, id: EntryId, hash: u64) {
        let (entries, namespaces, hasher) = (&self.entries, &self.namespaces, &self.hasher);
        self.index.insert(hash, id, |&other| {
            let entry = entries.at(other.0);
            hasher.hash_one((namespaces.at(entry.namespace).hash, entry.key.as_bytes()))
        });
    }
}
