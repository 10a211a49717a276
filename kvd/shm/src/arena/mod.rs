//! The arena: one sealed anonymous file that the daemon owns and every engine maps.
//!
//! [`Arena::create`] lays it out and seals it; no memory is behind it yet. The daemon's touch
//! threads then call [`Arena::touch`] piece by piece, and extents are handed out only from pieces
//! that were touched, so that no client ever pays (or is charged) for a first touch.
//!
//! [`Arena::adopt`] takes over an arena that an earlier process made so, with all that is in it.
//!
//! **Invariant:** after `create` returns, the file's length never changes, in any process.

mod adopt;
mod touch;

pub use adopt::AdoptError;
pub use touch::{TouchError, TouchReport};

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use nix::errno::Errno;

use crate::advice::{Advice, advise};
use crate::mapping::{Access, Mapping};
use crate::memory_file::{self, HUGE_PAGE_BYTES, PAGE_BYTES};
use crate::note::{Facility, Note, NoteBook};
use crate::numa::{self, NumaPolicy};
use crate::region::Region;
use touch::Tally;

/// What an arena is to be.
#[derive(Clone, Copy, Debug)]
pub struct ArenaConfig {
    /// Size in bytes; rounded up to 4 KiB, to 2 MiB with `hugetlb`.
    pub bytes: u64,
    /// Take pages from the reserved huge page pool, if it has room.
    pub hugetlb: bool,
    /// On which memory nodes the pages go.
    pub numa: NumaPolicy,
    /// Lock touched pages in memory.
    pub pin: bool,
}

/// What kind of pages are behind the arena.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PageKind {
    /// 2 MiB pages from the reserved pool.
    HugeTlb,
    /// 2 MiB pages that came with the first touch.
    Transparent,
    /// 2 MiB pages made of small ones after the first touch.
    Collapsed,
    /// 4 KiB pages.
    Small,
}

impl PageKind {
    /// A stable name for logs and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::HugeTlb => "hugetlb",
            Self::Transparent => "transparent",
            Self::Collapsed => "collapsed",
            Self::Small => "small",
        }
    }
}

/// Why there is no arena.
#[derive(Debug, thiserror::Error)]
pub enum ArenaError {
    /// Zero bytes, or more than an address can reach.
    #[error("an arena of {bytes} bytes cannot be mapped")]
    Size {
        /// The size asked for.
        bytes: u64,
    },
    /// `NumaPolicy::Bind` names a node without memory.
    #[error("memory node {node} does not exist or has no memory; there are {nodes:?}")]
    NoSuchNode {
        /// The node asked for.
        node: u32,
        /// The nodes that have memory.
        nodes: Vec<u32>,
    },
    /// A step that cannot be done without failed.
    #[error("{step} for an arena of {bytes} bytes")]
    Kernel {
        /// What was attempted.
        step: &'static str,
        /// The size, rounded.
        bytes: usize,
        /// The kernel's reason.
        #[source]
        source: Errno,
    },
}

/// The daemon's shared memory.
#[derive(Debug)]
pub struct Arena {
    file: OwnedFd,
    mapping: Arc<Mapping>,
    from_pool: bool,
    pin: bool,
    notes: NoteBook,
    tally: Tally,
}

impl Arena {
    /// Creates, maps and seals an arena. Touches no page of it.
    ///
    /// What could not be had but is not needed is told by [`Arena::take_notes`].
    ///
    /// # Errors
    /// If the size is zero or cannot be mapped, if a node to bind to does not exist, or if the
    /// kernel refuses a file, a mapping or the seals.
    pub fn create(config: ArenaConfig) -> Result<Self, ArenaError> {
        let notes = NoteBook::default();
        let nodes = known_nodes(config.numa)?;
        let pooled = if config.hugetlb { from_pool(config.bytes, &notes) } else { None };
        let from_pool = pooled.is_some();
        let (file, region) = match pooled {
            Some(laid_out) => laid_out,
            None => lay_out(rounded(config.bytes, PAGE_BYTES)?, false, &notes)?,
        };
        Ok(Self::of(file, region, from_pool, config, &nodes, notes))
    }

