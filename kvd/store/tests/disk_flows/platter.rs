//! A device in memory: what is written is there, and faults can be laid over it.

use std::collections::{BTreeMap, BTreeSet};

use kvd_store::{DiskDone, DiskWork, Half, LoadFault, SpillFault, WriteFault};

/// Any checksum will do: the store never computes one. This one tells bytes and keys apart.
pub(crate) fn checksum(bytes: &[u8], key: &[u8]) -> u64 {
    let all = bytes.iter().chain(&[0xff]).chain(key);
    all.fold(0xcbf2_9ce4_8422_2325, |sum, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3).rotate_left(7)
    })
}

/// What goes wrong with one piece of work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Trouble {
    #[default]
    None,
    Io,
    NoSpace,
    TimedOut,
}

#[derive(Debug, Default)]
pub(crate) struct Platter {
    pub(crate) bytes: Vec<u8>,
    pub(crate) journals: BTreeMap<Half, Vec<u8>>,
    pub(crate) snapshots: BTreeMap<Half, Vec<u8>>,
    /// Work of each kind so far.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
    /// Keys that were ever written, for rules about what must not be.
    pub(crate) written_keys: BTreeSet<Vec<u8>>,
}

impl Platter {
    pub(crate) fn new(bytes: usize) -> Self {
        Self { bytes: vec![0xee; bytes], ..Self::default() }
    }

    /// Does what is asked, with the arena at hand, and reports.
    pub(crate) fn perform(
        &mut self,
        work: &DiskWork,
        arena: &mut [u8],
        trouble: Trouble,
    ) -> DiskDone {
        match work {
            DiskWork::Load { load, offset, len_bytes, arena_offset, checksum: expected, key } => {
                self.reads += 1;
                let (from, len) = (index(*offset), *len_bytes as usize);
                let to = index(*arena_offset);
                arena[to..to + len].copy_from_slice(&self.bytes[from..from + len]);
                let fits = checksum(&arena[to..to + len], key) == *expected;
                let result = match trouble {
                    Trouble::Io | Trouble::NoSpace => Err(LoadFault::Io),
                    Trouble::TimedOut => Err(LoadFault::TimedOut),
                    Trouble::None if !fits => Err(LoadFault::Corrupt),
                    Trouble::None => Ok(()),
                };
                DiskDone::Loaded { load: *load, result, took_us: 100 }
            }
            DiskWork::Spill { spill, offset, len_bytes, arena_offset, checksum: given, key } => {
                let (to, len) = (index(*offset), *len_bytes as usize);
                let from = index(*arena_offset);
                assert!(offset.is_multiple_of(4096));
                let sum = checksum(&arena[from..from + len], key);
                let result = match trouble {
                    Trouble::Io | Trouble::TimedOut => Err(SpillFault::Io),
                    Trouble::NoSpace => Err(SpillFault::NoSpace),
                    Trouble::None if given.is_some_and(|given| given != sum) => {
                        Err(SpillFault::Mismatch)
                    }
                    Trouble::None => Ok(sum),
                };
                if result.is_ok() {
                    self.writes += 1;
                    self.written_keys.insert(key.to_vec());
                    self.bytes[to..to + len].copy_from_slice(&arena[from..from + len]);
                }
                DiskDone::Spilled { spill: *spill, result, took_us: 100 }
            }
            DiskWork::Journal { half, offset, bytes, sequence, sync } => {
                let result = outcome(trouble);
                if result.is_ok() {
                    write(self.journals.entry(*half).or_default(), index(*offset), bytes);
                    self.syncs += u64::from(*sync);
                }
                DiskDone::Journaled { sequence: *sequence, result }
            }
            DiskWork::Snapshot { half, offset, bytes, sync: _ } => {
                let result = outcome(trouble);
                if result.is_ok() {
                    write(self.snapshots.entry(*half).or_default(), index(*offset), bytes);
                }
                DiskDone::SnapshotWritten { result }
            }
        }
    }
}

fn outcome(trouble: Trouble) -> Result<(), WriteFault> {
    match trouble {
        Trouble::None => Ok(()),
        Trouble::NoSpace => Err(WriteFault::NoSpace),
        Trouble::Io => Err(WriteFault::Io),
        Trouble::TimedOut => Err(WriteFault::Sync),
    }
}

fn write(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap()
}
