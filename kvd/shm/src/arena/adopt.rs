//! An arena that outlived the process that made it.

use std::os::fd::{AsFd, OwnedFd};

use super::{Access, Arena, ArenaConfig, ArenaError, known_nodes, rounded};
use crate::memory_file::{self, HUGE_PAGE_BYTES, PAGE_BYTES};
use crate::note::NoteBook;
use crate::region::Region;

/// Why a descriptor is not taken for an arena.
#[derive(Debug, thiserror::Error)]
pub enum AdoptError {
    /// It is no sealed memory file, as every arena is.
    #[error("it is not sealed as an arena is")]
    NotSealed,
    /// An arena of another size is wanted.
    #[error("it has {found} bytes, {wanted} are wanted")]
    Size {
        /// Its size.
        found: u64,
        /// The size that was asked for, rounded.
        wanted: u64,
    },
    /// It could not be laid out as asked for.
    #[error(transparent)]
    Arena(#[from] ArenaError),
}

impl Arena {
    /// Takes over a file that [`Arena::create`] made in an earlier process, with its pages as they are: of the size that
    /// `config` asks for, but on the kind of page that it was made on. Touches none of them.
    ///
    /// # Errors
    /// If it can be no such file, has another size, or cannot be mapped.
    pub fn adopt(file: OwnedFd, config: ArenaConfig) -> Result<Self, AdoptError> {
        // The seals first: a length that is read before it is sealed may change in between.
        if !memory_file::is_sealed(file.as_fd()) {
            return Err(AdoptError::NotSealed);
        }
        let nodes = known_nodes(config.numa)?;
        let from_pool = memory_file::is_from_pool(file.as_fd());
        let bytes = rounded(config.bytes, if from_pool { HUGE_PAGE_BYTES } else { PAGE_BYTES })?;
        let failed = |step| move |source| ArenaError::Kernel { step, bytes, source };
        let found = memory_file::length(file.as_fd()).map_err(failed("reading the length"))?;
        if found != bytes as u64 {
            return Err(AdoptError::Size { found, wanted: bytes as u64 });
        }
        let protection = Access::ReadWrite.protection();
        let region =
            Region::map(file.as_fd(), bytes, protection).map_err(failed("mapping the file"))?;
        Ok(Self::of(file, region, from_pool, config, &nodes, NoteBook::default()))
    }
}
