//! Entries come and go, and the journal hears of it.

use kvd_proto::block_key::Namespace;

use super::entry::Lineage;
use super::format::{BLOCK_BYTES, SEGMENT_BYTES, SEGMENT_ENTRIES, SEGMENTS_OFFSET};
use super::journal::{Insert, Reason, Record};
use super::{Entry, EntryId, Gone, NewEntry, Tablespace, WallTime};
use crate::evict::Evict;
use crate::input::ClearScope;
use crate::rows::Key;

/// Places in the table of entries that one slice of a clear looks at.
const VISITS: u32 = 2048;
/// Entries that one slice removes: that is the dearer part.
const REMOVALS: u64 = 128;

/// Most bytes that an entry has in a snapshot beside key and lineage.
const PACKED_BYTES: u64 = 56;
/// Most bytes that a name has beside its two parts, and a segment beside names and entries.
const NAME_BYTES: u64 = 24;
const SEGMENT_OVERHEAD_BYTES: u64 = 256;

/// Why an entry is not taken in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// What must be remembered of it has no room in a snapshot, and nothing may go for it.
    TooManyEntries,
    /// There are too many namespaces.
    TooManyNamespaces,
}

impl Tablespace {
    /// A block was written. Says so in the journal. Its extent is given back if it is refused.
    ///
    /// # Panics
    /// If there is an entry with this name, or the generation is not larger than all before.
    pub(crate) fn insert(&mut self, new: NewEntry<'_>) -> Result<EntryId, Refused> {
        assert!(new.generation > self.generation, "generations grow");
        let namespace_hash = self.namespaces.hash(new.namespace);
        if let Err(refused) = self.admit(&new, namespace_hash) {
            self.give_back(new.extent);
            return Err(refused);
        }
        self.generation = new.generation;
        let insert = Insert {
            namespace: 0,
            start: self.space.payload_offset(new.extent),
            generation: new.generation,
            checksum: new.checksum,
            expires_at: new.expires_at,
            len_bytes: new.len_bytes,
            class: new.class,
            key: new.key,
            lineage: new.lineage.unwrap_or_default(),
        };
        self.journal.push_insert(new.namespace.model, new.namespace.compat_key, insert);
        let namespace = self.namespaces.add_row(new.namespace, namespace_hash);
        let entry = Entry {
            key: Key::new(new.key),
            expires_at: new.expires_at,
            generation: new.generation,
            checksum: new.checksum,
            lineage: new.lineage.map(|lineage| Box::new(Lineage(lineage.into()))),
            namespace,
            extent: new.extent,
            len_bytes: new.len_bytes,
            host: new.host,
            promised_until: 0,
            class: new.class,
            seen: self.snapshots.mark,
        };
        let is_new_name = self.namespaces.at(namespace).rows == 1;
        self.name_bytes += if is_new_name { name_bytes(new.namespace) } else { 0 };
        let id = EntryId(self.entries.insert(entry));
        let hash = self.hash_of(id);
        let known = self.find_hashed(hash, new.namespace, new.key, WallTime(0));
        assert!(known.is_none(), "callers remove the older entry first");
        self.enter(id, hash);
        self.count_entry(id);
        self.tell_inserted(id);
        self.space.store(new.extent, id, new.class);
        self.order.insert(id, new.class);
        self.account(id);
        Ok(id)
    }

    /// Counts an entry that is in its place.
    pub(super) fn account(&mut self, id: EntryId) {
        let entry = self.entries.at(id.0);
        self.blob_bytes += blob_bytes(entry);
        self.payload_bytes += u64::from(entry.len_bytes);
        if entry.expires_at != WallTime::NEVER {
            self.expiries.insert((entry.expires_at.second(), id));
        }
        self.count_evictable(entry.extent);
    }

    /// Bytes of the names of all namespaces, counted anew.
    pub(super) fn count_names(&self) -> u64 {
        self.namespaces().map(name_bytes).sum()
    }

    /// Removes an entry and says so in the journal. The extent is free after that is written and
    /// nobody reads it any more; never before a restart if it was [`Reason::Faulty`].
    pub(crate) fn remove(&mut self, id: EntryId, reason: Reason) -> Gone {
        let entry = self.entry(id);
        let (start, generation) = (self.space.payload_offset(entry.extent), entry.generation);
        let sequence = self.journal.push(&Record::Remove { start, generation, reason });
        self.take_out(id, reason, sequence)
    }

    /// Removes an entry that nobody asked to remove.
    pub(super) fn remove_by_itself(&mut self, id: EntryId, reason: Reason) {
        let gone = self.remove(id, reason);
        self.gone.push(gone);
    }

    /// Takes what left by itself (evicted, expired, cleared) since the last call.
    pub(crate) fn take_gone(&mut self, into: &mut Vec<Gone>) {
        into.append(&mut self.gone);
    }

