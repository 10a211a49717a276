//! The files of a device in memory, with what a power cut could take away.

use crate::disk::Half;
use crate::tablespace::journal::half_of;
use crate::tablespace::recovery::{Recovery, Report};
use crate::tablespace::{
    JournalWrite, SEGMENTS_OFFSET, Settings, SnapshotWrite, Tablespace, WallTime,
};

pub(super) const JOURNAL_BYTES: usize = 64 << 10;
pub(super) const SPACE_BYTES: u64 = 1 << 20;

pub(super) fn settings(now: u64) -> Settings {
    Settings {
        tag: 0x0123_4567_89ab_cdef,
        journal_bytes: JOURNAL_BYTES as u64,
        snapshot_bytes_max: 1 << 20,
        space_bytes: SPACE_BYTES,
        expected_bytes: SPACE_BYTES,
        hash_seed: 7,
        now: WallTime(now),
    }
}

/// Which file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Journal(Half),
    Snapshot(Half),
}

impl File {
    pub(super) const ALL: [Self; 4] = [
        Self::Journal(Half::A),
        Self::Journal(Half::B),
        Self::Snapshot(Half::A),
        Self::Snapshot(Half::B),
    ];

    const fn index(self) -> usize {
        match self {
            Self::Journal(Half::A) => 0,
            Self::Journal(Half::B) => 1,
            Self::Snapshot(Half::A) => 2,
            Self::Snapshot(Half::B) => 3,
        }
    }
}

#[derive(Clone, Debug)]
struct Unsynced {
    file: File,
    offset: usize,
    before: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) struct Files {
    bytes: [Vec<u8>; 4],
    unsynced: Vec<Unsynced>,
}

impl Files {
    pub(super) fn new() -> Self {
        let journal = vec![0; JOURNAL_BYTES];
        Self { bytes: [journal.clone(), journal, Vec::new(), Vec::new()], unsynced: Vec::new() }
    }

    pub(super) fn at(&self, file: File) -> &[u8] {
        &self.bytes[file.index()]
    }

    pub(super) fn at_mut(&mut self, file: File) -> &mut Vec<u8> {
        &mut self.bytes[file.index()]
    }

    fn write(&mut self, file: File, offset: u64, bytes: &[u8], sync: bool) {
        let offset = usize::try_from(offset).unwrap();
        assert!(offset.is_multiple_of(4096) && bytes.len().is_multiple_of(4096));
        let at = &mut self.bytes[file.index()];
        let end = offset + bytes.len();
        if let File::Journal(_) = file {
            assert!(end <= JOURNAL_BYTES, "written beyond the journal");
        }
        at.resize(at.len().max(end), 0);
        self.unsynced.push(Unsynced { file, offset, before: at[offset..end].to_vec() });
        at[offset..end].copy_from_slice(bytes);
        if sync {
            self.unsynced.retain(|write| write.file != file);
        }
    }

    pub(super) fn write_journal(&mut self, write: &JournalWrite) {
        self.write(File::Journal(write.half), write.offset, &write.bytes, write.sync);
    }

    pub(super) fn write_snapshot(&mut self, write: &SnapshotWrite) {
        self.write(File::Snapshot(write.half), write.offset, &write.bytes, write.sync);
    }

    /// Writes that a power cut could take away.
    pub(super) fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// What is written now survives everything: what a start does before it reads.
    pub(super) fn sync(&mut self) {
        self.unsynced.clear();
    }

    /// Takes away the unsynced writes whose bit is set, or, with `torn`, parts of them.
    pub(super) fn cut_power(&mut self, lost: u64, torn: bool) {
        for (index, write) in
            self.unsynced.drain(..).enumerate().collect::<Vec<_>>().into_iter().rev()
        {
            if lost >> (index % 64) & 1 == 0 {
                continue;
            }
            let at = &mut self.bytes[write.file.index()];
            let keep = if torn { 512.min(write.before.len()) } else { 0 };
            let place = write.offset + keep..write.offset + write.before.len();
            at[place].copy_from_slice(&write.before[keep..]);
        }
    }

    /// What a daemon does at its start, with pieces of some odd length.
    pub(super) fn recover(&self, settings: Settings, piece: usize) -> (Tablespace, Report) {
        let mut recovery = Recovery::new(settings);
        let head = |half| {
            let bytes = self.at(File::Snapshot(half));
            &bytes[..bytes.len().min(usize::try_from(SEGMENTS_OFFSET).unwrap())]
        };
        if let Some((half, chosen)) = recovery.choose_snapshot(head(Half::A), head(Half::B)) {
            let bytes = self.at(File::Snapshot(half));
            let end = bytes.len().min(usize::try_from(chosen.end_offset).unwrap());
            let from = usize::try_from(SEGMENTS_OFFSET).unwrap().min(end);
            bytes[from..end].chunks(piece).for_each(|part| recovery.feed_snapshot(part));
        }
        for half in recovery.journal_order() {
            recovery.begin_journal(half);
            self.at(File::Journal(half)).chunks(piece).for_each(|part| recovery.feed_journal(part));
        }
        recovery.finish()
    }
}

#[test]
fn journals_take_turns() {
    assert_eq!((half_of(1), half_of(2)), (Half::B, Half::A));
}
