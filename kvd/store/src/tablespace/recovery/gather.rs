//! Everything that was read, before it is decided who stays.
#![warn(clippy::indexing_slicing)]

use core::hash::BuildHasher;

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use kvd_proto::block_key::{KEY_BYTES_MAX, NAMESPACE_PART_BYTES_MAX, Namespace};
use kvd_proto::lineage::LINEAGE_BYTES_MAX;

use crate::input::ClearScope;
use crate::namespaces::{NamespaceId, Namespaces};
use crate::rows::{Key, RowId};
use crate::slab::Slab;
use crate::space::ExtentId;
use crate::tablespace::entry::Lineage;
use crate::tablespace::format::{BLOCK_BYTES, NUMBER_END};
use crate::tablespace::journal::{Batch, Insert, Record, class_from_code};
use crate::tablespace::snapshot::ArchivedSegment;
use crate::tablespace::{Entry, EntryId, WallTime};

/// Where an entry begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) start: u64,
    pub(super) id: EntryId,
}

/// Entries in the order of their arrival, which is that of the eviction.
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) entries: Slab<Entry>,
    pub(super) places: Vec<Place>,
    pub(super) namespaces: Namespaces,
    /// Generations of entries that left.
    pub(super) removed: Generations,
    /// What was cleared, and below which generation.
    pub(super) clears: Vec<(Cleared, u64)>,
    pub(super) generation: u64,
    pub(super) malformed: u64,
    /// Entries of this generation and earlier ones may have been cleared or replaced.
    pub(super) doubtful: u64,
}

/// Scope of a clear.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cleared {
    Everything,
    Model(Box<str>),
    Namespace(Box<str>, Box<str>),
}

impl Cleared {
    fn new(scope: ClearScope<'_>) -> Self {
        match scope {
            ClearScope::Everything => Self::Everything,
            ClearScope::Model(model) => Self::Model(model.into()),
            ClearScope::Namespace(of) => Self::Namespace(of.model.into(), of.compat_key.into()),
        }
    }

    pub(super) fn covers(&self, namespace: Namespace<'_>) -> bool {
        match self {
            Self::Everything => true,
            Self::Model(model) => **model == *namespace.model,
            Self::Namespace(model, compat_key) => {
                **model == *namespace.model && **compat_key == *namespace.compat_key
            }
        }
    }
}

/// A set of generations.
#[derive(Debug)]
pub(super) struct Generations {
    table: HashTable<u64>,
    hasher: FixedState,
}

impl Generations {
    fn new(hasher: FixedState) -> Self {
        Self { table: HashTable::new(), hasher }
    }

    fn insert(&mut self, generation: u64) {
        let hash = self.hasher.hash_one(generation);
        if self.table.find(hash, |&other| other == generation).is_none() {
            let hasher = &self.hasher;
            self.table.insert_unique(hash, generation, |&other| hasher.hash_one(other));
        }
    }

    pub(super) fn contains(&self, generation: u64) -> bool {
        !self.table.is_empty()
            && self.table.find(self.hasher.hash_one(generation), |&g| g == generation).is_some()
    }
}

impl Gathered {
    pub(super) fn new(hash_seed: u64) -> Self {
        let hasher = FixedState::with_seed(hash_seed);
        Self {
            entries: Slab::new(),
            places: Vec::new(),
            namespaces: Namespaces::new(hasher.clone()),
            removed: Generations::new(hasher),
            clears: Vec::new(),
            generation: 0,
            malformed: 0,
            doubtful: 0,
        }
    }

    /// The records of a batch. If they are not all that was written, everything up to this batch
    /// is in doubt, and it tells so.
    pub(super) fn batch(&mut self, batch: &Batch<'_>) -> bool {
        let mut names = Names::default();
        let (mut all_known, mut vitals) = (true, 0_u64);
        let mut latest = batch.header.generation_before;
        for record in batch.records() {
            let Some(record) = record else {
                all_known = false;
                continue;
            };
            vitals += u64::from(record.is_vital());
            match record {
                Record::Namespace { number, model, compat_key } => {
                    all_known &= number as usize == names.names.len();
                    names.declare(Namespace { model, compat_key });
                }
                Record::Insert(insert) => {
                    latest = latest.max(insert.generation);
                    self.insert(&insert, &mut names);
                }
                Record::Remove { generation, .. } => {
                    self.generation = self.generation.max(generation);
                    self.removed.insert(generation);
                }
                Record::Clear { scope, below_generation } => self.clear(scope, below_generation),
            }
        }
        let said = u64::from(batch.header.vitals) + u64::from(batch.header.repeated);
        let is_whole = all_known && vitals == said;
        if !is_whole {
            self.doubtful = self.doubtful.max(latest);
        }
        is_whole
    }

