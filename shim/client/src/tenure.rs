//! What outlives a connection: the arena, if the next daemon hands out the same one, and what is held in it.
//!
//! The arena is recognised by its file, which no daemon can choose. A client goes on with the mapping that it has: a second
//! one would cost address space and page tables a second time, and addresses that were given to devices would mean nothing.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kvd_shm::mapping::{self, Access, MapError, Mapping};

use crate::attachment::Attachment;
use crate::returns::Returns;

/// For how long the mapping waits, unused, for a daemon that may come back with the same arena. A daemon that stays away
/// would have its memory taken by it.
const MAPPED: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Tenure {
    arena: [u8; 16],
    /// There for as long as an attachment, a view or a ticket uses it.
    mapping: Weak<Mapping>,
    /// The mapping while no connection uses it, and until when.
    kept: Option<(Arc<Mapping>, Instant)>,
    returns: Arc<Returns>,
}

impl Tenure {
    /// Takes the arena that a daemon has passed: goes on with the tenure of an earlier connection if it is the same one,
    /// else begins anew.
    pub(crate) fn enter(
        before: &mut Option<Self>,
        file: OwnedFd,
        arena_bytes: u64,
    ) -> Result<(Arc<Mapping>, Arc<Returns>), MapError> {
        let failed = |source| MapError::Kernel { bytes: arena_bytes, source };
        let arena = mapping::identity(file.as_fd()).map_err(failed)?;
        let map = || Mapping::map(file, arena_bytes, Access::ReadWrite).map(Arc::new);
        if let Some(tenure) = before.as_mut().filter(|tenure| tenure.arena == arena) {
            let known = tenure.mapping.upgrade().filter(|known| known.bytes() == arena_bytes);
            let mapping = known.map_or_else(map, Ok)?;
            tenure.mapping = Arc::downgrade(&mapping);
            tenure.kept = None;
            return Ok((mapping, Arc::clone(&tenure.returns)));
        }
        let (mapping, returns) = (map()?, Arc::default());
        let (weak, kept) = (Arc::downgrade(&mapping), None);
        let now = Self { arena, mapping: weak, kept, returns: Arc::clone(&returns) };
        if let Some(another) = before.replace(now) {
            another.returns.close();
        }
        Ok((mapping, returns))
    }

    /// A connection is lost. If its daemon's arena may come back, the mapping is kept for a while.
    pub(crate) fn wait(&mut self, lost: &Attachment) {
        let until = Instant::now() + MAPPED;
        let mapping = lost.arena.as_ref().filter(|_| lost.abilities.resumes);
        self.kept = mapping.map(|mapping| (Arc::clone(mapping), until));
    }

    /// Lets go of a mapping that has been kept for long enough.
    pub(crate) fn tire(&mut self) {
        self.kept.take_if(|(_, until)| Instant::now() >= *until);
    }
}