    /// Says in the journal that all entries of a scope are gone whose generation is less than
    /// `below`; [`Self::clear_slice`] follows. Tells the number of the batch that says it.
    pub(crate) fn begin_clear(&mut self, scope: ClearScope<'_>, below: u64) -> u64 {
        self.generation = self.generation.max(below.saturating_sub(1));
        self.journal.push(&Record::Clear { scope, below_generation: below })
    }

    /// Removes a slice of what [`Self::begin_clear`] announced, from the entry numbered `from` on.
    /// How many, and where the next slice begins, if there is one.
    pub(crate) fn clear_slice(
        &mut self,
        scope: ClearScope<'_>,
        below: u64,
        from: u32,
    ) -> (u64, Option<u32>) {
        let end = from.saturating_add(VISITS).min(self.entries.end());
        let (mut at, mut removed) = (from, 0);
        while at < end && removed < REMOVALS {
            let id = EntryId(at);
            at += 1;
            let Some(entry) = self.entries.get(id.0).filter(|entry| entry.generation < below)
            else {
                continue;
            };
            let namespace = self.namespaces.at(entry.namespace);
            if scope.covers(&namespace.model, &namespace.compat_key) {
                let gone = self.take_out(id, Reason::Cleared, self.journal.latest_sequence());
                self.gone.push(gone);
                removed += 1;
            }
        }
        self.leave_limbo(self.journal.written());
        (removed, (at < self.entries.end()).then_some(at))
    }

    /// Removes an entry whose end the batch with this number tells.
    fn take_out(&mut self, id: EntryId, reason: Reason, sequence: u64) -> Gone {
        self.tell_gone(id, reason);
        self.discount_entry(id);
        let hash = self.hash_of(id);
        self.index.remove(hash, id);
        let extent = self.entry(id).extent;
        let bytes = self.space[extent].bytes();
        if self.space[extent].promised() {
            self.promises.rows -= 1;
            self.promises.bytes -= bytes;
        } else {
            self.uncount_evictable(extent);
        }
        self.space.pin(extent);
        if reason == Reason::Faulty {
            self.quarantined_bytes += bytes;
        } else {
            self.limbo.push_back((sequence, extent));
            self.limbo_bytes += bytes;
        }
        self.space.let_go(extent);
        self.leave_order(id);
        let entry = self.entries.remove(id.0);
        if entry.expires_at != WallTime::NEVER {
            self.expiries.remove(&(entry.expires_at.second(), id));
        }
        self.blob_bytes -= blob_bytes(&entry);
        self.payload_bytes -= u64::from(entry.len_bytes);
        let namespace = self.namespaces.at(entry.namespace);
        if namespace.rows == 1 {
            let (model, compat_key) = (&*namespace.model, &*namespace.compat_key);
            self.name_bytes -= name_bytes(Namespace { model, compat_key });
        }
        self.namespaces.remove_row(entry.namespace);
        let Entry { host, class, len_bytes, .. } = entry;
        Gone { entry: id, host, hash, class, len_bytes, reason }
    }

    /// The batches up to this number are written: what waited for them is free.
    pub(super) fn leave_limbo(&mut self, written: u64) {
        while let Some((_, extent)) = self.limbo.pop_front_if(|(at, _)| *at <= written) {
            self.limbo_bytes -= self.space[extent].bytes();
            self.space.unpin(extent);
        }
    }

    /// Sees to it that one more entry can be remembered.
    fn admit(&mut self, new: &NewEntry<'_>, namespace_hash: u64) -> Result<(), Refused> {
        let is_new = self.namespaces.find(new.namespace, namespace_hash).is_none();
        if is_new && self.namespaces.is_full() {
            return Err(Refused::TooManyNamespaces);
        }
        let blob = (new.key.len() + new.lineage.map_or(0, <[u8]>::len)) as u64;
        loop {
            // The name may leave with a victim: count it in any case.
            let names = self.name_bytes + name_bytes(new.namespace);
            let entries = u64::from(self.entries.len()) + 1;
            let bytes = snapshot_bytes(entries, self.blob_bytes + blob, names);
            if bytes <= self.settings.snapshot_bytes_max {
                return Ok(());
            }
            if !self.evict_one(new.class) {
                return Err(Refused::TooManyEntries);
            }
        }
    }

    /// Most bytes that a snapshot of all entries has.
    pub(super) fn snapshot_bytes(&self) -> u64 {
        snapshot_bytes(self.entries.len().into(), self.blob_bytes, self.name_bytes)
    }
}

const fn snapshot_bytes(entries: u64, blob: u64, names: u64) -> u64 {
    let segments = entries / SEGMENT_ENTRIES as u64 + blob / SEGMENT_BYTES as u64 + 1;
    let each = names + SEGMENT_OVERHEAD_BYTES + BLOCK_BYTES;
    SEGMENTS_OFFSET + entries * PACKED_BYTES + blob + segments * each
}

const fn name_bytes(namespace: Namespace<'_>) -> u64 {
    NAME_BYTES + (namespace.model.len() + namespace.compat_key.len()) as u64
}

fn blob_bytes(entry: &Entry) -> u64 {
    (entry.key().len() + entry.lineage().map_or(0, <[u8]>::len)) as u64
}
