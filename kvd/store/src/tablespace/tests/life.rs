//! A tablespace beside a naive account of everything that ever happened to it.
#![expect(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

use std::collections::{BTreeMap, BTreeSet};

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use super::files::{Files, SPACE_BYTES, settings};
use crate::input::ClearScope;
use crate::rows::RowId;
use crate::space::ExtentId;
use crate::tablespace::journal::Reason;
use crate::tablespace::recovery::Report;
use crate::tablespace::snapshot::Pace;
use crate::tablespace::{
    EntryId, Gone, JournalWrite, NewEntry, NoRoom, SnapshotWrite, Tablespace, WallTime,
};

pub(super) const NAMESPACES: [Namespace<'static>; 3] = [
    Namespace { model: "one", compat_key: "tp1" },
    Namespace { model: "one", compat_key: "tp2" },
    Namespace { model: "two", compat_key: "" },
];

pub(super) const SCOPES: [ClearScope<'static>; 4] = [
    ClearScope::Everything,
    ClearScope::Model("one"),
    ClearScope::Namespace(NAMESPACES[1]),
    ClearScope::Namespace(NAMESPACES[2]),
];

/// Snapshots take many steps, so that much happens between them.
const PACE: Pace = Pace { step_entries: 3, steps: 1, segment_entries: 4, piece_bytes: 1 };

pub(super) type Name = (usize, Vec<u8>);

/// What is true of one entry for all time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) name: Name,
    start: u64,
    len_bytes: u32,
    checksum: u64,
    class: Retention,
    expires_at: WallTime,
    lineage: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) facts: Facts,
    /// The batch that says that it came.
    came_in: u64,
    /// The batch that says that it left, and whether that must never be lost.
    left_in: Option<(u64, Reason)>,
}

impl Told {
    pub(super) fn reason(&self) -> Option<Reason> {
        self.left_in.map(|(_, reason)| reason)
    }
}

#[derive(Debug)]
pub(super) struct Life {
    pub(super) tablespace: Tablespace,
    pub(super) files: Files,
    /// By generation.
    pub(super) told: BTreeMap<u64, Told>,
    pub(super) live: BTreeMap<Name, u64>,
    by_entry: BTreeMap<EntryId, u64>,
    pins: Vec<(ExtentId, u64)>,
    quarantined: BTreeSet<u64>,
    pub(super) now: u64,
    pub(super) refused: u32,
    pub(super) was_cut: bool,
    /// Power cuts that were tried during each write.
    pub(super) cuts_tried: Option<u32>,
}

pub(super) fn key_of(number: u8) -> Vec<u8> {
    let len = [8, 32, 64, 1, 256][usize::from(number) % 5];
    let mut key = vec![number; len];
    key[0] = number;
    key
}

impl Life {
    pub(super) fn new() -> Self {
        let mut tablespace = Tablespace::new(settings(1_000));
        tablespace.snapshots.pace = PACE;
        Self {
            tablespace,
            files: Files::new(),
            told: BTreeMap::new(),
            live: BTreeMap::new(),
            by_entry: BTreeMap::new(),
            pins: Vec::new(),
            quarantined: BTreeSet::new(),
            now: 1_000,
            refused: 0,
            was_cut: false,
            cuts_tried: None,
        }
    }

    pub(super) fn insert(
        &mut self,
        name: Name,
        len_bytes: u32,
        class: Retention,
        ttl: Option<u64>,
    ) {
        if self.live.contains_key(&name) {
            let id = self.entry_of(&name);
            self.remove(id, Reason::Superseded);
        }
        let extent = match self.tablespace.take_room(len_bytes, class) {
            Ok(extent) => extent,
            Err(NoRoom::Pending | NoRoom::Full) => {
                self.refused += 1;
                self.absorb();
                return;
            }
        };
        self.absorb();
        let start = self.tablespace.offset_of(extent);
        self.assert_unused(start, len_bytes);
        let generation = self.tablespace.generation() + 1;
        let expires_at = ttl.map_or(WallTime::NEVER, |ttl| WallTime(self.now + ttl));
        let lineage = generation.is_multiple_of(3).then(|| vec![7; 20]);
        let checksum = generation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let id = self.tablespace.insert(NewEntry {
            extent,
            namespace: NAMESPACES[name.0],
            key: &name.1,
            len_bytes,
            checksum,
            class,
            expires_at,
            generation,
            lineage: lineage.as_deref(),
            host: RowId::NONE,
        });
        let id = id.expect("a megabyte of snapshot is enough");
        let facts =
            Facts { name: name.clone(), start, len_bytes, checksum, class, expires_at, lineage };
        let came_in = self.tablespace.latest_sequence();
        self.told.insert(generation, Told { facts, came_in, left_in: None });
        self.live.insert(name, generation);
        self.by_entry.insert(id, generation);
        self.absorb();
    }

