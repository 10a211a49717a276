//! A snapshot as it is read: segments out of a stream of bytes that may be damaged anywhere.
#![warn(clippy::indexing_slicing)]

use rkyv::rancor::Error;
use rkyv::util::AlignedVec;

use super::segment::ArchivedSegment;
use crate::tablespace::bytes::Reader;
use crate::tablespace::checksum::{UNCHECKED_BYTES, crc64};
use crate::tablespace::format::{BLOCK, SEGMENT_BYTES_MAX, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC};

/// Takes the bytes behind the head of a snapshot, in pieces of any length. What cannot be read is
/// given as zeros.
#[derive(Debug)]
pub(in crate::tablespace) struct SegmentReader {
    tag: u64,
    number: u64,
    buffer: Vec<u8>,
    at: usize,
    archive: AlignedVec,
}

/// What stands at one place of a snapshot.
pub(in crate::tablespace) enum SegmentItem<'a> {
    Segment(&'a ArchivedSegment),
    /// A block that no intact segment of this snapshot begins at.
    Unreadable,
}

struct Header {
    check: u64,
    archive_bytes: usize,
}

impl Header {
    fn parse(block: &[u8], tag: u64, number: u64) -> Option<Self> {
        let mut reader = Reader::new(block);
        let (magic, check) = (reader.array::<8>()?, reader.u64()?);
        let is_ours = magic == SEGMENT_MAGIC && reader.u64()? == tag && reader.u64()? == number;
        let _index = reader.u64()?;
        let archive_bytes = usize::try_from(reader.u32()?).ok()?;
        (is_ours && archive_bytes <= SEGMENT_BYTES_MAX).then_some(Self { check, archive_bytes })
    }

    const fn bytes_on_device(&self) -> usize {
        (SEGMENT_HEADER_BYTES + self.archive_bytes).next_multiple_of(BLOCK)
    }

    /// The archive, if the whole segment, padding included, is as it was written.
    fn check<'a>(&self, segment: &'a [u8]) -> Option<&'a [u8]> {
        let used = SEGMENT_HEADER_BYTES + self.archive_bytes;
        let checked = segment.get(UNCHECKED_BYTES..used)?;
        let padding = segment.get(used..self.bytes_on_device())?;
        let intact = crc64(checked) == self.check && padding.iter().all(|&byte| byte == 0);
        if intact { segment.get(SEGMENT_HEADER_BYTES..used) } else { None }
    }
}

impl SegmentReader {
    pub(in crate::tablespace) fn new(tag: u64, number: u64) -> Self {
        Self { tag, number, buffer: Vec::new(), at: 0, archive: AlignedVec::new() }
    }

    pub(in crate::tablespace) fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.at);
        self.at = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// What stands next; none if more bytes are needed first, or, if that `is_all`, at the end.
    pub(in crate::tablespace) fn next_item(&mut self, is_all: bool) -> Option<SegmentItem<'_>> {
        let rest = self.buffer.get(self.at..)?;
        let block = rest.get(..BLOCK)?;
        let mut step = BLOCK;
        self.archive.clear();
        if let Some(header) = Header::parse(block, self.tag, self.number) {
            if rest.len() < header.bytes_on_device() && !is_all {
                return None;
            }
            if let Some(archive) = header.check(rest) {
                self.archive.extend_from_slice(archive);
                step = header.bytes_on_device();
            }
        }
        self.at += step;
        let segment = rkyv::access::<ArchivedSegment, Error>(&self.archive);
        Some(segment.map_or(SegmentItem::Unreadable, SegmentItem::Segment))
    }
}
