//! What the store asks of a device and what it hears back. Values only: who executes them knows
//! the files, who decides knows why.
//!
//! Work is *pulled*: whoever drives a device asks for it when it has room ([`crate::Input::TakeWork`])
//! and reports what ended ([`crate::Input::WorkDone`]), in any order. Every piece that was taken is
//! answered exactly once, and only when neither the kernel nor anybody else touches its memory any
//! more: the store reuses arena bytes and device bytes on the strength of the answer.

/// Payloads of this length and longer begin on a page of the arena and have their last page alone.
pub const WHOLE_PAGES_FROM: u64 = crate::space::Layout::ARENA.large_from;

/// Names one read from a device into the arena. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LoadId(pub u64);

/// Names one write of a row to a device. Never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpillId(pub u64);

/// Names one promise that something will be on stable storage. Never used twice; 0 is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WaitId(pub u64);

/// Which of the two files that take turns: `journal-a` or `journal-b`, and likewise for snapshots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Half {
    /// The first file.
    A,
    /// The second file.
    B,
}

/// One thing to do on a device.
///
/// Offsets of loads and spills count through all containers as if they were one file; a range may
/// cross from one container into the next. Offsets and lengths on the device are multiples of
/// 4096; the bytes between `len_bytes` and the next multiple mean nothing, but belong to the range
/// on the device. In the arena they belong to the block from [`WHOLE_PAGES_FROM`] on; behind a
/// shorter one, wherever it begins, is somebody else's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiskWork {
    /// Read a block, compare its checksum, leave the bytes in the arena.
    Load {
        /// For [`DiskDone::Loaded`].
        load: LoadId,
        /// Where the block begins on the device.
        offset: u64,
        /// Bytes of the block, 0 included.
        len_bytes: u32,
        /// Where they go.
        arena_offset: u64,
        /// CRC-64/NVME over the bytes and then the key; anything else is [`LoadFault::Corrupt`].
        checksum: u64,
        /// The key that the checksum covers.
        key: Box<[u8]>,
    },
    /// Write a block from the arena. Its bytes do not change meanwhile, unless by a stray write.
    Spill {
        /// For [`DiskDone::Spilled`].
        spill: SpillId,
        /// Where the block begins on the device.
        offset: u64,
        /// Bytes of the block, 0 included.
        len_bytes: u32,
        /// Where they are.
        arena_offset: u64,
        /// The checksum that the client gave: other bytes are [`SpillFault::Mismatch`]. None: to be
        /// computed and reported.
        checksum: Option<u64>,
        /// The key that the checksum covers.
        key: Box<[u8]>,
    },
    /// Write a piece of the journal. There is at most one at a time per device.
    Journal {
        /// Which file.
        half: Half,
        /// Where in the file.
        offset: u64,
        /// What to write: whole blocks of 4096 bytes; empty if only a sync is asked for.
        bytes: Vec<u8>,
        /// For [`DiskDone::Journaled`].
        sequence: u64,
        /// After the write: sync the containers written since the last sync, then this file.
        sync: bool,
    },
    /// Write a piece of a snapshot. There is at most one at a time per device.
    Snapshot {
        /// Which file.
        half: Half,
        /// Where in the file.
        offset: u64,
        /// What to write: whole blocks of 4096 bytes.
        bytes: Vec<u8>,
        /// After the write: sync this file.
        sync: bool,
    },
}

/// How one piece of work ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskDone {
    /// A [`DiskWork::Load`].
    Loaded {
        /// Which.
        load: LoadId,
        /// Ok: the bytes are in the arena and fit the checksum.
        result: Result<(), LoadFault>,
        /// Time from submission to completion.
        took_us: u32,
    },
    /// A [`DiskWork::Spill`].
    Spilled {
        /// Which.
        spill: SpillId,
        /// The checksum of what was written.
        result: Result<u64, SpillFault>,
        /// Time from submission to completion.
        took_us: u32,
    },
    /// A [`DiskWork::Journal`].
    Journaled {
        /// Which.
        sequence: u64,
        /// Whether the bytes are written (and synced, if that was asked for).
        result: Result<(), WriteFault>,
    },
    /// The latest [`DiskWork::Snapshot`].
    SnapshotWritten {
        /// Whether the bytes are written (and synced, if that was asked for).
        result: Result<(), WriteFault>,
    },
}

/// Why a load gave nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadFault {
    /// The device failed, or the file ends too early.
    Io,
    /// The bytes do not fit the checksum.
    Corrupt,
    /// The executor gave the read up, and it is over: nobody writes to the arena any more.
    TimedOut,
}

/// Why a spill failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpillFault {
    /// The device failed.
    Io,
    /// The file system is full.
    NoSpace,
    /// The bytes in the arena do not fit the client's checksum: somebody wrote where he must not.
    /// Nothing needs to have been written.
    Mismatch,
}

/// Why a piece of a journal or of a snapshot is not on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// The write failed.
    Io,
    /// The file system is full.
    NoSpace,
    /// The sync failed: nothing written since the last one can be relied on.
    Sync,
}

/// Why a device is out of use; see [`crate::Input::DeviceFailed`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceFault {
    /// It could not be opened or recovered.
    Unusable,
    /// A journal or snapshot could not be written.
    Journal,
    /// A sync failed.
    Sync,
    /// Too many reads or writes failed one after the other.
    Io,
    /// Its files were removed or moved away: what is written to them is not found at the next start.
    Removed,
}

/// What became of a [`WaitId`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not decided yet.
    Pending,
    /// What was answered outlives the daemon from now on, and with [`super::Durability::Strict`] the
    /// host; the end of what a clear removed outlives both in any case.
    Met,
    /// It may not: the device failed or refused, or the block was replaced or removed before. Also
    /// the answer for a wait that is unknown or was decided and asked for before.
    Failed,
}