    fn assert_unused(&self, start: u64, len_bytes: u32) {
        let end = start + u64::from(len_bytes).max(1).next_multiple_of(4096);
        assert!(end <= SPACE_BYTES);
        let written = self.tablespace.written_sequence();
        for (generation, told) in &self.told {
            let in_use = self.live.get(&told.facts.name) == Some(generation)
                || told.left_in.is_some_and(|(sequence, _)| sequence > written)
                || self.pins.iter().any(|(_, pinned)| pinned == generation)
                || self.quarantined.contains(generation);
            let other = u64::from(told.facts.len_bytes).max(1).next_multiple_of(4096);
            let apart = end <= told.facts.start || told.facts.start + other <= start;
            assert!(!in_use || apart, "{generation} is overwritten too early");
        }
    }

    fn entry_of(&self, name: &Name) -> EntryId {
        let found = self.tablespace.find(NAMESPACES[name.0], &name.1, WallTime(0));
        found.expect("the account has it")
    }

    fn pick(&self, pick: usize) -> Option<EntryId> {
        let ids: Vec<_> = self.by_entry.keys().collect();
        (!ids.is_empty()).then(|| *ids[pick % ids.len()])
    }

    pub(super) fn remove_some(&mut self, pick: usize, reason: Reason) {
        if let Some(id) = self.pick(pick) {
            self.remove(id, reason);
        }
    }

    fn remove(&mut self, id: EntryId, reason: Reason) {
        let gone = self.tablespace.remove(id, reason);
        assert_eq!((gone.entry, gone.reason), (id, reason));
        self.left(gone);
    }

    fn absorb(&mut self) {
        let mut gone = Vec::new();
        self.tablespace.take_gone(&mut gone);
        gone.into_iter().for_each(|gone| self.left(gone));
    }

    fn left(&mut self, gone: Gone) {
        let generation = self.by_entry.remove(&gone.entry).expect("it left twice");
        let told = self.told.get_mut(&generation).unwrap();
        told.left_in = Some((self.tablespace.latest_sequence(), gone.reason));
        assert_eq!(self.live.remove(&told.facts.name), Some(generation));
        if gone.reason == Reason::Faulty {
            self.quarantined.insert(generation);
        }
    }

    pub(super) fn clear(&mut self, scope: ClearScope<'_>) {
        let below = self.tablespace.generation() + 1;
        let sequence = self.tablespace.begin_clear(scope, below);
        assert!(sequence > self.tablespace.written_sequence());
        let mut from = Some(0);
        while let Some(at) = from {
            from = self.tablespace.clear_slice(scope, below, at).1;
        }
        self.absorb();
        let covered =
            |name: &Name| scope.covers(NAMESPACES[name.0].model, NAMESPACES[name.0].compat_key);
        assert!(!self.live.keys().any(covered), "a clear left something");
    }

    pub(super) fn pin(&mut self, pick: usize) {
        if let Some(id) = self.pick(pick) {
            let extent = self.tablespace.pin(id);
            self.pins.push((extent, self.by_entry[&id]));
        }
    }

    pub(super) fn unpin(&mut self, pick: usize) {
        if !self.pins.is_empty() {
            let at = pick % self.pins.len();
            let (extent, _) = self.pins.swap_remove(at);
            self.tablespace.unpin(extent);
        }
    }

    pub(super) fn touch(&mut self, pick: usize) {
        if let Some(id) = self.pick(pick) {
            self.tablespace.touch(id);
        }
    }

    pub(super) fn promise(&mut self, pick: usize, window: u64) {
        if let Some(id) = self.pick(pick) {
            self.tablespace.promise(id, WallTime(self.now + window));
        }
    }

    pub(super) fn tick(&mut self, by: u64) {
        self.now += by;
        while self.tablespace.settle(WallTime(self.now)) {}
        self.absorb();
    }

    /// Writes one batch, if there is one.
    pub(super) fn write(&mut self, sync: bool, success: bool) -> bool {
        let Some(write) = self.tablespace.next_batch(sync) else {
            return false;
        };
        assert!(self.tablespace.next_batch(true).is_none(), "two writes at once");
        self.cut_during(|files| {
            files.write_journal(&JournalWrite { sync: false, ..write.clone() });
        });
        if success {
            self.files.write_journal(&write);
        }
        self.tablespace.batch_written(write.sequence, success);
        if success && write.sync {
            self.tablespace.synced(write.sequence);
        }
        true
    }

