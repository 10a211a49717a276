//! A journal as it is read: batches out of a stream of bytes that may be damaged anywhere.
#![warn(clippy::indexing_slicing)]

use super::batch::{Batch, BatchHeader};
use crate::tablespace::format::BLOCK;

/// What stands at one place of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalItem<'a> {
    /// An intact batch, of this journal or of one that used the file before.
    Batch(Batch<'a>),
    /// A block that no intact batch begins at.
    Unreadable {
        /// Where it begins.
        offset: u64,
        /// Number of the journal, if it looks like the beginning of a damaged batch.
        journal: Option<u64>,
    },
}

/// Takes the bytes of a journal from its beginning, in pieces of any length. What cannot be read
/// is given as zeros.
#[derive(Debug)]
pub struct JournalReader {
    tag: u64,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were looked at.
    at: usize,
    /// Place of the buffer in the file.
    offset: u64,
    is_over: bool,
}

impl JournalReader {
    /// For a journal of the device with this tag.
    #[must_use]
    pub const fn new(tag: u64) -> Self {
        Self { tag, buffer: Vec::new(), at: 0, offset: 0, is_over: false }
    }

    /// The bytes that follow.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.offset += self.at as u64;
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// There are no more bytes.
    pub const fn end(&mut self) {
        self.is_over = true;
    }

    /// What stands next; none if more bytes are needed first, or at the end.
    pub fn next_item(&mut self) -> Option<JournalItem<'_>> {
        let (at, offset) = (self.at, self.offset + self.at as u64);
        let rest = self.buffer.get(at..)?;
        let block = rest.get(..BLOCK)?;
        let parsed = BatchHeader::parse(block, self.tag);
        let journal = parsed.map(|(header, _)| header.journal);
        if let Some((header, check)) = parsed {
            let bytes = header.bytes_on_device();
            if rest.len() < bytes && !self.is_over {
                return None;
            }
            if let Some(payload) = header.check(check, rest) {
                self.at += bytes;
                return Some(JournalItem::Batch(Batch::new(offset, header, payload)));
            }
        }
        self.at += BLOCK;
        Some(JournalItem::Unreadable { offset, journal })
    }
}
