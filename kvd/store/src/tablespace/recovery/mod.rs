//! A tablespace out of bytes that were read from a device after whatever happened to it.
//!
//! Journals and snapshots are synced *before* they are read: what a killed process wrote may be in
//! no safer place than the page cache, and what is read here is built upon.
//!
//! Whoever reads the files hands them in, in this order: the heads of both snapshots, the segments
//! of the chosen one, then both journals. What cannot be read is handed in as zeros. Nothing that comes in can make this panic, nor let it take memory for
//! more than what was really there.

mod build;
mod gather;
mod report;
mod vitals;

pub use report::{Dropped, Report};

use super::journal::{Batch, JournalItem, JournalReader, Position, half_of};
use super::snapshot::{SegmentItem, SegmentReader, SnapshotHead};
use super::{Settings, Tablespace};
use crate::disk::Half;
use gather::Gathered;
use vitals::Vitals;

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
    reading: Option<Reading>,
    chain: Chain,
    vitals: Vitals,
}

/// How far the journals were followed.
#[derive(Debug, Default)]
struct Chain {
    /// The latest journal; 0 before there is any.
    number: u64,
    /// End of its latest batch.
    end_offset: u64,
    vitals_at_start: u64,
    /// The latest batch of all.
    sequence: u64,
    /// The first journal.
    first: u64,
    /// Something was damaged or missing in the journal with this number or in one before.
    damaged: u64,
}

/// A journal that is being read.
#[derive(Debug)]
struct Reading {
    half: Half,
    reader: JournalReader,
    /// Journal and number of the latest batch that counts; the file may have older ones behind.
    latest: (u64, u64),
    /// Something unreadable was met since.
    is_interrupted: bool,
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
            reading: None,
            chain: Chain::default(),
            vitals: Vitals::default(),
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

    /// In which order to read the journals. Only the order of eviction depends on it.
    #[must_use]
    pub const fn journal_order(&self) -> [Half; 2] {
        let first = match self.head {
            Some(head) => half_of(head.number),
            None => half_of(1),
        };
        match first {
            Half::A => [Half::A, Half::B],
            Half::B => [Half::B, Half::A],
        }
    }

    /// The next bytes fed are those of this journal, from its beginning.
    pub fn begin_journal(&mut self, half: Half) {
        self.end_journal();
        self.finish_snapshot();
        let reader = JournalReader::new(self.settings.tag);
        self.reading = Some(Reading { half, reader, latest: (0, 0), is_interrupted: false });
    }

    /// The next bytes of the journal, in pieces of any length.
    pub fn feed_journal(&mut self, bytes: &[u8]) {
        if let Some(mut reading) = self.reading.take() {
            reading.reader.feed(bytes);
            self.read_batches(&mut reading);
            self.reading = Some(reading);
        }
    }

    /// Everything was handed in.
    #[must_use]
    pub fn finish(mut self) -> (Tablespace, Report) {
        self.finish_snapshot();
        self.end_journal();
        let vitals = self.count_vitals();
        let position = self.position(vitals);
        let nothing = Settings { space_bytes: 0, ..self.settings };
        let mut tablespace = Tablespace::empty(nothing, position);
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
        if let Some(mut reading) = self.reading.take() {
            reading.reader.end();
            self.read_batches(&mut reading);
        }
    }

    fn read_batches(&mut self, reading: &mut Reading) {
        let Reading { half, reader, latest, is_interrupted } = reading;
        while let Some(item) = reader.next_item() {
            match item {
                JournalItem::Batch(batch) => {
                    let header = batch.header;
                    let this = (header.journal, header.sequence);
                    let is_first = header.journal != latest.0;
                    // The file has been used before, and the journal may have been by an earlier life.
                    let is_old = header.journal < self.head.map_or(1, |head| head.number)
                        || header.journal < latest.0
                        || (!is_first && header.sequence <= latest.1);
                    if is_old || half_of(header.journal) != *half {
                        *is_interrupted = true;
                        continue;
                    }
                    *latest = this;
                    self.follow(&batch, is_first, core::mem::take(is_interrupted));
                }
                JournalItem::Unreadable { offset, journal } => {
                    *is_interrupted = true;
                    self.report.torn_tail |= offset == self.chain.end_offset
                        && latest.0 == self.chain.number
                        && journal == Some(latest.0);
                }
            }
        }
    }

    /// Takes over a batch: the first of its journal, or behind something unreadable, or neither.
    fn follow(&mut self, batch: &Batch<'_>, is_first: bool, is_interrupted: bool) {
        let header = batch.header;
        let chain = &mut self.chain;
        if is_interrupted {
            self.report.damaged_stretches += 1;
            chain.damaged = chain.damaged.max(header.journal);
        }
        if is_first {
            self.report.journals += 1;
            chain.first =
                if chain.first == 0 { header.journal } else { chain.first.min(header.journal) };
        }
        if header.journal > chain.number {
            chain.vitals_at_start = header.vitals_before;
        }
        if header.journal >= chain.number {
            chain.number = header.journal;
            chain.end_offset = batch.offset + header.bytes_on_device() as u64;
            self.report.torn_tail = false;
        }
        chain.sequence = chain.sequence.max(header.sequence);
        let (from, to) = (
            header.vitals_before.saturating_sub(header.repeated.into()),
            header.vitals_before.saturating_add(header.vitals.into()),
        );
        self.vitals.read(from, to, header.generation_before);
        if !self.gathered.batch(batch) {
            self.miss_vitals(0, header.journal);
        }
        self.report.batches += 1;
        self.report.records += u64::from(header.records);
    }

    /// Number of all vital records so far. Puts in doubt what those that are missing may be about.
    fn count_vitals(&mut self) -> u64 {
        let base = self.head.map(|head| head.vitals_before);
        let base = base.or((self.chain.first == 1).then_some(0));
        let mut missing = Vec::new();
        let end = core::mem::take(&mut self.vitals).end(base, |before| missing.push(before));
        for generation in missing {
            self.miss_vitals(generation, self.chain.number);
        }
        match self.head {
            Some(head) if head.vitals_durable > end => {
                self.miss_vitals(head.generation, self.chain.number);
                head.vitals_durable
            }
            Some(_) | None => end,
        }
    }

    /// Vital records are missing that were about entries up to a generation.
    fn miss_vitals(&mut self, generation: u64, journal: u64) {
        self.report.vitals_lost += 1;
        self.gathered.doubtful = self.gathered.doubtful.max(generation);
        self.chain.damaged = self.chain.damaged.max(journal).max(1);
    }

    /// Where the journal goes on.
    fn position(&self, vitals: u64) -> Position {
        let base = self.head.map_or(1, |head| head.number);
        let latest = self.chain.sequence.max(self.head.map_or(0, |head| head.sequence));
        let sequence = (latest / SEQUENCES_PER_LIFE + 1).saturating_mul(SEQUENCES_PER_LIFE);
        let generation = self.gathered.generation;
        let is_continued = self.chain.number >= base;
        Position {
            // Otherwise nothing of that journal is readable.
            number: self.chain.number.max(base),
            offset: if is_continued { self.chain.end_offset } else { 0 },
            sequence,
            vitals,
            vitals_at_start: if is_continued { self.chain.vitals_at_start } else { vitals },
            generation,
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
