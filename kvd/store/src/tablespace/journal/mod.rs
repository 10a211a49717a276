//! The journal as it is written: records gather in a batch, batches go to the device one at a
//! time, and two files take turns.
//!
//! A *vital* record is one whose loss could bring back what must not come back. Every batch says
//! how many vital ones came before it, so that a reader notices when one is missing; and it
//! repeats those that are not durable yet, so that none is missed if writes get lost that were
//! not synced. Behind a batch with vital records another one is written along that repeats them,
//! so that one bad block costs none of the last ones either.

mod batch;
mod draft;
mod reader;
mod record;

use std::collections::VecDeque;

use super::format::REPEATED_BYTES;
pub use batch::{Batch, BatchHeader};
use draft::Draft;
pub use reader::{JournalItem, JournalReader};
pub(super) use record::class_from_code;
pub use record::{Insert, Reason, Record, Records};

use crate::disk::Half;

/// Which file holds the journal, or the snapshot, with this number.
#[must_use]
pub const fn half_of(number: u64) -> Half {
    if number.is_multiple_of(2) { Half::A } else { Half::B }
}

/// Bytes of records that may wait before writes to the device pause.
const BACKLOG_BYTES_MAX: usize = 4 << 20;

/// One write to a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JournalWrite {
    pub(crate) half: Half,
    pub(crate) offset: u64,
    /// Whole blocks; empty if only a sync is needed.
    pub(crate) bytes: Vec<u8>,
    /// For [`super::Tablespace::batch_written`].
    pub(crate) sequence: u64,
    /// The tablespace needs a sync after it, whatever the durability.
    pub(crate) sync: bool,
}

/// Where a journal that was read goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) number: u64,
    pub(super) offset: u64,
    pub(super) sequence: u64,
    pub(super) vitals: u64,
    pub(super) vitals_at_start: u64,
    /// The latest generation of all before.
    pub(super) generation: u64,
}

#[derive(Clone, Copy, Debug)]
struct Writing {
    sequence: u64,
    /// 0: only a sync.
    bytes: u64,
}

#[derive(Debug)]
struct Repeated {
    sequence: u64,
    payload: Vec<u8>,
    vitals: u32,
}

#[derive(Debug)]
pub(super) struct Journal {
    tag: u64,
    file_bytes: u64,
    number: u64,
    /// Where the next batch goes.
    offset: u64,
    /// The last one is open; the first one is being written if `writing` says so.
    drafts: VecDeque<Draft>,
    writing: Option<Writing>,
    /// Vital records that are written but not durable, by batch.
    repeated: VecDeque<Repeated>,
    /// Vital records of all batches that were written.
    vitals_written: u64,
    vitals_durable: u64,
    /// Vital records of the batches of all journals before.
    vitals_at_start: u64,
    written: u64,
    durable: u64,
    /// The latest generation that was inserted.
    generation: u64,
}

impl Journal {
    pub(super) fn new(tag: u64, file_bytes: u64, at: Position) -> Self {
        Self {
            tag,
            file_bytes,
            number: at.number,
            offset: at.offset,
            drafts: VecDeque::from([Draft::new(at.sequence, at.generation)]),
            writing: None,
            repeated: VecDeque::new(),
            vitals_written: at.vitals,
            vitals_durable: at.vitals,
            vitals_at_start: at.vitals_at_start,
            written: at.sequence - 1,
            durable: at.sequence - 1,
            generation: at.generation,
        }
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    pub(super) const fn vitals_at_start(&self) -> u64 {
        self.vitals_at_start
    }

    pub(super) const fn vitals_durable(&self) -> u64 {
        self.vitals_durable
    }

    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    pub(super) const fn durable(&self) -> u64 {
        self.durable
    }

    /// Whether all that was written survives any crash.
    pub(super) const fn is_durable(&self) -> bool {
        self.durable == self.written
    }

    pub(super) const fn is_writing(&self) -> bool {
        self.writing.is_some()
    }

    pub(super) const fn is_over_half(&self) -> bool {
        self.offset > self.file_bytes / 2
    }

    /// Number of the batch that holds the latest record.
    pub(super) fn latest_sequence(&self) -> u64 {
        let open = self.open();
        if open.is_empty() { open.sequence - 1 } else { open.last_sequence() }
    }

    /// Whether records wait to be written.
    pub(super) fn has_records(&self) -> bool {
        let waiting = self.drafts.iter().skip(usize::from(self.is_writing()));
        waiting.into_iter().any(|draft| !draft.is_empty())
    }

    /// Whether so many records wait that no more should be caused.
    pub(super) fn is_backed_up(&self) -> bool {
        self.drafts.iter().map(|draft| draft.payload.len()).sum::<usize>() > BACKLOG_BYTES_MAX
    }

    /// Whether the next batch does not fit into the file.
    pub(super) fn is_full(&self) -> bool {
        let repeated = self.repeated.iter().map(|repeated| repeated.payload.len()).sum();
        let next = self.drafts.front().map_or(0, |draft| draft.bytes_on_device(repeated));
        self.offset + next as u64 > self.file_bytes
    }

    /// Adds a record; tells the number of its batch.
    pub(super) fn push(&mut self, record: &Record<'_>) -> u64 {
        self.push_with(|_| *record)
    }

    /// Adds the insert of a block in a namespace; tells the number of its batch.
    pub(super) fn push_insert(&mut self, model: &str, compat_key: &str, insert: Insert<'_>) -> u64 {
        self.generation = self.generation.max(insert.generation);
        self.push_with(|draft| {
            let namespace = draft.name(model, compat_key);
            Record::Insert(Insert { namespace, ..insert })
        })
    }

    fn push_with<'a>(&mut self, record: impl FnOnce(&mut Draft) -> Record<'a>) -> u64 {
        let draft = self.open_mut();
        let record = record(draft);
        draft.push(&record);
        let (last, full) = (draft.last_sequence(), draft.is_full());
        if full {
            self.seal();
        }
        last
    }

