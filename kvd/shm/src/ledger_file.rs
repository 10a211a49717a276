//! A memory file of words that a process keeps about itself, so that its successor can read them: sealed, sparse, and
//! never passed to anybody but whoever keeps it for the successor.
//!
//! Each word is stored at once and whole, and after those before it. So whatever ends the process, the file holds what it
//! had stored until then: nothing is flushed, nothing is synced.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;

use crate::advice::{Advice, advise};
use crate::mapping::{Access, Mapping};
use crate::memory_file::{self, PAGE_BYTES};
use crate::region::Region;
use crate::sync::Ordering;

/// Why there is no such file.
#[derive(Debug, thiserror::Error)]
pub enum LedgerFileError {
    /// A descriptor stands for something else.
    #[error("it is not sealed as a ledger is")]
    NotSealed,
    /// It cannot be mapped.
    #[error("a ledger of {bytes} bytes cannot be mapped")]
    Size {
        /// Its length.
        bytes: u64,
    },
    /// The kernel refused a step.
    #[error("{step}: {source}")]
    Kernel {
        /// What was attempted.
        step: &'static str,
        /// The kernel's reason.
        source: Errno,
    },
}

/// The file and its mapping.
#[derive(Debug)]
pub struct LedgerFile {
    file: OwnedFd,
    mapping: Mapping,
}

impl LedgerFile {
    /// A file of zeros, at least `bytes` long. Only what is stored takes memory.
    ///
    /// # Errors
    /// If the kernel refuses a file, a mapping or the seals.
    pub fn create(bytes: u64) -> Result<Self, LedgerFileError> {
        let failed = |step| move |source| LedgerFileError::Kernel { step, source };
        let length = mappable(bytes)?;
        let (file, _no_seal_against_execution) =
            memory_file::create("infera-kvd-ledger", length, false)
                .map_err(failed("creating the file"))?;
        memory_file::seal_length(file.as_fd()).map_err(failed("sealing the length"))?;
        Self::map(file, length)
    }

    /// The file of an earlier process.
    ///
    /// # Errors
    /// If it is not sealed as such a file is, or cannot be mapped.
    pub fn adopt(file: OwnedFd) -> Result<Self, LedgerFileError> {
        if !memory_file::is_sealed(file.as_fd()) {
            return Err(LedgerFileError::NotSealed);
        }
        let bytes = memory_file::length(file.as_fd())
            .map_err(|source| LedgerFileError::Kernel { step: "reading the length", source })?;
        Self::map(file, mappable(bytes)?)
    }

    fn map(file: OwnedFd, length: usize) -> Result<Self, LedgerFileError> {
        let protection = Access::ReadWrite.protection();
        let region = Region::map(file.as_fd(), length, protection)
            .map_err(|source| LedgerFileError::Kernel { step: "mapping the file", source })?;
        // Best effort: without it, a core dump of this process is larger.
        let _refused = advise(&region, 0..length, Advice::NotInDumps);
        Ok(Self { file, mapping: Mapping::of(region, Access::ReadWrite) })
    }

    /// Its length.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    /// To pass to whoever keeps it.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Stores a word, little-endian, after all that this thread stored before.
    ///
    /// # Panics
    /// If `offset` is not a multiple of eight or leaves the file.
    pub fn store(&self, offset: u64, word: u64) {
        self.mapping.long_word(offset).store(word.to_le(), Ordering::Release);
    }

    /// The word at `offset`.
    ///
    /// # Panics
    /// If `offset` is not a multiple of eight or leaves the file.
    #[must_use]
    pub fn load(&self, offset: u64) -> u64 {
        u64::from_le(self.mapping.long_word(offset).load(Ordering::Acquire))
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// If they leave the file.
    pub fn read(&self, offset: u64, to: &mut [u8]) {
        self.mapping.copy_out(offset, to);
    }
}

fn mappable(bytes: u64) -> Result<usize, LedgerFileError> {
    let length =
        usize::try_from(bytes).ok().and_then(|bytes| bytes.checked_next_multiple_of(PAGE_BYTES));
    length
        .filter(|length| *length > 0 && isize::try_from(*length).is_ok())
        .ok_or(LedgerFileError::Size { bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_successor_reads_what_was_stored_and_holes_take_no_memory() {
        let first = LedgerFile::create(64 * MIB + 1).unwrap();
        first.store(8, 7);
        first.store(64 * MIB, u64::MAX - 1);
        let passed = first.descriptor().try_clone_to_owned().unwrap();
        drop(first);
        let second = LedgerFile::adopt(passed).unwrap();
        assert_eq!((second.bytes(), second.load(8), second.load(16)), (64 * MIB + 4096, 7, 0));
        let mut seen = [1; 12];
        second.read(4, &mut seen);
        assert_eq!(seen, [0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0]);
        second.read(64 * MIB, &mut seen[..8]);
        assert_eq!(seen[..8], (u64::MAX - 1).to_le_bytes());
        let blocks = nix::sys::stat::fstat(second.descriptor()).unwrap().st_blocks;
        assert!(blocks * 512 <= 3 * 4096, "{blocks} blocks");
    }

    #[test]
    fn other_files_are_no_ledgers() {
        let plain = tempfile::tempfile().unwrap();
        plain.set_len(4096).unwrap();
        assert!(matches!(LedgerFile::adopt(plain.into()), Err(LedgerFileError::NotSealed)));
        let (open, _) = memory_file::create("open", 4096, false).unwrap();
        assert!(matches!(LedgerFile::adopt(open), Err(LedgerFileError::NotSealed)));
        let (empty, _) = memory_file::create("empty", 0, false).unwrap();
        memory_file::seal_length(empty.as_fd()).unwrap();
        assert!(matches!(LedgerFile::adopt(empty), Err(LedgerFileError::Size { bytes: 0 })));
        let (socket, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(matches!(LedgerFile::adopt(socket.into()), Err(LedgerFileError::NotSealed)));
        assert!(matches!(LedgerFile::create(u64::MAX), Err(LedgerFileError::Size { .. })));
    }
}
