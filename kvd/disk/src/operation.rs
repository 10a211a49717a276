//! What goes into a disk and what comes out of it.

use std::fmt;
use std::time::Duration;

use kvd_shm::mapping::ArenaSlice;

use crate::buffer::AlignedBuffer;
use crate::fault::Fault;

/// An attached file, as its owner numbers it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileId(pub u32);

impl fmt::Display for FileId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, out)
    }
}

/// The bytes of an operation. All of them take part.
#[derive(Debug)]
pub enum Memory {
    /// A range of the arena; whoever submits a read into it holds the right to write the range, and
    /// the mapping is writable.
    Arena(ArenaSlice),
    /// Memory of one's own.
    Owned(AlignedBuffer),
}

impl Memory {
    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Arena(slice) => slice.len(),
            Self::Owned(buffer) => buffer.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets all bytes.
    pub(crate) fn fill_from(&mut self, bytes: &[u8]) {
        match self {
            Self::Arena(slice) => slice.copy_from(bytes),
            Self::Owned(buffer) => buffer.copy_from_slice(bytes),
        }
    }

    /// The bytes as a vector of their own.
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Arena(slice) => slice.to_vec(),
            Self::Owned(buffer) => buffer.to_vec(),
        }
    }

    /// Where the bytes are, valid while `self` lives, wherever it is moved to.
    pub(crate) fn address(&self) -> *mut u8 {
        match self {
            Self::Arena(slice) => slice.as_ptr().cast_mut(),
            Self::Owned(buffer) => buffer.address(),
        }
    }
}

/// What is to be done.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// File to memory.
    Read,
    /// Memory to file.
    Write,
    /// Make what was written durable, and the length of the file with it (`fdatasync`).
    Sync,
}

/// One thing to do on one file.
#[derive(Debug)]
pub struct Operation {
    token: u64,
    file: FileId,
    offset: u64,
    action: Action,
    memory: Option<Memory>,
}

impl Operation {
    /// Fills `memory` from the file's bytes at `offset`.
    #[must_use]
    pub fn read(token: u64, file: FileId, offset: u64, memory: Memory) -> Self {
        Self { token, file, offset, action: Action::Read, memory: Some(memory) }
    }

    /// Puts the bytes of `memory` into the file at `offset`.
    #[must_use]
    pub fn write(token: u64, file: FileId, offset: u64, memory: Memory) -> Self {
        Self { token, file, offset, action: Action::Write, memory: Some(memory) }
    }

    /// Makes durable what was written and reaped before.
    #[must_use]
    pub fn sync(token: u64, file: FileId) -> Self {
        Self { token, file, offset: 0, action: Action::Sync, memory: None }
    }

    /// The caller's word for it, which comes back with the completion. Any value, not looked at.
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token
    }

    /// On which file.
    #[must_use]
    pub fn file(&self) -> FileId {
        self.file
    }

    /// From which byte of the file on; 0 for a sync.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// What.
    #[must_use]
    pub fn action(&self) -> Action {
        self.action
    }

    /// The memory; `None` for a sync.
    #[must_use]
    pub fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref()
    }

    pub(crate) fn memory_mut(&mut self) -> Option<&mut Memory> {
        self.memory.as_mut()
    }

    /// Takes the memory back, of an operation that was not accepted.
    #[must_use]
    pub fn into_memory(self) -> Option<Memory> {
        self.memory
    }

    /// How many bytes are to move; 0 for a sync.
    pub(crate) fn len(&self) -> usize {
        self.memory.as_ref().map_or(0, Memory::len)
    }

    pub(crate) fn ended(self, result: Result<(), Fault>, took: Duration) -> Completion {
        Completion { token: self.token, result, memory: self.memory, took }
    }
}

/// An operation that ended.
#[derive(Debug)]
#[must_use = "it holds the memory of the operation"]
pub struct Completion {
    /// The operation's token.
    pub token: u64,
    /// Whether every byte moved.
    pub result: Result<(), Fault>,
    /// The operation's memory; `None` after a sync.
    pub memory: Option<Memory>,
    /// From submission to the end.
    pub took: Duration,
}
