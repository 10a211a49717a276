//! A device in memory. What is written is there; what was not synced may be gone after a crash;
//! faults are laid over single pieces of work.

use std::collections::{BTreeMap, BTreeSet};

use kvd_store::tablespace::recovery::Recovery;
use kvd_store::tablespace::{SEGMENTS_OFFSET, Settings, Tablespace};
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum File {
    Containers,
    Journal(Half),
    Snapshot(Half),
}

#[derive(Debug, Default)]
pub(crate) struct Platter {
    files: BTreeMap<File, Vec<u8>>,
    /// The same as of the latest syncs.
    durable: BTreeMap<File, Vec<u8>>,
    /// Writes since.
    loose: Vec<(File, usize, Vec<u8>)>,
    /// Work of each kind so far.
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) syncs: u64,
    /// Keys that were ever written, for rules about what must not be.
    pub(crate) written_keys: BTreeSet<Vec<u8>>,
}

impl Platter {
    pub(crate) fn new(bytes: usize) -> Self {
        let mut platter = Self::default();
        for files in [&mut platter.files, &mut platter.durable] {
            files.insert(File::Containers, vec![0xee; bytes]);
        }
        platter
    }

    /// Bytes of a file, as far as they were ever written.
    pub(crate) fn file_mut(&mut self, file: File) -> &mut Vec<u8> {
        self.files.entry(file).or_default()
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
                let (from, to, len) = (index(*offset), index(*arena_offset), *len_bytes as usize);
                let bytes = &self.file_mut(File::Containers)[from..from + len];
                arena[to..to + len].copy_from_slice(bytes);
                let fits = checksum(bytes, key) == *expected;
                let result = match trouble {
                    Trouble::Io | Trouble::NoSpace => Err(LoadFault::Io),
                    Trouble::TimedOut => Err(LoadFault::TimedOut),
                    Trouble::None if !fits => Err(LoadFault::Corrupt),
                    Trouble::None => Ok(()),
                };
                DiskDone::Loaded { load: *load, result, took_us: 100 }
            }
            DiskWork::Spill { spill, offset, len_bytes, arena_offset, checksum: given, key } => {
                let (from, len) = (index(*arena_offset), *len_bytes as usize);
                assert!(offset.is_multiple_of(4096));
                let bytes = &arena[from..from + len];
                let sum = checksum(bytes, key);
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
                    self.write(File::Containers, *offset, bytes);
                }
                DiskDone::Spilled { spill: *spill, result, took_us: 100 }
            }
            DiskWork::Journal { half, offset, bytes, sequence, sync } => {
                let result = outcome(trouble);
                if result.is_ok() {
                    self.write(File::Journal(*half), *offset, bytes);
                }
                if result.is_ok() && *sync {
                    self.syncs += 1;
                    self.sync(&[File::Containers, File::Journal(*half)]);
                }
                DiskDone::Journaled { sequence: *sequence, result }
            }
            DiskWork::Snapshot { half, offset, bytes, sync } => {
                let result = outcome(trouble);
                if result.is_ok() {
                    self.write(File::Snapshot(*half), *offset, bytes);
                }
                if result.is_ok() && *sync {
                    self.sync(&[File::Snapshot(*half)]);
                }
                DiskDone::SnapshotWritten { result }
            }
        }
    }

    fn write(&mut self, file: File, offset: u64, bytes: &[u8]) {
        overwrite(self.file_mut(file), index(offset), bytes);
        self.loose.push((file, index(offset), bytes.to_vec()));
    }

    fn sync(&mut self, files: &[File]) {
        let (synced, loose) = core::mem::take(&mut self.loose)
            .into_iter()
            .partition::<Vec<_>, _>(|(file, ..)| files.contains(file));
        self.loose = loose;
        for (file, at, bytes) in synced {
            overwrite(self.durable.entry(file).or_default(), at, &bytes);
        }
    }

    /// The host loses power: of the writes that were not synced, `survives` says which are there.
    /// What is there afterwards is durable: a daemon syncs what it is about to read.
    pub(crate) fn crash(&mut self, mut survives: impl FnMut() -> bool) {
        for (file, at, bytes) in core::mem::take(&mut self.loose) {
            if survives() {
                overwrite(self.durable.entry(file).or_default(), at, &bytes);
            }
        }
        self.files = self.durable.clone();
    }

    /// What a daemon finds that starts on this device.
    pub(crate) fn recover(&self, settings: Settings) -> Tablespace {
        let file = |file| self.files.get(&file).cloned().unwrap_or_default();
        let mut recovery = Recovery::new(settings);
        let begin = index(SEGMENTS_OFFSET);
        let start = |mut bytes: Vec<u8>| {
            bytes.resize(begin.max(bytes.len()), 0);
            bytes[..begin].to_vec()
        };
        let [a, b] = [Half::A, Half::B].map(|half| start(file(File::Snapshot(half))));
        if let Some((half, head)) = recovery.choose_snapshot(&a, &b) {
            let segments = file(File::Snapshot(half));
            recovery.feed_snapshot(&segments[begin..index(head.end_offset).min(segments.len())]);
        }
        let [a, b] = [Half::A, Half::B].map(|half| file(File::Journal(half)));
        for half in recovery.journal_order() {
            recovery.begin_journal(half);
            recovery.feed_journal(if half == Half::A { &a } else { &b });
        }
        recovery.finish().0
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

fn overwrite(file: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    if file.len() < at + bytes.len() {
        file.resize(at + bytes.len(), 0);
    }
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

pub(crate) fn index(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
