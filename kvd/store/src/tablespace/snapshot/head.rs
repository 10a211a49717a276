//! The head of a snapshot: written last, when all else is on stable storage, and twice, so that
//! one bad block does not cost a whole snapshot.
#![warn(clippy::indexing_slicing, clippy::arithmetic_side_effects)]

use core::fmt;

use crate::tablespace::bytes::Reader;
use crate::tablespace::checksum::{UNCHECKED_BYTES, crc64, seal};
use crate::tablespace::format::{BLOCK, COPIES, HEAD_MAGIC, SEGMENTS_OFFSET};

/// What a complete snapshot says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotHead {
    /// Number of the journal that continues it.
    pub number: u64,
    /// Vital records in all batches of the journals before that one.
    pub vitals_before: u64,
    /// Vital records that were durable when it was completed: a journal that ends with fewer has
    /// lost some.
    pub vitals_durable: u64,
    /// The latest batch at that time.
    pub sequence: u64,
    /// The latest generation at that time.
    pub generation: u64,
    /// Entries in all segments.
    pub entries: u64,
    /// Number of segments.
    pub segments: u64,
    /// Where the last segment ends, its padding included.
    pub end_offset: u64,
}

impl SnapshotHead {
    pub(super) fn encode(&self, tag: u64) -> Vec<u8> {
        let mut copy = Vec::with_capacity(BLOCK * COPIES);
        copy.extend_from_slice(&HEAD_MAGIC);
        copy.extend_from_slice(&[0; 8]);
        let fields = [
            tag,
            self.number,
            self.vitals_before,
            self.vitals_durable,
            self.sequence,
            self.generation,
            self.entries,
            self.segments,
            self.end_offset,
        ];
        for field in fields {
            copy.extend_from_slice(&field.to_le_bytes());
        }
        copy.resize(BLOCK, 0);
        seal(&mut copy);
        copy.repeat(COPIES)
    }

    /// The head in the first [`SEGMENTS_OFFSET`] bytes of a snapshot file, if either copy is whole.
    #[must_use]
    pub fn decode(bytes: &[u8], tag: u64) -> Option<Self> {
        bytes.chunks_exact(BLOCK).take(COPIES).find_map(|copy| Self::decode_copy(copy, tag))
    }

    fn decode_copy(copy: &[u8], tag: u64) -> Option<Self> {
        let mut reader = Reader::new(copy);
        let (magic, check) = (reader.array::<8>()?, reader.u64()?);
        if magic != HEAD_MAGIC
            || reader.u64()? != tag
            || crc64(copy.get(UNCHECKED_BYTES..)?) != check
        {
            return None;
        }
        let head = Self {
            number: reader.number()?,
            vitals_before: reader.number()?,
            vitals_durable: reader.number()?,
            sequence: reader.number()?,
            generation: reader.number()?,
            entries: reader.u64()?,
            segments: reader.u64()?,
            end_offset: reader.u64()?,
        };
        (head.end_offset >= SEGMENTS_OFFSET).then_some(head)
    }
}

impl fmt::Display for SnapshotHead {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "snapshot {}: {} entries in {} segments up to byte {}, generation {}, batch {}, \
             {} vital records before, {} durable",
            self.number,
            self.entries,
            self.segments,
            self.end_offset,
            self.generation,
            self.sequence,
            self.vitals_before,
            self.vitals_durable,
        )
    }
}
