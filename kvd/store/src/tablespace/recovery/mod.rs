//! A tablespace out of bytes that were read from a device after whatever happened to it.
//!
//! Journals and snapshots are synced *before* they are read: what a killed process wrote may be in
//! no safer place than the page cache, and what is read here is built upon.
//!
//! Whoever reads the files hands them in, in this order: the heads of both snapshots, the segments
//! of the chosen one, the beginnings of both journals, then both journals. What cannot be read is
//! handed in as zeros. Nothing that comes in can make this panic, nor let it take memory for
//! more than what was really there.

mod build;
mod gather;
mod report;

pub use report::{Dropped, Report};

use super::journal::{Batch, JournalItem, JournalReader, Position, half_of};
use super::snapshot::{SegmentItem, SegmentReader, SnapshotHead};
use super::{Settings, Tablespace};
use crate::disk::Half;
use gather::Gathered;

/// Numbers of batches that a start leaves out: what an earlier life may have written without its
/// being read now has smaller ones.
const SEQUENCES_PER_LIFE: u64 = 1 << 32;

/// A recovery under way.
#[derive(Debug)]
pub struct Recovery {
    settings: Settings,
    gathered: Gathered,
    report: Report,
    head: Option<SnapshotHead>,
    segments: Option<SegmentReader>,
    journal: Option<(Half, JournalReader)>,
    chain: Chain,
}

/// How far the journals were followed.
#[derive(Debug, Default)]
struct Chain {
    /// Number of the journal of the latest batch; 0 before the first.
    number: u64,
    sequence: u64,
    /// End of that batch.
    end_offset: u64,
    /// Vital records so far; unknown before the first batch if there is no snapshot.
    vitals: Option<u64>,
    vitals_at_start: u64,
    /// Something unreadable was met since the latest batch.
    is_interrupted: bool,
    /// Something was damaged or missing in the journal with this number or in one before.
    damaged: u64,
}

