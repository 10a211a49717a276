//! The files themselves: what a faultless disk would hold beside what this one does.

use std::collections::BTreeMap;
use std::ops::Range;

use super::config::Faults;
use super::crash::torn;
use super::log::{Event, Log, Patch};
use super::random::Stream;
use crate::fault::Fault;
use crate::operation::{Action, FileId, Memory, Operation};

/// Positions at which misdirected writes land.
const SECTOR_BYTES: usize = 512;

/// Bytes a file may have: it is all in memory.
const FILE_BYTES_MAX: usize = 1 << 32;

#[derive(Clone, Debug, Default)]
struct Contents {
    /// As if nothing had ever gone wrong.
    pristine: Vec<u8>,
    /// As it is.
    actual: Vec<u8>,
}

/// A place that fails until it is healed.
#[derive(Clone, Debug)]
struct BadPlace {
    file: FileId,
    action: Action,
    range: Range<u64>,
    errno: i32,
}

/// All files, the faults, and the log.
#[derive(Debug)]
pub(super) struct Files {
    contents: BTreeMap<FileId, Contents>,
    bad_places: Vec<BadPlace>,
    pub(super) faults: Faults,
    pub(super) log: Log,
    chance: Stream,
}

impl Files {
    pub(super) fn new(faults: Faults, chance: Stream) -> Self {
        let (contents, bad_places) = (BTreeMap::new(), Vec::new());
        Self { contents, bad_places, faults, log: Log::default(), chance }
    }

    /// Gives a file contents, outside of any operation.
    pub(super) fn become_durably(&mut self, file: FileId, bytes: Vec<u8>) {
        let now = self.log.records.len();
        self.log.push(file, now, Event::Became(bytes.clone()));
        self.contents.insert(file, Contents { pristine: bytes.clone(), actual: bytes });
    }

    pub(super) fn knows(&self, file: FileId) -> bool {
        self.contents.contains_key(&file)
    }

    pub(super) fn actual(&self, file: FileId) -> Option<&Vec<u8>> {
        self.contents.get(&file).map(|contents| &contents.actual)
    }

    pub(super) fn pristine(&self, file: FileId) -> Option<&Vec<u8>> {
        self.contents.get(&file).map(|contents| &contents.pristine)
    }

    pub(super) fn break_range(
        &mut self,
        file: FileId,
        action: Action,
        range: Range<u64>,
        errno: i32,
    ) {
        self.bad_places.push(BadPlace { file, action, range, errno });
    }

    pub(super) fn heal(&mut self) {
        self.bad_places.clear();
        self.faults = Faults::default();
    }

    /// Does what the operation says, or what chance makes of it.
    pub(super) fn carry_out(
        &mut self,
        operation: &mut Operation,
        submitted_at: usize,
    ) -> Result<(), Fault> {
        if let Some(fault) = self.bad_place(operation) {
            return Err(fault);
        }
        let (file, offset) = (operation.file(), operation.offset());
        match (operation.action(), operation.memory_mut()) {
            (Action::Read, Some(memory)) => self.read(file, offset, memory),
            (Action::Write, Some(memory)) => self.write(file, offset, memory, submitted_at),
            (Action::Sync, None) => self.sync(file, submitted_at),
            (Action::Read | Action::Write, None) | (Action::Sync, Some(_)) => {
                unreachable!("operations are made with the memory that their action needs")
            }
        }
    }

    fn bad_place(&self, operation: &Operation) -> Option<Fault> {
        let (start, len) = (operation.offset(), operation.len() as u64);
        let end = start.saturating_add(len.max(1));
        let hit = self.bad_places.iter().find(|bad| {
            let overlaps = bad.range.start < end && start < bad.range.end;
            bad.file == operation.file()
                && bad.action == operation.action()
                && (overlaps || bad.action == Action::Sync)
        });
        hit.map(|bad| Fault::Errno(bad.errno))
    }

    fn read(&mut self, file: FileId, offset: u64, memory: &mut Memory) -> Result<(), Fault> {
        let (fails, rots) = (
            self.chance.happens(self.faults.failed_reads),
            self.chance.happens(self.faults.bit_rot),
        );
        if fails {
            return Err(Fault::Errno(libc::EIO));
        }
        let start = place(offset);
        let end = start.saturating_add(memory.len());
        if rots {
            self.rot(file, start..end);
        }
        let contents = self.contents.entry(file).or_default();
        let Some(bytes) = contents.actual.get(start..end) else {
            return Err(Fault::EndOfFile {
                offset,
                transferred: contents.actual.len().saturating_sub(start) as u64,
                asked: memory.len() as u64,
            });
        };
        memory.fill_from(bytes);
        Ok(())
    }

    /// Flips one bit in the range, for good.
    fn rot(&mut self, file: FileId, range: Range<usize>) {
        let at = range.start.saturating_add(self.chance.index(range.len()));
        let bit = self.chance.below(8);
        let contents = self.contents.entry(file).or_default();
        if let Some(byte) = contents.actual.get_mut(at) {
            *byte ^= 1_u8.checked_shl(u32::try_from(bit).unwrap_or(0)).unwrap_or(1);
            let patch = Patch { offset: at, bytes: vec![*byte] };
            let now = self.log.records.len();
            self.log.push(file, now, Event::Rotted(patch));
        }
    }

    fn write(
        &mut self,
        file: FileId,
        offset: u64,
        memory: &Memory,
        submitted_at: usize,
    ) -> Result<(), Fault> {
        let intended = Patch { offset: place(offset), bytes: memory.to_vec() };
        let mut happens = |rate| self.chance.happens(rate);
        let no_space = happens(self.faults.no_space);
        let fails = happens(self.faults.failed_writes);
        let is_lost = happens(self.faults.lost_writes);
        let is_torn = happens(self.faults.torn_writes);
        let is_misdirected = happens(self.faults.misdirected_writes);
        if intended.end() > FILE_BYTES_MAX {
            return Err(Fault::Errno(libc::EFBIG));
        }
        if no_space {
            return Err(Fault::Errno(libc::ENOSPC));
        }
        let contents = self.contents.entry(file).or_default();
        if !fails {
            intended.apply(&mut contents.pristine);
        }
        let happened = if is_lost {
            Vec::new()
        } else if fails || is_torn {
            torn(&intended, SECTOR_BYTES, &mut self.chance)
        } else if is_misdirected {
            let room = contents.actual.len().saturating_sub(intended.bytes.len());
            let sector = self.chance.index(room.div_ceil(SECTOR_BYTES).max(1));
            vec![Patch { offset: sector.saturating_mul(SECTOR_BYTES), ..intended }]
        } else {
            vec![intended]
        };
        for patch in happened {
            patch.apply(&mut contents.actual);
            self.log.push(file, submitted_at, Event::Written(patch));
        }
        if fails { Err(Fault::Errno(libc::EIO)) } else { Ok(()) }
    }

    fn sync(&mut self, file: FileId, submitted_at: usize) -> Result<(), Fault> {
        let ok = !self.chance.happens(self.faults.failed_syncs);
        self.log.push(file, submitted_at, Event::Synced { ok });
        if ok { Ok(()) } else { Err(Fault::Errno(libc::EIO)) }
    }
}

fn place(offset: u64) -> usize {
    usize::try_from(offset).unwrap_or(usize::MAX)
}
