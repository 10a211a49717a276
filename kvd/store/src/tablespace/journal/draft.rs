//! A batch while it is being filled.

use super::batch::bytes_on_device;
use super::record::Record;
use crate::tablespace::format::BATCH_PAYLOAD_BYTES;

/// Declared names that are looked through, the latest first, before one is declared again.
const NAMES_SEARCHED: usize = 16;

#[derive(Debug)]
pub(super) struct Draft {
    pub(super) sequence: u64,
    /// The latest generation in the batches before.
    pub(super) generation_before: u64,
    pub(super) payload: Vec<u8>,
    pub(super) records: u32,
    pub(super) vitals: u32,
    /// The vital records once more, to be repeated.
    pub(super) vital_payload: Vec<u8>,
    names: Vec<(Box<str>, Box<str>)>,
}

impl Draft {
    pub(super) const fn new(sequence: u64, generation_before: u64) -> Self {
        Self {
            sequence,
            generation_before,
            payload: Vec::new(),
            records: 0,
            vitals: 0,
            vital_payload: Vec::new(),
            names: Vec::new(),
        }
    }

    /// Number of a name in this batch; declares it if need be.
    pub(super) fn name(&mut self, model: &str, compat_key: &str) -> u32 {
        let latest = self.names.iter().enumerate().rev().take(NAMES_SEARCHED);
        let known =
            latest.into_iter().find(|(_, name)| *name.0 == *model && *name.1 == *compat_key);
        if let Some((number, _)) = known {
            return number_of(number);
        }
        let number = number_of(self.names.len());
        self.names.push((model.into(), compat_key.into()));
        self.push(&Record::Namespace { number, model, compat_key });
        number
    }

    pub(super) fn push(&mut self, record: &Record<'_>) {
        record.encode(&mut self.payload);
        self.records += 1;
        if record.is_vital() {
            self.vitals += 1;
            record.encode(&mut self.vital_payload);
        }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.records == 0
    }

    pub(super) const fn is_full(&self) -> bool {
        self.payload.len() >= BATCH_PAYLOAD_BYTES
    }

    /// Number of the last batch that it becomes: one that repeats them follows vital records.
    pub(super) const fn last_sequence(&self) -> u64 {
        self.sequence + (self.vitals > 0) as u64
    }

    /// Bytes in the journal, with so many bytes of records to repeat.
    pub(super) const fn bytes_on_device(&self, repeated: usize) -> usize {
        let first = bytes_on_device(repeated + self.payload.len());
        let second = bytes_on_device(repeated + self.vital_payload.len());
        if self.vitals > 0 { first + second } else { first }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a batch is full long before")]
const fn number_of(index: usize) -> u32 {
    index as u32
}
