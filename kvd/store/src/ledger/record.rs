//! Rows and namespaces: records of 128 bytes under one checksum, with tails if they are long.
//!
//! ```text
//! word 0   CRC-64/NVME over the slot's number, words 1 to 7, all bytes of the blob, and, of a row,
//!          the checksum of its namespace's record
//! word 1   kind, class, flags; payload bytes        0: nothing stands here
//! word 2   start of the extent in the arena
//! word 3   end of the time to live, wall clock
//! word 4   checksum of the payload, if flagged
//! word 5   version of the header; slot of the namespace
//! word 6   first tail; bytes of the blob
//! word 7   bytes of the blob's first part: key of a row, model of a namespace
//! word 8…  the blob's first 64 bytes
//! ```

use crc_fast::{CrcAlgorithm, Digest};
use kvd_proto::block_key::{KEY_BYTES_MAX, NAMESPACE_PART_BYTES_MAX};
use kvd_proto::lineage::LINEAGE_BYTES_MAX;
use kvd_proto::retention::Retention;

use crate::slab::NOWHERE;
use crate::tablespace::WallTime;

pub(super) const RECORD_WORDS: usize = 16;
/// Bytes of a blob that stand in the record itself.
pub(super) const INLINE_BYTES: usize = 64;
/// Bytes of a blob in each tail, behind the number of the next one.
pub(super) const TAIL_BYTES: usize = 56;
pub(super) const TAIL_WORDS: usize = 8;

const ROW: u8 = 1;
const NAMESPACE: u8 = 2;
const LARGE: u8 = 1;
const SUMMED: u8 = 2;
const WITH_LINEAGE: u8 = 4;

/// A blob in two parts: key and lineage, or model and compatibility key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blob<'a> {
    pub(super) first: &'a [u8],
    pub(super) second: &'a [u8],
}

impl Blob<'_> {
    pub(super) const fn len(&self) -> usize {
        self.first.len() + self.second.len()
    }

    /// Tails that it needs.
    pub(super) const fn tails(&self) -> usize {
        tails_for(self.len())
    }

    /// Copies what stands at `from`, as far as it goes; the rest stays 0.
    fn copy(&self, from: usize, to: &mut [u8]) {
        let head = self.first.get(from..).unwrap_or_default();
        let cut = head.len().min(to.len());
        to[..cut].copy_from_slice(&head[..cut]);
        let tail = self.second.get(from.saturating_sub(self.first.len())..).unwrap_or_default();
        let to = &mut to[cut..];
        let cut = tail.len().min(to.len());
        to[..cut].copy_from_slice(&tail[..cut]);
    }

    fn inline(&self) -> [u64; INLINE_BYTES / 8] {
        let mut bytes = [0; INLINE_BYTES];
        self.copy(0, &mut bytes);
        to_words(&bytes)
    }

    /// The words of the tail with this number, counted from 0, before `next`.
    pub(super) fn tail(&self, number: usize, next: u32) -> [u64; TAIL_WORDS] {
        let mut bytes = [0; TAIL_WORDS * 8];
        bytes[..4].copy_from_slice(&next.to_le_bytes());
        self.copy(INLINE_BYTES + number * TAIL_BYTES, &mut bytes[8..]);
        to_words(&bytes)
    }
}

pub(super) const fn tails_for(blob_bytes: usize) -> usize {
    blob_bytes.saturating_sub(INLINE_BYTES).div_ceil(TAIL_BYTES)
}

/// What a record says beside its blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowFields {
    pub(super) class: Retention,
    pub(super) large: bool,
    pub(super) with_lineage: bool,
    pub(super) len_bytes: u32,
    pub(super) start: u64,
    pub(super) expires_at: WallTime,
    pub(super) checksum: Option<u64>,
    pub(super) version: u32,
    pub(super) namespace: u32,
}

