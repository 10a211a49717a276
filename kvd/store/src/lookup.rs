//! From names to rows, and from rows that are not there to the reason.

use core::hash::BuildHasher;

use kvd_proto::block_key::Namespace;
use kvd_proto::miss::MissReason;

use crate::namespaces::NamespaceId;
use crate::rows::{Row, RowId};
use crate::store::Store;

/// Families exist among keys of this length only.
const FAMILY_KEY_BYTES: usize = 8;

/// A namespace as a request names it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) hash: u64,
    /// None while no row lives there.
    pub(crate) id: Option<NamespaceId>,
}

impl Store {
    pub(crate) fn named(&self, namespace: Namespace<'_>) -> Named {
        let hash = self.namespaces.hash(namespace);
        Named { hash, id: self.namespaces.find(namespace, hash) }
    }

    pub(crate) fn hash(&self, namespace_hash: u64, key: &[u8]) -> u64 {
        self.hasher.hash_one((namespace_hash, key))
    }

    pub(crate) fn row_hash(&self, row: &Row) -> u64 {
        self.hash(self.namespaces.at(row.namespace).hash, row.key.as_bytes())
    }

    /// The row with this name, expired or not.
    pub(crate) fn find(&self, namespace: NamespaceId, hash: u64, key: &[u8]) -> Option<RowId> {
        self.index.find(hash, |&id| self.is_named(id, namespace, key))
    }

    pub(crate) fn is_named(&self, id: RowId, namespace: NamespaceId, key: &[u8]) -> bool {
        let row = &self.rows[id];
        row.namespace == namespace && row.key.as_bytes() == key
    }

    /// The best explanation for a miss that the evidence gives.
    pub(crate) fn explain(&self, named: Named, hash: u64, key: &[u8]) -> MissReason {
        if let Some(reason) = self.evidence.removal(hash) {
            return reason;
        }
        match self.elsewhere(named, key) {
            Some(_) => MissReason::OtherNamespace,
            None => MissReason::NeverStored,
        }
    }

    /// Another namespace that holds the key.
    pub(crate) fn elsewhere(&self, named: Named, key: &[u8]) -> Option<NamespaceId> {
        self.evidence.elsewhere(self.hasher.hash_one(key)).find(|&other| {
            Some(other) != named.id
                && self.namespaces.get(other).is_some_and(|entry| {
                    self.find(other, self.hash(entry.hash, key), key).is_some()
                })
        })
    }

    /// Enters a new row into index, family and evidence.
    pub(crate) fn enter(&mut self, id: RowId, hash: u64) {
        let row = &self.rows[id];
        let key_hash = self.hasher.hash_one(row.key.as_bytes());
        self.evidence.stored(hash, key_hash, row.namespace);
        // The index hashes rows again when a shard grows.
        let (rows, namespaces, hasher) = (&self.rows, &self.namespaces, &self.hasher);
        self.index.insert(hash, id, |&other| {
            let row = &rows[other];
            hasher.hash_one((namespaces.at(row.namespace).hash, row.key.as_bytes()))
        });
        self.join_family(id);
        self.count_row(id);
    }

    /// Takes a row out of index and family.
    pub(crate) fn leave(&mut self, id: RowId, hash: u64) {
        self.discount_row(id);
        self.index.remove(hash, id);
        self.leave_family(id);
    }

    fn family_hash(&self, row: &Row) -> Option<u64> {
        let key = row.key.as_bytes();
        let family = (key.len() == FAMILY_KEY_BYTES).then(|| &key[..FAMILY_KEY_BYTES - 1])?;
        Some(self.hash(self.namespaces.at(row.namespace).model_hash, family))
    }

    fn join_family(&mut self, id: RowId) {
        let Some(hash) = self.family_hash(&self.rows[id]) else {
            return;
        };
        let Some(head) = self.families.find(hash, |&other| self.is_kin(id, other)) else {
            let (rows, namespaces, hasher) = (&self.rows, &self.namespaces, &self.hasher);
            self.families.insert(hash, id, |&other| {
                let row = &rows[other];
                let family = &row.key.as_bytes()[..FAMILY_KEY_BYTES - 1];
                hasher.hash_one((namespaces.at(row.namespace).model_hash, family))
            });
            let row = &mut self.rows[id];
            (row.kin_previous, row.kin_next) = (id, id);
            return;
        };
        let next = core::mem::replace(&mut self.rows[head].kin_next, id);
        self.rows[next].kin_previous = id;
        let row = &mut self.rows[id];
        (row.kin_previous, row.kin_next) = (head, next);
    }

    fn leave_family(&mut self, id: RowId) {
        let Some(hash) = self.family_hash(&self.rows[id]) else {
            return;
        };
        let (previous, next) = (self.rows[id].kin_previous, self.rows[id].kin_next);
        if next == id {
            self.families.remove(hash, id);
            return;
        }
        self.rows[previous].kin_next = next;
        self.rows[next].kin_previous = previous;
        if self.is_head_of_family(id) {
            self.families.replace(hash, id, next);
        }
    }

    /// Whether the table of families names this row.
    pub(crate) fn is_head_of_family(&self, id: RowId) -> bool {
        let hash = self.family_hash(&self.rows[id]);
        hash.is_some_and(|hash| self.families.find(hash, |&other| other == id).is_some())
    }

    fn is_kin(&self, one: RowId, other: RowId) -> bool {
        let (one, other) = (&self.rows[one], &self.rows[other]);
        let same = one.key.as_bytes()[..FAMILY_KEY_BYTES - 1]
            == other.key.as_bytes()[..FAMILY_KEY_BYTES - 1];
        same && (one.namespace == other.namespace
            || self.namespaces.at(one.namespace).model == self.namespaces.at(other.namespace).model)
    }
}
