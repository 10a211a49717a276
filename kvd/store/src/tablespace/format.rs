//! Numbers that are the format on a device: magic words, sizes, codes. Whatever changes here
//! changes what old files mean.

/// Version of everything that is described in this room.
pub const FORMAT_VERSION: u32 = 1;

/// Unit of all offsets and lengths on a device, and of the recovery's steps.
pub const BLOCK_BYTES: u64 = BLOCK as u64;

/// The same as a length in memory.
pub(super) const BLOCK: usize = 4096;

pub(super) const SUPERBLOCK_MAGIC: [u8; 8] = *b"IKVDSUPR";
pub(super) const BATCH_MAGIC: [u8; 8] = *b"IKVDJRNL";
pub(super) const HEAD_MAGIC: [u8; 8] = *b"IKVDSNAP";
pub(super) const SEGMENT_MAGIC: [u8; 8] = *b"IKVDSEGM";

/// Counted things (journals, batches, generations, vital records) stay below this number in the life of
/// any device. Larger ones are damage that happens to have a checksum that fits.
pub(super) const NUMBER_END: u64 = 1 << 62;

/// Bytes of the header in front of a batch.
pub(super) const BATCH_HEADER_BYTES: usize = 72;

/// Bytes of the header in front of a segment.
pub(super) const SEGMENT_HEADER_BYTES: usize = 64;

/// A batch takes no more records once its payload has this many bytes.
pub(super) const BATCH_PAYLOAD_BYTES: usize = 128 << 10;

/// Most bytes of records in one batch: full, then one more record of the largest kind with the
/// names that it needs, and repeated ones.
pub(super) const BATCH_PAYLOAD_BYTES_MAX: usize = 448 << 10;

/// A batch is followed by a sync once the vital records that are not yet durable have this many
/// bytes: every batch until then repeats them.
pub(super) const REPEATED_BYTES: usize = 2048;

/// Copies of a superblock and of a snapshot's head, one block each.
pub(super) const COPIES: usize = 2;

/// Where the segments of a snapshot begin.
pub const SEGMENTS_OFFSET: u64 = BLOCK_BYTES * COPIES as u64;

/// A segment takes no more entries once it has this many.
pub(super) const SEGMENT_ENTRIES: usize = 4096;

/// A segment takes no more entries once keys and lineages have this many bytes.
pub(super) const SEGMENT_BYTES: usize = 512 << 10;

/// Most bytes of one segment with its header. Names have 2 KiB at most, for each entry at worst.
pub(super) const SEGMENT_BYTES_MAX: usize = 16 << 20;
