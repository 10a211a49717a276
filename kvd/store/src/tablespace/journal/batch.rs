//! The frame of a batch: a checked header, records, zeros up to the next block.
#![warn(clippy::indexing_slicing)]

use core::fmt;

use super::record::Records;
use crate::tablespace::bytes::Reader;
use crate::tablespace::checksum::{UNCHECKED_BYTES, crc64, seal};
use crate::tablespace::format::{BATCH_HEADER_BYTES, BATCH_MAGIC, BATCH_PAYLOAD_BYTES_MAX, BLOCK};

/// What stands in front of a batch's records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchHeader {
    /// Number of the journal. Each journal has the number of one before plus one.
    pub journal: u64,
    /// Number of the batch; grows over all journals, with gaps.
    pub sequence: u64,
    /// Vital records in all batches before this one, since the device exists.
    pub vitals_before: u64,
    /// The latest generation that was inserted in any batch before this one.
    pub generation_before: u64,
    /// Bytes of the records.
    pub payload_bytes: u32,
    /// Number of records.
    pub records: u32,
    /// How many of them are vital and said here for the first time.
    pub vitals: u32,
    /// How many vital ones, the first records of the batch, repeat the latest of those before.
    pub repeated: u32,
}

impl BatchHeader {
    /// Appends the whole batch.
    pub(super) fn encode(&self, tag: u64, payload: [&[u8]; 2], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&BATCH_MAGIC);
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&tag.to_le_bytes());
        out.extend_from_slice(&self.journal.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        out.extend_from_slice(&self.vitals_before.to_le_bytes());
        out.extend_from_slice(&self.generation_before.to_le_bytes());
        out.extend_from_slice(&self.payload_bytes.to_le_bytes());
        out.extend_from_slice(&self.records.to_le_bytes());
        out.extend_from_slice(&self.vitals.to_le_bytes());
        out.extend_from_slice(&self.repeated.to_le_bytes());
        out.extend_from_slice(payload[0]);
        out.extend_from_slice(payload[1]);
        seal(out.split_at_mut(start).1);
        out.resize(start + self.bytes_on_device(), 0);
    }

    /// Bytes of the batch with its header and padding.
    pub(in crate::tablespace) const fn bytes_on_device(&self) -> usize {
        bytes_on_device(self.payload_bytes as usize)
    }

    /// The header that `block` begins with, not yet checked, and its checksum.
    pub(super) fn parse(block: &[u8], tag: u64) -> Option<(Self, u64)> {
        let mut reader = Reader::new(block);
        let (magic, check) = (reader.array::<8>()?, reader.u64()?);
        if magic != BATCH_MAGIC || reader.u64()? != tag {
            return None;
        }
        let header = Self {
            journal: reader.number()?,
            sequence: reader.number()?,
            vitals_before: reader.number()?,
            generation_before: reader.number()?,
            payload_bytes: reader.u32()?,
            records: reader.u32()?,
            vitals: reader.u32()?,
            repeated: reader.u32()?,
        };
        let within = header.payload_bytes as usize <= BATCH_PAYLOAD_BYTES_MAX;
        within.then_some((header, check))
    }

    /// The records, if the whole batch, padding included, is as it was written.
    pub(super) fn check<'a>(&self, check: u64, batch: &'a [u8]) -> Option<&'a [u8]> {
        let used = BATCH_HEADER_BYTES.checked_add(self.payload_bytes as usize)?;
        let (checked, padding) =
            (batch.get(UNCHECKED_BYTES..used)?, batch.get(used..self.bytes_on_device())?);
        let intact = crc64(checked) == check && padding.iter().all(|&byte| byte == 0);
        if intact { batch.get(BATCH_HEADER_BYTES..used) } else { None }
    }
}

/// Bytes of a batch with so many bytes of records.
pub(super) const fn bytes_on_device(payload_bytes: usize) -> usize {
    (BATCH_HEADER_BYTES + payload_bytes).next_multiple_of(BLOCK)
}

/// One batch that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch<'a> {
    /// Where it begins in its file.
    pub offset: u64,
    /// What it says of itself.
    pub header: BatchHeader,
    payload: &'a [u8],
}

impl<'a> Batch<'a> {
    pub(super) const fn new(offset: u64, header: BatchHeader, payload: &'a [u8]) -> Self {
        Self { offset, header, payload }
    }

    /// Its records, in order; none for one that this release does not know.
    #[must_use]
    pub const fn records(&self) -> Records<'a> {
        Records::new(self.payload)
    }
}

impl fmt::Display for BatchHeader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "journal {} batch {}: {} records in {} bytes, {} vital after {} before, {} repeated",
            self.journal,
            self.sequence,
            self.records,
            self.payload_bytes,
            self.vitals,
            self.vitals_before,
            self.repeated,
        )
    }
}
