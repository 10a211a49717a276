//! A snapshot as it is written: a walk through all entries, a few at a time, while they go on
//! changing. What the walk misses or has too much of, the journal with the same number says.
//!
//! The walk goes from the lowest class to the highest and from cold to warm, so that the order
//! of eviction survives. Who is used meanwhile moves ahead of the walk; who came after its
//! beginning is in the journal and is left out.

mod head;
mod reader;
mod segment;

use kvd_proto::retention::Retention;

pub use head::SnapshotHead;
pub(super) use reader::{SegmentItem, SegmentReader};
pub(super) use segment::ArchivedSegment;
use segment::Draft;

use super::format::{SEGMENT_ENTRIES, SEGMENTS_OFFSET};
use super::journal::half_of;
use super::{EntryId, Tablespace};
use crate::disk::Half;
use crate::evict::Evict;

/// In how small parts a snapshot is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Entries that one step looks at.
    pub(super) step_entries: u32,
    /// Steps of one call.
    pub(super) steps: u32,
    /// Entries of a segment.
    pub(super) segment_entries: usize,
    /// Segments are written together once they have this many bytes.
    pub(super) piece_bytes: usize,
}

impl Default for Pace {
    /// A step takes some ten microseconds.
    fn default() -> Self {
        Self { step_entries: 128, steps: 4, segment_entries: SEGMENT_ENTRIES, piece_bytes: 1 << 20 }
    }
}

/// What one step of a snapshot gave.
#[derive(Debug, PartialEq, Eq)]
enum SnapshotStep {
    /// There is nothing to do until a write ends or a new snapshot is due.
    Idle,
    /// There is more to do at once.
    More,
    /// This must be written.
    Write(SnapshotWrite),
}

/// One write to a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SnapshotWrite {
    pub(crate) half: Half,
    pub(crate) offset: u64,
    /// Whole blocks.
    pub(crate) bytes: Vec<u8>,
    /// The file is to be synced after it.
    pub(crate) sync: bool,
}

/// A snapshot under way.
#[derive(Debug)]
pub(super) struct Walk {
    number: u64,
    stage: Stage,
    writing: bool,
    class: usize,
    /// The next entry of the class.
    next: Option<EntryId>,
    /// Entries that are still to be looked at.
    unseen: u32,
    draft: Draft,
    piece: Vec<u8>,
    offset: u64,
    entries: u64,
    segments: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Walking,
    /// All segments were handed out.
    Segments,
    /// The head was.
    Head,
}

/// How far snapshots are.
#[derive(Debug, Default)]
pub(super) struct Snapshots {
    pub(super) walk: Option<Walk>,
    /// Number of the latest complete one.
    pub(super) complete: u64,
    /// One was asked for.
    pub(super) asked: bool,
    /// Journals up to this number have damage that a snapshot makes irrelevant.
    pub(super) damaged: u64,
    /// Mark of the entries that the latest walk has seen or need not see.
    pub(super) mark: u8,
    pub(super) pace: Pace,
}

impl Tablespace {
    /// Asks for a snapshot as soon as one can be begun: for a planned stop.
    pub(crate) const fn ask_snapshot(&mut self) {
        self.snapshots.asked = true;
    }

    /// Whether everything is in a complete snapshot or in the journal that continues it, and no
    /// snapshot is under way or due.
    pub(crate) fn is_settled(&self) -> bool {
        let complete = self.snapshots.complete == self.journal.number();
        complete && self.snapshots.walk.is_none() && !self.is_turn_due()
    }

    /// Whether the journal has no room until the snapshot is complete.
    pub(crate) fn is_stalled(&self) -> bool {
        self.journal.is_full() && self.snapshots.complete != self.journal.number()
    }

    /// Goes on with a snapshot for a while, begins one if that is due. None also if there is more
    /// to do at once: see [`Self::has_snapshot_work`].
    pub(crate) fn next_snapshot(&mut self) -> Option<SnapshotWrite> {
        for _ in 0..self.snapshots.pace.steps {
            match self.snapshot_step() {
                SnapshotStep::Idle => return None,
                SnapshotStep::More => {}
                SnapshotStep::Write(write) => return Some(write),
            }
        }
        None
    }

    /// Whether [`Self::next_snapshot`] has something to do at once.
    pub(crate) fn has_snapshot_work(&self) -> bool {
        match &self.snapshots.walk {
            Some(walk) => !walk.writing,
            None => self.snapshots.complete != self.journal.number(),
        }
    }

    /// Goes on with a snapshot, begins one if that is due.
    fn snapshot_step(&mut self) -> SnapshotStep {
        self.turn_over_if_due();
        if self.snapshots.walk.is_none() {
            if self.snapshots.complete == self.journal.number() {
                return SnapshotStep::Idle;
            }
            self.begin_walk();
        }
        let Some(mut walk) = self.snapshots.walk.take_if(|walk| !walk.writing) else {
            return SnapshotStep::Idle;
        };
        let step = match walk.stage {
            Stage::Walking => self.walk_on(&mut walk),
            Stage::Segments | Stage::Head => SnapshotStep::Write(self.head_of(&mut walk)),
        };
        walk.writing = matches!(step, SnapshotStep::Write(_));
        self.snapshots.walk = Some(walk);
        step
    }