    fn clear(&mut self, scope: ClearScope<'_>, below: u64) {
        self.generation = self.generation.max(below.saturating_sub(1));
        let scope = Cleared::new(scope);
        match self.clears.iter_mut().find(|(known, _)| *known == scope) {
            Some((_, bound)) => *bound = (*bound).max(below),
            None => self.clears.push((scope, below)),
        }
    }

    /// The entries of a segment; tells how many there are.
    pub(super) fn segment(&mut self, segment: &ArchivedSegment) -> u64 {
        let mut names = Names::default();
        for name in segment.names.iter() {
            names.declare(Namespace { model: &name.model, compat_key: &name.compat_key });
        }
        let mut blob = segment.blob.as_slice();
        for packed in segment.entries.iter() {
            let (key_len, lineage_len) =
                (usize::from(packed.key_bytes.to_native()), packed.lineage_bytes.to_native());
            let key = blob.split_off(..key_len);
            let lineage = usize::try_from(lineage_len).ok().and_then(|len| blob.split_off(..len));
            let (Some(key), Some(lineage), Some(class)) =
                (key, lineage, class_from_code(packed.class))
            else {
                self.malformed += 1;
                continue;
            };
            let insert = Insert {
                namespace: packed.name.to_native(),
                start: packed.start.to_native(),
                generation: packed.generation.to_native(),
                checksum: packed.checksum.to_native(),
                expires_at: WallTime(packed.expires_at.to_native()),
                len_bytes: packed.len_bytes.to_native(),
                class,
                key,
                lineage,
            };
            self.insert(&insert, &mut names);
        }
        segment.entries.len() as u64
    }

    fn insert(&mut self, insert: &Insert<'_>, names: &mut Names<'_>) {
        let bytes = u64::from(insert.len_bytes).max(1).next_multiple_of(BLOCK_BYTES);
        let sound = insert.start.is_multiple_of(BLOCK_BYTES)
            && insert.start.checked_add(bytes).is_some()
            && insert.generation < NUMBER_END
            && insert.key.len() <= KEY_BYTES_MAX
            && insert.lineage.len() <= LINEAGE_BYTES_MAX;
        let namespace =
            if sound { names.use_of(insert.namespace, &mut self.namespaces) } else { None };
        let Some(namespace) = namespace else {
            self.malformed += 1;
            return;
        };
        self.generation = self.generation.max(insert.generation);
        let lineage =
            (!insert.lineage.is_empty()).then(|| Box::new(Lineage(insert.lineage.into())));
        let id = EntryId(self.entries.insert(Entry {
            key: Key::new(insert.key),
            expires_at: insert.expires_at,
            generation: insert.generation,
            checksum: insert.checksum,
            lineage,
            namespace,
            extent: ExtentId::NONE,
            len_bytes: insert.len_bytes,
            host: RowId::NONE,
            promised_until: 0,
            class: insert.class,
            seen: 0,
        }));
        self.places.push(Place { start: insert.start, id });
    }
}

/// The names of one batch or segment, by their number in it.
#[derive(Debug, Default)]
struct Names<'a> {
    names: Vec<(Namespace<'a>, Option<NamespaceId>)>,
}

impl<'a> Names<'a> {
    fn declare(&mut self, name: Namespace<'a>) {
        self.names.push((name, None));
    }

    /// The namespace with this number, counted once more.
    fn use_of(&mut self, number: u32, namespaces: &mut Namespaces) -> Option<NamespaceId> {
        let (name, id) = self.names.get_mut(number as usize)?;
        if let Some(id) = *id {
            namespaces.add_row_to(id);
            return Some(id);
        }
        let within = name.model.len() <= NAMESPACE_PART_BYTES_MAX
            && name.compat_key.len() <= NAMESPACE_PART_BYTES_MAX;
        let hash = namespaces.hash(*name);
        if !within || (namespaces.is_full() && namespaces.find(*name, hash).is_none()) {
            return None;
        }
        *id = Some(namespaces.add_row(*name, hash));
        *id
    }
}