/// The words of a row's record, `tie` being the checksum of its namespace's.
pub(super) fn row_words(
    slot: u32,
    fields: &RowFields,
    blob: Blob<'_>,
    first_tail: u32,
    tie: u64,
) -> [u64; RECORD_WORDS] {
    let flags = if fields.large { LARGE } else { 0 }
        | if fields.checksum.is_some() { SUMMED } else { 0 }
        | if fields.with_lineage { WITH_LINEAGE } else { 0 };
    #[expect(clippy::cast_possible_truncation, reason = "one of four")]
    let class = fields.class.index() as u8;
    let shape = u32::from_le_bytes([ROW, class, flags, 0]);
    let head = [
        pair(shape, fields.len_bytes),
        fields.start,
        fields.expires_at.0,
        fields.checksum.unwrap_or(0),
        pair(fields.version, fields.namespace),
    ];
    words(slot, head, blob, first_tail, tie)
}

pub(super) fn namespace_words(slot: u32, blob: Blob<'_>, first_tail: u32) -> [u64; RECORD_WORDS] {
    let shape = u32::from_le_bytes([NAMESPACE, 0, 0, 0]);
    words(slot, [pair(shape, 0), 0, 0, 0, 0], blob, first_tail, 0)
}

#[expect(clippy::cast_possible_truncation, reason = "keys, lineages and names are much shorter")]
fn words(
    slot: u32,
    head: [u64; 5],
    blob: Blob<'_>,
    first_tail: u32,
    tie: u64,
) -> [u64; RECORD_WORDS] {
    let mut words = [0; RECORD_WORDS];
    words[1..6].copy_from_slice(&head);
    words[6] = pair(first_tail, blob.len() as u32);
    words[7] = blob.first.len() as u64;
    words[8..].copy_from_slice(&blob.inline());
    words[0] = sum(slot, &words, &[blob.first, blob.second], tie);
    words
}

fn sum(slot: u32, words: &[u64; RECORD_WORDS], blob: &[&[u8]], tie: u64) -> u64 {
    let mut head = [0; 72];
    for (bytes, word) in head.chunks_exact_mut(8).zip([slot.into(), tie].iter().chain(&words[1..8]))
    {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    let mut digest = Digest::new(CrcAlgorithm::Crc64Nvme);
    digest.update(&head);
    for part in blob {
        digest.update(part);
    }
    digest.finalize()
}

/// A record as it was found: what it says is not believed before [`Self::is_whole`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    words: [u64; RECORD_WORDS],
}

impl Record {
    pub(super) fn new(bytes: &[u8; RECORD_WORDS * 8]) -> Self {
        Self { words: from_bytes(bytes) }
    }

    /// Whether something stands here, whole or not.
    pub(super) const fn is_there(&self) -> bool {
        self.words[1] != 0
    }

    pub(super) const fn first_tail(&self) -> u32 {
        low(self.words[6])
    }

    /// Length of the blob; none if nothing so long exists.
    pub(super) fn blob_bytes(&self) -> Option<usize> {
        let most = (KEY_BYTES_MAX + LINEAGE_BYTES_MAX).max(2 * NAMESPACE_PART_BYTES_MAX);
        usize::try_from(high(self.words[6])).ok().filter(|&bytes| bytes <= most)
    }

    /// Of the blob, what stands in the record itself.
    pub(super) fn inline(&self) -> [u8; INLINE_BYTES] {
        let mut bytes = [0; INLINE_BYTES];
        for (bytes, word) in bytes.chunks_exact_mut(8).zip(&self.words[8..]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) const fn sum(&self) -> u64 {
        self.words[0]
    }

    /// Whether all of it, and of its blob, is as it was written.
    pub(super) fn is_whole(&self, slot: u32, blob: &[u8], tie: u64) -> bool {
        self.words[0] == sum(slot, &self.words, &[blob], tie)
    }

    /// Where the blob's second part begins.
    pub(super) fn split<'a>(&self, blob: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        blob.split_at_checked(usize::try_from(self.words[7]).ok()?)
    }

    pub(super) const fn is_namespace(&self) -> bool {
        low(self.words[1]).to_le_bytes()[0] == NAMESPACE
    }

