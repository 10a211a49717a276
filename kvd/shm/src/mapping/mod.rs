//! The arena as one process sees it, and the only way to its bytes.
//!
//! Other processes write the same memory at any time. Therefore no `&[u8]` of arena bytes is ever
//! made, not even of bytes that are leased: a reference promises the compiler that nothing changes,
//! and a hostile or buggy peer could break that promise. Bytes leave by copy (`copy_out`), through
//! the kernel (`send_pieces`), or as an address and a length ([`ArenaSlice::as_ptr`]) for those who
//! pass them on to something that does not believe in references either: a Python buffer, a
//! device.
//!
//! `bytes.rs` copies, `foreign.rs` copies from and to memory that Rust does not own, `socket.rs` lets the kernel copy, `slice.rs` is a range that keeps the mapping
//! alive.
//!
//! **Invariant:** every range is checked against the mapping before it is used.

mod bytes;
mod foreign;
mod slice;
mod socket;

pub use foreign::{Foreign, ForeignMut};
pub use slice::ArenaSlice;
pub use socket::{Piece, Stopped};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::mman::ProtFlags;

use crate::advice::{Advice, advise};
use crate::memory_file;
use crate::region::Region;

/// What a mapping may be used for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Reading only; a store faults.
    Read,
    /// Reading and writing.
    ReadWrite,
}

impl Access {
    pub(crate) fn protection(self) -> ProtFlags {
        match self {
            Self::Read => ProtFlags::PROT_READ,
            Self::ReadWrite => ProtFlags::PROT_READ | ProtFlags::PROT_WRITE,
        }
    }
}

/// Tells a memory file from every other one of this host, for as long as somebody holds it: two descriptors with the same
/// answer stand for the same memory. The daemon's own view of it is [`Arena::id`](crate::arena::Arena::id).
///
/// # Errors
/// As `fstat(2)`.
pub fn identity(file: BorrowedFd<'_>) -> Result<[u8; 16], Errno> {
    memory_file::id(file)
}

/// Why a descriptor was not mapped.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// Zero bytes, or more than an address can reach.
    #[error("an arena of {bytes} bytes cannot be mapped")]
    Size {
        /// The size that was announced.
        bytes: u64,
    },
    /// The file is shorter than announced: reading its end would kill the process.
    #[error("the arena is announced with {announced} bytes, its file has {found}")]
    TooShort {
        /// The size that was announced.
        announced: u64,
        /// The size of the file.
        found: u64,
    },
    /// Somebody could still make the file shorter.
    #[error("the arena's file is not sealed against shrinking")]
    NotSealed,
    /// The kernel refused.
    #[error("mapping an arena of {bytes} bytes")]
    Kernel {
        /// The size that was announced.
        bytes: u64,
        /// The kernel's reason.
        #[source]
        source: Errno,
    },
}

/// A mapped arena. All methods may be called from any thread.
///
/// # Panics
/// Every method that takes a range panics if the range leaves the mapping, and every method that
/// writes if the mapping is read-only: ranges come from the daemon's index and are checked when
/// they arrive, so a wrong one here is a bug.
#[derive(Debug)]
pub struct Mapping {
    region: Region,
    access: Access,
}

impl Mapping {
    /// Maps a descriptor that the daemon passed, 2 MiB-aligned, left out of core dumps. The
    /// descriptor is closed; the mapping does not need it.
    ///
    /// # Errors
    /// If the file is shorter than `bytes` or not sealed against shrinking (both checked before a
    /// byte is read), or if the kernel refuses the mapping.
    pub fn map(file: OwnedFd, bytes: u64, access: Access) -> Result<Self, MapError> {
        let failed = |source| MapError::Kernel { bytes, source };
        let length = usize::try_from(bytes)
            .ok()
            .filter(|length| *length > 0 && isize::try_from(*length).is_ok())
            .ok_or(MapError::Size { bytes })?;
        // The seal first: a length that is read before the seal is set may change in between.
        if !memory_file::cannot_shrink(file.as_fd()) {
            return Err(MapError::NotSealed);
        }
        let found = memory_file::length(file.as_fd()).map_err(failed)?;
        if found < bytes {
            return Err(MapError::TooShort { announced: bytes, found });
        }
        let region = Region::map(file.as_fd(), length, access.protection()).map_err(failed)?;
        // Best effort: without it, a core dump of this process is large, nothing else.
        let _refused = advise(&region, 0..length, Advice::NotInDumps);
        Ok(Self::of(region, access))
    }

    pub(crate) fn of(region: Region, access: Access) -> Self {
        Self { region, access }
    }

    pub(crate) fn region(&self) -> &Region {
        &self.region
    }

    /// How many bytes are mapped.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.region.bytes() as u64
    }

    /// What the mapping may be used for.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// The index of the byte at `offset`, of which `len` are about to be read.
    pub(crate) fn readable(&self, offset: u64, len: usize) -> usize {
        let total = self.region.bytes();
        match usize::try_from(offset) {
            Ok(start) if start <= total && len <= total - start => start,
            Ok(_) | Err(_) => panic!("range {offset} + {len} leaves the mapping of {total} bytes"),
        }
    }

    /// As [`Self::readable`], for bytes that are about to be written.
    pub(crate) fn writable(&self, offset: u64, len: usize) -> usize {
        assert!(self.access == Access::ReadWrite, "writing through a read-only mapping");
        self.readable(offset, len)
    }
}