    /// The next write, if there is anything to write, nothing is being written and it fits.
    pub(super) fn next(&mut self, sync: bool) -> Option<JournalWrite> {
        if self.is_writing() {
            return None;
        }
        let is_needed = self.has_records() || self.offset == 0;
        if !is_needed || self.is_full() {
            return (sync && self.durable < self.written).then(|| self.only_sync());
        }
        if self.drafts.len() == 1 {
            self.seal();
        }
        let draft = self.drafts.front()?;
        let mut repeated = Vec::new();
        self.repeated.iter().for_each(|batch| repeated.extend_from_slice(&batch.payload));
        let vitals = self.repeated.iter().map(|batch| batch.vitals).sum::<u32>();
        let mut bytes = Vec::with_capacity(draft.bytes_on_device(repeated.len()));
        let header = BatchHeader {
            journal: self.number,
            sequence: draft.sequence,
            vitals_before: self.vitals_written,
            generation_before: draft.generation_before,
            payload_bytes: narrow(repeated.len() + draft.payload.len()),
            records: vitals + draft.records,
            vitals: draft.vitals,
            repeated: vitals,
        };
        header.encode(self.tag, [&repeated, &draft.payload], &mut bytes);
        if draft.vitals > 0 {
            let second = BatchHeader {
                sequence: draft.last_sequence(),
                vitals_before: self.vitals_written + u64::from(draft.vitals),
                payload_bytes: narrow(repeated.len() + draft.vital_payload.len()),
                records: vitals + draft.vitals,
                vitals: 0,
                repeated: vitals + draft.vitals,
                ..header
            };
            second.encode(self.tag, [&repeated, &draft.vital_payload], &mut bytes);
        }
        let sync = sync || repeated.len() + draft.vital_payload.len() > REPEATED_BYTES;
        let (half, offset, sequence) = (half_of(self.number), self.offset, draft.last_sequence());
        self.writing = Some(Writing { sequence, bytes: bytes.len() as u64 });
        Some(JournalWrite { half, offset, bytes, sequence, sync })
    }

    fn only_sync(&mut self) -> JournalWrite {
        let (half, offset, sequence) = (half_of(self.number), self.offset, self.written);
        self.writing = Some(Writing { sequence, bytes: 0 });
        JournalWrite { half, offset, bytes: Vec::new(), sequence, sync: true }
    }

    /// The write with this number ended; what was not written will be offered again.
    ///
    /// # Panics
    /// If no such write is under way.
    pub(super) fn wrote(&mut self, sequence: u64, success: bool) {
        let writing = self.writing.take().filter(|writing| writing.sequence == sequence);
        let Some(Writing { bytes, .. }) = writing else {
            panic!("a write of batch {sequence} ended that was not asked for");
        };
        if !success || bytes == 0 {
            return;
        }
        if let Some(draft) = self.drafts.pop_front() {
            self.offset += bytes;
            self.vitals_written += u64::from(draft.vitals);
            self.written = sequence;
            if draft.vitals > 0 {
                let (payload, vitals) = (draft.vital_payload, draft.vitals);
                self.repeated.push_back(Repeated { sequence, payload, vitals });
            }
        }
    }

    /// All that was written up to this number is on stable storage.
    pub(super) fn synced(&mut self, sequence: u64) {
        self.durable = self.durable.max(sequence.min(self.written));
        let durable = self.durable;
        while self.repeated.pop_front_if(|batch| batch.sequence <= durable).is_some() {}
        if self.durable == self.written {
            self.vitals_durable = self.vitals_written;
        }
    }

    /// Goes on in the other file.
    ///
    /// # Panics
    /// While something is being written or not yet durable.
    pub(super) fn turn_over(&mut self) {
        assert!(!self.is_writing() && self.is_durable(), "the old file is not over");
        self.vitals_at_start = self.vitals_written;
        self.number += 1;
        self.offset = 0;
    }

    fn seal(&mut self) {
        let next = self.open().last_sequence() + 1;
        self.drafts.push_back(Draft::new(next, self.generation));
    }

    fn open(&self) -> &Draft {
        let Some(draft) = self.drafts.back() else {
            panic!("there is always an open batch");
        };
        draft
    }

    fn open_mut(&mut self) -> &mut Draft {
        let Some(draft) = self.drafts.back_mut() else {
            panic!("there is always an open batch");
        };
        draft
    }
}

fn narrow(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}