    /// Slot of a row's namespace.
    pub(super) const fn namespace(&self) -> u32 {
        high(self.words[5])
    }

    /// What a row's record says; none if it is no row's.
    pub(super) fn row(&self) -> Option<RowFields> {
        let [kind, class, flags, _] = low(self.words[1]).to_le_bytes();
        let class = *Retention::ALL.get(usize::from(class))?;
        (kind == ROW).then_some(RowFields {
            class,
            large: flags & LARGE != 0,
            with_lineage: flags & WITH_LINEAGE != 0,
            len_bytes: high(self.words[1]),
            start: self.words[2],
            expires_at: WallTime(self.words[3]),
            checksum: (flags & SUMMED != 0).then_some(self.words[4]),
            version: low(self.words[5]),
            namespace: high(self.words[5]),
        })
    }
}

/// No tail.
pub(super) const NO_TAIL: u32 = NOWHERE;

const fn pair(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

#[expect(clippy::cast_possible_truncation, reason = "the lower half is what is asked for")]
const fn low(word: u64) -> u32 {
    word as u32
}

const fn high(word: u64) -> u32 {
    low(word >> 32)
}

fn to_words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        let mut whole = [0; 8];
        whole.copy_from_slice(bytes);
        *word = u64::from_le_bytes(whole);
    }
    words
}

/// Words as they stand in memory.
pub(super) fn from_bytes<const N: usize>(bytes: &[u8]) -> [u64; N] {
    to_words(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Blob, RECORD_WORDS, Record, RowFields, TAIL_BYTES, namespace_words, row_words};
    use crate::tablespace::WallTime;
    use kvd_proto::retention::Retention;

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn record(words: &[u64; RECORD_WORDS]) -> Record {
        let mut whole = [0; RECORD_WORDS * 8];
        whole.copy_from_slice(&bytes(words));
        Record::new(&whole)
    }

    #[test]
    fn a_row_comes_back_and_no_damaged_one() {
        let fields = RowFields {
            class: Retention::Short,
            large: true,
            with_lineage: true,
            len_bytes: 77,
            start: 4096,
            expires_at: WallTime(5),
            checksum: Some(6),
            version: 8,
            namespace: 9,
        };
        let (key, lineage) = ([1; 40], [2; 100]);
        let blob = Blob { first: &key, second: &lineage };
        let words = row_words(3, &fields, blob, 11, 12);
        let read = record(&words);
        assert!(read.is_there() && !read.is_namespace());
        assert_eq!((read.first_tail(), read.blob_bytes()), (11, Some(140)));
        let mut found = read.inline().to_vec();
        assert_eq!(blob.tails(), 2);
        for number in 0..2 {
            let tail = bytes(&blob.tail(number, 7));
            assert_eq!(tail[..4], 7_u32.to_le_bytes());
            found.extend(&tail[8..]);
        }
        assert_eq!(found.len(), 64 + 2 * TAIL_BYTES);
        found.truncate(140);
        assert!(read.is_whole(3, &found, 12));
        assert_eq!(read.split(&found), Some((&key[..], &lineage[..])));
        assert_eq!(read.row(), Some(fields));
        assert!(!read.is_whole(4, &found, 12) && !read.is_whole(3, &found, 13));
        for bit in 0..64 * 8 {
            let mut damaged = words;
            damaged[bit / 64] ^= 1 << (bit % 64);
            assert!(!record(&damaged).is_whole(3, &found, 12), "bit {bit}");
        }
        found[139] ^= 1;
        assert!(!read.is_whole(3, &found, 12));
    }

    #[test]
    fn a_namespace_is_no_row() {
        let blob = Blob { first: b"model", second: b"" };
        let read = record(&namespace_words(0, blob, super::NO_TAIL));
        assert!(read.is_namespace() && read.row().is_none());
        assert!(read.is_whole(0, b"model", 0) && blob.tails() == 0);
        assert!(!record(&[0; RECORD_WORDS]).is_there());
    }
}
