//! An engine under test, with files, an arena and a way to wait for what was submitted.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kvd_disk::sim::{Faults, Pace, SimConfig, SimControl, SimDisk};
use kvd_disk::{AlignedBuffer, Completion, Config, Disk, Engine, FileId, Memory, Operation, open};
use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::mapping::Mapping;
use kvd_shm::numa::NumaPolicy;
use tempfile::TempDir;

/// The file of most cases.
pub(crate) const FILE: FileId = FileId(3);

/// Another one.
pub(crate) const OTHER: FileId = FileId(u32::MAX);

/// Nothing takes that long; who waits so long has lost something.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    Uring,
    Blocking,
    Sim,
}

pub(crate) struct Rig {
    pub(crate) disk: Box<dyn Disk>,
    pub(crate) control: Option<SimControl>,
    pub(crate) arena: Arc<Mapping>,
    folder: TempDir,
}

pub(crate) const ARENA_BYTES: u64 = 8 << 20;

fn arena() -> Arena {
    let numa = NumaPolicy::Interleave;
    let config = ArenaConfig { bytes: ARENA_BYTES, hugetlb: false, numa, pin: false };
    let arena = Arena::create(config).unwrap();
    arena.touch(0..ARENA_BYTES).unwrap();
    arena
}

impl Rig {
    pub(crate) fn new(kind: Kind, depth: usize) -> Self {
        let arena = Arc::clone(arena().mapping());
        // Beside the sources, not on a tmpfs: direct I/O is part of the cases.
        let folder = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let engine = match kind {
            Kind::Uring => Engine::Uring,
            Kind::Blocking => Engine::Blocking,
            Kind::Sim => {
                let (pace, reorder) = (Pace::Immediate, true);
                let faults = Faults::default();
                let config = SimConfig { seed: 1, depth, pace, reorder, faults };
                let (disk, control) = SimDisk::new(config).unwrap();
                return Self { disk: Box::new(disk), control: Some(control), arena, folder };
            }
        };
        let name = "disk-test".to_owned();
        let opened = open(Config { engine, depth, arena: Some(Arc::clone(&arena)), name }).unwrap();
        Self { disk: opened.disk, control: None, arena, folder }
    }

    pub(crate) fn path(&self, file: FileId) -> PathBuf {
        self.folder.path().join(format!("container-{file}"))
    }

    /// Makes and attaches a file.
    pub(crate) fn make(&mut self, file: FileId, contents: &[u8], flags: i32) {
        std::fs::write(self.path(file), contents).unwrap();
        let handle = self.reopen(file, flags);
        self.disk.attach(file, handle);
    }

    pub(crate) fn reopen(&self, file: FileId, flags: i32) -> File {
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path(file)).unwrap()
    }

    pub(crate) fn contents(&self, file: FileId) -> Vec<u8> {
        match &self.control {
            Some(control) => control.contents(file).unwrap(),
            None => std::fs::read(self.path(file)).unwrap(),
        }
    }

    /// Makes the file shorter behind the disk's back.
    pub(crate) fn truncate(&self, file: FileId, bytes: u64) {
        match &self.control {
            Some(control) => control.resize(file, bytes),
            None => self.reopen(file, 0).set_len(bytes).unwrap(),
        }
    }

    pub(crate) fn arena_memory(&self, offset: u64, len: usize) -> Memory {
        Memory::Arena(self.arena.slice(offset, len))
    }

    /// Waits until nothing is in flight; completions by token.
    pub(crate) fn finish(&mut self) -> BTreeMap<u64, Completion> {
        finish(&mut *self.disk)
    }

    /// Does one operation.
    pub(crate) fn carry_out(&mut self, operation: Operation) -> Completion {
        let token = operation.token();
        self.disk.submit(operation).unwrap();
        let mut done = self.finish();
        assert_eq!(done.len(), 1);
        done.remove(&token).unwrap()
    }

    /// Reads bytes that must be there.
    pub(crate) fn read(&mut self, file: FileId, offset: u64, len: usize) -> Vec<u8> {
        let memory = Memory::Owned(AlignedBuffer::zeroed(len));
        let done = self.carry_out(Operation::read(77, file, offset, memory));
        assert_eq!(done.result, Ok(()), "{len} bytes at {offset}");
        bytes_of(done.memory.unwrap())
    }
}

pub(crate) fn finish(disk: &mut dyn Disk) -> BTreeMap<u64, Completion> {
    let mut done = Vec::new();
    while disk.in_flight() > 0 {
        disk.wait(PATIENCE, &mut done).unwrap();
    }
    let count = done.len();
    let by_token: BTreeMap<_, _> = done.into_iter().map(|done| (done.token, done)).collect();
    assert_eq!(by_token.len(), count, "a completion came twice");
    by_token
}

pub(crate) fn owned(bytes: &[u8]) -> Memory {
    Memory::Owned(AlignedBuffer::copy_of(bytes))
}

pub(crate) fn bytes_of(memory: Memory) -> Vec<u8> {
    match memory {
        Memory::Arena(slice) => slice.to_vec(),
        Memory::Owned(buffer) => buffer.to_vec(),
    }
}

/// Bytes that tell where they belong.
pub(crate) fn pattern(len: usize, salt: u64) -> Vec<u8> {
    let mut state = salt.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}