    /// Tries what is back if power goes during a write: every selection of what is not synced is
    /// lost, or many if there are too many.
    fn cut_during(&mut self, write: impl FnOnce(&mut Files)) {
        let Some(tried) = self.cuts_tried else {
            return;
        };
        let mut files = self.files.clone();
        write(&mut files);
        let unsynced = files.unsynced();
        let all = 1_u64 << unsynced.min(5);
        for number in 0..all {
            let some = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(tried);
            let lost = if unsynced <= 5 { number } else { some };
            let mut cut = files.clone();
            cut.cut_power(lost, number % 3 == 2);
            let (back, report) = cut.recover(settings(self.now), 1 << 20);
            assert_eq!(report.vitals_lost, 0, "{report:?}");
            self.judge(&back, self.tablespace.durable_sequence(), true);
        }
        self.cuts_tried = Some(tried + u32::try_from(all).unwrap());
    }

    /// A write whose sync, if it has one, does not happen.
    pub(super) fn write_without_end(&mut self) {
        if let Some(write) = self.tablespace.next_batch(true) {
            self.files.write_journal(&JournalWrite { sync: false, ..write });
        }
    }

    /// The same for a snapshot.
    pub(super) fn snapshot_without_end(&mut self) {
        if let Some(write) = self.tablespace.next_snapshot() {
            self.files.write_snapshot(&SnapshotWrite { sync: false, ..write });
        }
    }

    pub(super) fn snapshot(&mut self, success: bool) {
        if let Some(write) = self.tablespace.next_snapshot() {
            self.cut_during(|files| {
                files.write_snapshot(&SnapshotWrite { sync: false, ..write.clone() });
            });
            if success {
                self.files.write_snapshot(&write);
            }
            self.tablespace.snapshot_written(success);
        }
    }

    /// Everything that the account says is there, and nothing else.
    pub(super) fn check(&self) {
        self.tablespace.assert_consistent();
        assert_eq!(self.live.len(), self.by_entry.len());
        for (name, generation) in &self.live {
            let id = self.entry_of(name);
            assert_eq!(self.by_entry[&id], *generation);
            assert_eq!(facts_of(&self.tablespace, id), self.told[generation].facts);
            let now = WallTime(self.now);
            let found = self.tablespace.find(NAMESPACES[name.0], &name.1, now).is_some();
            assert_eq!(found, self.told[generation].facts.expires_at > now);
        }
    }

    /// What is back is something that came and did not leave as far as `known` batches say.
    /// With `whole` everything is back that came in those and has not left.
    pub(super) fn judge(&self, back: &Tablespace, known: u64, whole: bool) {
        back.assert_consistent();
        let mut names = BTreeSet::new();
        for (id, entry) in back.entries_from(0) {
            let told = self.told.get(&entry.generation()).expect("an entry was invented");
            let facts = facts_of(back, id);
            assert_eq!(facts, told.facts, "{} came back changed", entry.generation());
            assert!(facts.expires_at > WallTime(self.now), "an expired entry came back");
            if let Some((left_in, reason)) = told.left_in {
                let counts = whole || matches!(reason, Reason::Superseded | Reason::Cleared);
                assert!(!counts || left_in > known, "{} is {reason:?}", entry.generation());
            }
            assert!(names.insert(facts.name), "a name is there twice");
        }
        if whole {
            for (name, generation) in &self.live {
                let told = &self.told[generation];
                let expected = told.came_in <= known && told.facts.expires_at > WallTime(self.now);
                assert!(!expected || names.contains(name), "{generation} is lost");
            }
        }
    }

    /// Goes on with what came back.
    pub(super) fn go_on(&mut self, back: Tablespace, report: &Report) {
        assert_eq!(report.entries, u64::from(back.figures().entries as u32));
        self.tablespace = back;
        self.tablespace.snapshots.pace = PACE;
        self.pins.clear();
        self.quarantined.clear();
        self.live.clear();
        self.by_entry.clear();
        for (id, entry) in self.tablespace.entries_from(0) {
            let told = self.told.get_mut(&entry.generation()).unwrap();
            told.left_in = None;
            self.live.insert(told.facts.name.clone(), entry.generation());
            self.by_entry.insert(id, entry.generation());
        }
        // What did not come back is gone for good: its generation may be used again.
        let latest = self.tablespace.generation();
        self.told.retain(|&generation, _| generation <= latest);
        let live: BTreeSet<u64> = self.live.values().copied().collect();
        for (generation, told) in &mut self.told {
            if !live.contains(generation) {
                let reason = told.left_in.map_or(Reason::Evicted, |(_, reason)| reason);
                told.left_in = Some((0, reason));
            }
        }
    }
}

fn facts_of(tablespace: &Tablespace, id: EntryId) -> Facts {
    let entry = tablespace.entry(id);
    let namespace = tablespace.namespace_of(id);
    let (start, len_bytes) = tablespace.range(id);
    Facts {
        name: (
            NAMESPACES
                .iter()
                .position(|&other| other == namespace)
                .expect("a namespace was invented"),
            entry.key().to_vec(),
        ),
        start,
        len_bytes,
        checksum: entry.checksum(),
        class: entry.class(),
        expires_at: entry.expires_at(),
        lineage: entry.lineage().map(<[u8]>::to_vec),
    }
}
