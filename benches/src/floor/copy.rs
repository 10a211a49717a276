//! The fastest copy between a buffer and an arena that one process has for itself, on pages of the same kind as the
//! daemon's: every way that this processor can do, and the language's own.

#![expect(unsafe_code, reason = "the language's own copy needs an address")]

use std::fmt;
use std::sync::Arc;

use anyhow::Context as _;
use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::copy::Method;
use kvd_shm::mapping::Mapping;
use kvd_shm::numa::NumaPolicy;

use crate::content::Content;

/// A way to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// One of the client library's.
    Library(Method),
    /// What `copy_from_slice` compiles to.
    Language,
}

impl fmt::Display for Way {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Library(Method::Words) => "words",
            Self::Library(Method::Strings) => "rep movsb",
            Self::Library(Method::Avx2) => "avx2",
            Self::Library(Method::Avx512) => "avx512",
            Self::Language => "memcpy",
        })
    }
}

/// An arena without a daemon.
#[derive(Debug)]
pub struct PrivateArena {
    arena: Arena,
}

impl PrivateArena {
    /// Creates it as the daemon creates its own, touches it all and fills it with random bytes.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn new(bytes: u64) -> anyhow::Result<Self> {
        let config =
            ArenaConfig { bytes, hugetlb: false, numa: NumaPolicy::Interleave, pin: false };
        let arena = Arena::create(config).context("creating an arena for the floor")?;
        arena.touch(0..bytes).context("touching it")?;
        let mut piece = vec![0; 1 << 20];
        for offset in (0..bytes).step_by(piece.len()) {
            Content::of(&offset.to_le_bytes()).fill(&mut piece);
            let len = piece.len().min(usize::try_from(bytes - offset)?);
            arena.mapping().copy_in(offset, &piece[..len]);
        }
        Ok(Self { arena })
    }

    /// The kind of its pages.
    #[must_use]
    pub fn page_kind(&self) -> &'static str {
        self.arena.page_kind().as_str()
    }

    /// The ways that this processor can do.
    #[must_use]
    pub fn ways() -> Vec<Way> {
        let library = Method::ALL
            .into_iter()
            .filter(|method| *method != Method::Words && method.is_available());
        library.map(Way::Library).chain([Way::Language]).collect()
    }

    /// Copies out of the arena.
    pub fn copy_out(&self, way: Way, offset: u64, to: &mut [u8]) {
        match way {
            Way::Library(method) => self.mapping().copy_out_by(method, offset, to),
            Way::Language => {
                let from = self.mapping().slice(offset, to.len());
                // SAFETY: `from` is as long as `to` and mapped while it lives; nobody else has this arena, and `to` is
                // this process's own memory, so nothing overlaps or changes.
                unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_mut_ptr(), to.len()) };
            }
        }
    }

    /// Copies into the arena.
    pub fn copy_in(&self, way: Way, offset: u64, from: &[u8]) {
        match way {
            Way::Library(method) => self.mapping().copy_in_by(method, offset, from),
            Way::Language => {
                let to = self.mapping().slice(offset, from.len());
                // SAFETY: as in `copy_out`, with the sides exchanged; the mapping was made for writing.
                unsafe {
                    std::ptr::copy_nonoverlapping(from.as_ptr(), to.as_ptr().cast_mut(), from.len())
                };
            }
        }
    }

    fn mapping(&self) -> &Arc<Mapping> {
        self.arena.mapping()
    }
}