impl Recovery {
    /// Begins with a device of which nothing is known.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            gathered: Gathered::new(settings.hash_seed),
            report: Report::default(),
            head: None,
            segments: None,
            journal: None,
            chain: Chain::default(),
        }
    }

    /// Which snapshot to read, given the first [`super::SEGMENTS_OFFSET`] bytes of both files: the
    /// latest complete one. Its segments follow, from that offset to the head's end.
    pub fn choose_snapshot(&mut self, a: &[u8], b: &[u8]) -> Option<(Half, SnapshotHead)> {
        let tag = self.settings.tag;
        let heads = [(Half::A, a), (Half::B, b)].into_iter();
        let heads = heads.filter_map(|(half, bytes)| {
            let head = SnapshotHead::decode(bytes, tag)?;
            (half_of(head.number) == half).then_some((half, head))
        });
        let chosen = heads.max_by_key(|(_, head)| head.number);
        if let Some((_, head)) = chosen {
            self.segments = Some(SegmentReader::new(tag, head.number));
            self.gathered.generation = head.generation;
            self.chain.vitals = Some(head.vitals_before);
            self.report.snapshot = Some(head.number);
            self.report.snapshot_entries = head.entries;
            self.head = Some(head);
        }
        chosen
    }

    /// The next bytes of the chosen snapshot, in pieces of any length.
    pub fn feed_snapshot(&mut self, bytes: &[u8]) {
        if let Some(reader) = &mut self.segments {
            reader.feed(bytes);
            Self::read_segments(reader, &mut self.gathered, &mut self.report, false);
        }
    }

    fn read_segments(
        reader: &mut SegmentReader,
        gathered: &mut Gathered,
        report: &mut Report,
        is_all: bool,
    ) {
        while let Some(item) = reader.next_item(is_all) {
            match item {
                SegmentItem::Segment(segment) => {
                    report.snapshot_entries_read += gathered.segment(segment);
                }
                SegmentItem::Unreadable => {}
            }
        }
    }

    /// In which order to read the journals, given the beginnings of both files (some blocks at
    /// least; more see through more damage).
    #[must_use]
    pub fn journal_order(&self, a: &[u8], b: &[u8]) -> [Half; 2] {
        let latest = |half, bytes| {
            let mut reader = JournalReader::new(self.settings.tag);
            reader.feed(bytes);
            let mut latest = 0;
            while let Some(item) = reader.next_item() {
                if let JournalItem::Batch(batch) = item
                    && half_of(batch.header.journal) == half
                {
                    latest = latest.max(batch.header.journal);
                }
            }
            latest
        };
        let (a, b) = (latest(Half::A, a), latest(Half::B, b));
        if a <= b { [Half::A, Half::B] } else { [Half::B, Half::A] }
    }

    /// The next bytes fed are those of this journal, from its beginning.
    pub fn begin_journal(&mut self, half: Half) {
        self.end_journal();
        self.finish_snapshot();
        self.journal = Some((half, JournalReader::new(self.settings.tag)));
    }

    /// The next bytes of the journal, in pieces of any length.
    pub fn feed_journal(&mut self, bytes: &[u8]) {
        if let Some((half, mut reader)) = self.journal.take() {
            reader.feed(bytes);
            self.read_batches(half, &mut reader);
            self.journal = Some((half, reader));
        }
    }

    /// Everything was handed in.
    #[must_use]
    pub fn finish(mut self) -> (Tablespace, Report) {
        self.finish_snapshot();
        self.end_journal();
        let durable = self.head.map_or(0, |head| head.vitals_durable);
        if self.chain.vitals.is_some_and(|vitals| vitals < durable) {
            self.drop_doubtful();
            self.chain.vitals = Some(durable);
        }
        let position = self.position();
        let mut tablespace =
            Tablespace::empty(Settings { space_bytes: 0, ..self.settings }, position);
        tablespace.settings = self.settings;
        tablespace.snapshots.complete = self.complete_snapshot(position.number);
        tablespace.snapshots.damaged = self.chain.damaged;
        build::fill(&mut tablespace, self.gathered, &mut self.report);
        (tablespace, self.report)
    }

    fn finish_snapshot(&mut self) {
        if let Some(mut reader) = self.segments.take() {
            Self::read_segments(&mut reader, &mut self.gathered, &mut self.report, true);
        }
    }

    fn end_journal(&mut self) {
        if let Some((half, mut reader)) = self.journal.take() {
            reader.end();
            self.read_batches(half, &mut reader);
            self.chain.is_interrupted = false;
        }
    }

    fn read_batches(&mut self, half: Half, reader: &mut JournalReader) {
        while let Some(item) = reader.next_item() {
            match item {
                JournalItem::Batch(batch) => self.follow(half, &batch),
                JournalItem::Unreadable { offset, journal } => {
                    let is_next = offset == self.chain.end_offset
                        && half_of(self.chain.number) == half
                        && journal == Some(self.chain.number);
                    self.report.torn_tail |= is_next;
                    self.chain.is_interrupted = true;
                }
            }
        }
    }

    fn follow(&mut self, half: Half, batch: &Batch<'_>) {
        let header = batch.header;
        let is_old = header.journal < self.head.map_or(0, |head| head.number)
            || header.journal < self.chain.number
            || header.sequence <= self.chain.sequence;
        if is_old || half_of(header.journal) != half {
            // Left from an earlier use of the file.
            self.chain.is_interrupted = true;
            return;
        }
        if header.journal != self.chain.number {
            self.chain.number = header.journal;
            self.chain.vitals_at_start = header.vitals_before;
            self.report.journals += 1;
        }
        if self.chain.is_interrupted {
            self.report.damaged_stretches += 1;
            self.report.torn_tail = false;
            self.chain.damaged = header.journal;
            self.chain.is_interrupted = false;
        }
        let expected = self.chain.vitals.or((header.journal == 1).then_some(0));
        if expected.is_some_and(|expected| header.is_missed_by(expected)) {
            self.drop_doubtful();
        }
        let (all_known, vitals) = self.gathered.batch(batch);
        if !all_known || u64::from(vitals) != u64::from(header.vitals) + u64::from(header.repeated)
        {
            self.drop_doubtful();
        }
        self.chain.vitals = Some(header.vitals_before.saturating_add(header.vitals.into()));
        self.chain.sequence = header.sequence;
        self.chain.end_offset = batch.offset + header.bytes_on_device() as u64;
        self.report.batches += 1;
        self.report.records += u64::from(header.records);
    }

    /// A vital record is missing: whatever it was about must not come back.
    fn drop_doubtful(&mut self) {
        self.report.vitals_lost += 1;
        self.report.dropped.doubtful += self.gathered.drop_entries(self.settings.hash_seed);
        self.chain.damaged = self.chain.number.max(1);
    }

    /// Where the journal goes on.
    fn position(&self) -> Position {
        let base = self.head.map_or(1, |head| head.number);
        let vitals = self.chain.vitals.unwrap_or(0);
        let latest = self.chain.sequence.max(self.head.map_or(0, |head| head.sequence));
        let sequence = (latest / SEQUENCES_PER_LIFE + 1).saturating_mul(SEQUENCES_PER_LIFE);
        if self.chain.number < base {
            // Nothing of that journal is readable.
            return Position { number: base, offset: 0, sequence, vitals, vitals_at_start: vitals };
        }
        Position {
            number: self.chain.number,
            offset: self.chain.end_offset,
            sequence,
            vitals,
            vitals_at_start: self.chain.vitals_at_start,
        }
    }

    /// The latest snapshot that the journal which goes on can rely on; the first journal needs none.
    fn complete_snapshot(&self, number: u64) -> u64 {
        match self.head {
            Some(head) => head.number,
            None if number == 1 => 1,
            None => number - 1,
        }
    }
}