    /// A file and its mapping, told how it is going to be used.
    fn of(
        file: OwnedFd,
        region: Region,
        from_pool: bool,
        config: ArenaConfig,
        nodes: &[u32],
        notes: NoteBook,
    ) -> Self {
        let whole = 0..region.bytes();
        if let Err(errno) = advise(&region, whole.clone(), Advice::NotInDumps) {
            notes.add(Facility::DontDump, errno);
        }
        if !from_pool && let Err(errno) = advise(&region, whole, Advice::HugePages) {
            notes.add(Facility::HugePageAdvice, errno);
        }
        if let Err(errno) = numa::apply(&region, config.numa, nodes) {
            notes.add(Facility::NumaPolicy, errno);
        }
        let mapping = Arc::new(Mapping::of(region, Access::ReadWrite));
        Self { file, mapping, from_pool, pin: config.pin, notes, tally: Tally::default() }
    }

    /// Tells this file from every other one of this host, for as long as somebody holds it. Two descriptors with the
    /// same answer stand for the same memory.
    ///
    /// # Errors
    /// As `fstat(2)`.
    pub fn id(&self) -> Result<[u8; 16], Errno> {
        memory_file::id(self.file.as_fd())
    }

    /// Size in bytes, rounded up from what was asked for. The file is exactly this long.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.mapping.bytes()
    }

    /// The sealed file, to pass to clients.
    #[must_use]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The daemon's own view of the memory.
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// The kind of page that most touched bytes are on; [`PageKind::Small`] before any touch,
    /// unless the pages come from the pool.
    #[must_use]
    pub fn page_kind(&self) -> PageKind {
        if self.from_pool { PageKind::HugeTlb } else { self.tally.prevailing() }
    }

    /// Whether every page touched so far is locked in memory.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pin && !self.notes.mentions(Facility::Lock)
    }

    /// What the kernel refused since the last call. Each facility is told once.
    #[must_use]
    pub fn take_notes(&self) -> Vec<Note> {
        self.notes.take_untold()
    }
}

/// The file and its mapping, sealed, or `None` and a note if the pool has no room for it.
fn from_pool(bytes: u64, notes: &NoteBook) -> Option<(OwnedFd, Region)> {
    let attempt = rounded(bytes, HUGE_PAGE_BYTES).and_then(|bytes| lay_out(bytes, true, notes));
    match attempt {
        Ok(laid_out) => Some(laid_out),
        Err(ArenaError::Kernel { source, .. }) => {
            notes.add(Facility::HugeTlb, source);
            None
        }
        Err(ArenaError::Size { .. } | ArenaError::NoSuchNode { .. }) => None,
    }
}

fn lay_out(
    bytes: usize,
    from_pool: bool,
    notes: &NoteBook,
) -> Result<(OwnedFd, Region), ArenaError> {
    let failed = |step| move |source| ArenaError::Kernel { step, bytes, source };
    let (file, refusal) = memory_file::create("infera-kvd-arena", bytes, from_pool)
        .map_err(failed("creating the file"))?;
    if let Some(errno) = refusal {
        notes.add(Facility::NoexecSeal, errno);
    }
    let protection = Access::ReadWrite.protection();
    let region =
        Region::map(file.as_fd(), bytes, protection).map_err(failed("mapping the file"))?;
    memory_file::seal_length(file.as_fd()).map_err(failed("sealing the length"))?;
    Ok((file, region))
}

fn rounded(bytes: u64, unit: usize) -> Result<usize, ArenaError> {
    usize::try_from(bytes)
        .ok()
        .filter(|bytes| *bytes > 0)
        .and_then(|bytes| bytes.checked_next_multiple_of(unit))
        .filter(|bytes| i64::try_from(*bytes).is_ok())
        .ok_or(ArenaError::Size { bytes })
}

/// The nodes that have memory; an error if the policy names another. Where the kernel does not
/// say which there are, it is left to judge the policy itself.
fn known_nodes(policy: NumaPolicy) -> Result<Vec<u32>, ArenaError> {
    let Some(nodes) = numa::nodes_with_memory(Path::new("/sys")) else {
        return Ok(Vec::new());
    };
    match policy {
        NumaPolicy::Bind(node) if !nodes.contains(&node) => {
            Err(ArenaError::NoSuchNode { node, nodes })
        }
        NumaPolicy::Bind(_) | NumaPolicy::Interleave => Ok(nodes),
    }
}