    /// The latest write of a snapshot ended. If it failed, the snapshot begins anew.
    ///
    /// # Panics
    /// If none is under way.
    pub(crate) fn snapshot_written(&mut self, success: bool) {
        let walk = self.snapshots.walk.take();
        let Some(mut walk) = walk.filter(|walk| walk.writing) else {
            panic!("a write of a snapshot ended that was not asked for");
        };
        if !success {
            return;
        }
        if walk.stage == Stage::Head {
            self.snapshots.complete = walk.number;
            return;
        }
        walk.writing = false;
        self.snapshots.walk = Some(walk);
    }

    /// Whether the journal should go on in the other file.
    pub(super) fn is_turn_due(&self) -> bool {
        let number = self.journal.number();
        let is_wanted = self.journal.is_over_half()
            || self.journal.is_full()
            || self.snapshots.asked
            || number <= self.snapshots.damaged;
        is_wanted && self.snapshots.walk.is_none() && self.snapshots.complete == number
    }

    /// Goes on in the other journal once all of this one is durable.
    pub(super) fn turn_over_if_due(&mut self) {
        let ready = !self.journal.is_writing() && self.journal.is_durable();
        if ready && self.is_turn_due() {
            self.journal.turn_over();
            self.begin_walk();
        }
    }

    fn begin_walk(&mut self) {
        self.snapshots.asked = false;
        self.snapshots.mark = self.snapshots.mark.wrapping_add(1);
        self.snapshots.walk = Some(Walk {
            number: self.journal.number(),
            stage: Stage::Walking,
            writing: false,
            class: 0,
            next: self.order.coldest(Retention::ALL[0]),
            unseen: self.entries.len(),
            draft: Draft::default(),
            piece: Vec::new(),
            offset: SEGMENTS_OFFSET,
            entries: 0,
            segments: 0,
        });
    }

    fn walk_on(&mut self, walk: &mut Walk) -> SnapshotStep {
        for _ in 0..self.snapshots.pace.step_entries {
            if walk.unseen == 0 {
                break;
            }
            if let Some(id) = walk.next {
                walk.next = self.order.warmer(id);
                self.look_at(id, walk);
            } else {
                walk.class += 1;
                assert!(walk.class < Retention::ALL.len(), "{} entries not met", walk.unseen);
                walk.next = self.order.coldest(Retention::ALL[walk.class]);
            }
        }
        let is_over = walk.unseen == 0;
        if walk.draft.is_full(self.snapshots.pace.segment_entries)
            || (is_over && !walk.draft.is_empty())
        {
            self.finish_segment(walk);
        }
        if !is_over && walk.piece.len() < self.snapshots.pace.piece_bytes {
            return SnapshotStep::More;
        }
        if is_over {
            walk.stage = Stage::Segments;
            if walk.piece.is_empty() {
                return SnapshotStep::More;
            }
        }
        let bytes = core::mem::take(&mut walk.piece);
        let offset = walk.offset;
        walk.offset += bytes.len() as u64;
        SnapshotStep::Write(SnapshotWrite {
            half: half_of(walk.number),
            offset,
            bytes,
            sync: is_over,
        })
    }

    fn look_at(&mut self, id: EntryId, walk: &mut Walk) {
        let entry = self.entries.at_mut(id.0);
        if entry.seen == self.snapshots.mark {
            return;
        }
        entry.seen = self.snapshots.mark;
        walk.unseen -= 1;
        let namespace = self.namespaces.at(entry.namespace);
        let name = walk.draft.name(namespace.hash, &namespace.model, &namespace.compat_key);
        walk.draft.push(entry, self.space.payload_offset(entry.extent), name);
        if walk.draft.is_full(self.snapshots.pace.segment_entries) {
            self.finish_segment(walk);
        }
    }

    fn finish_segment(&self, walk: &mut Walk) {
        walk.entries += walk.draft.entries();
        walk.draft.finish(self.settings.tag, walk.number, walk.segments, &mut walk.piece);
        walk.segments += 1;
    }

    fn head_of(&self, walk: &mut Walk) -> SnapshotWrite {
        walk.stage = Stage::Head;
        let head = SnapshotHead {
            number: walk.number,
            vitals_before: self.journal.vitals_at_start(),
            vitals_durable: self.journal.vitals_durable(),
            sequence: self.journal.latest_sequence(),
            generation: self.generation,
            entries: walk.entries,
            segments: walk.segments,
            end_offset: walk.offset,
        };
        let bytes = head.encode(self.settings.tag);
        SnapshotWrite { half: half_of(walk.number), offset: 0, bytes, sync: true }
    }

    /// An entry is about to move to the warm end of its order: the walk must not follow it.
    pub(super) fn warm(&mut self, id: EntryId) {
        let class = self.entry(id).class;
        if let Some(walk) = &mut self.snapshots.walk
            && walk.next == Some(id)
            && let Some(warmer) = self.order.warmer(id)
        {
            walk.next = Some(warmer);
        }
        self.order.touch(id, class);
    }

    /// An entry leaves its order.
    pub(super) fn leave_order(&mut self, id: EntryId) {
        let (class, seen) = (self.entry(id).class, self.entry(id).seen);
        if let Some(walk) = &mut self.snapshots.walk {
            if walk.next == Some(id) {
                walk.next = self.order.warmer(id);
            }
            walk.unseen -= u32::from(seen != self.snapshots.mark);
        }
        self.order.remove(id, class);
    }
}
