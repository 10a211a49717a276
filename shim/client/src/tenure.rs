//! What outlives a connection: the arena, if the next daemon hands out the same one, and what is held in it.
//!
//! The arena is recognised by its file, which no daemon can choose. A client goes on with the mapping that it has: a second
//! one would cost address space and page tables a second time, and addresses that were given to devices would mean nothing.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use kvd_shm::mapping::{self, Access, MapError, Mapping};

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

    /// A connection is lost to a daemon whose arena may come back: its mapping is kept for a while.
    pub(crate) fn keep(&mut self, mapping: Arc<Mapping>, now: Instant) {
        self.kept = Some((mapping, now + MAPPED));
    }

    /// Lets go of a mapping that has been kept for long enough.
    pub(crate) fn tire(&mut self, now: Instant) {
        self.kept.take_if(|(_, until)| now >= *until);
    }
}

#[cfg(test)]
mod tests {
    use kvd_proto::ids::{Epoch, SessionId, TicketId};
    use kvd_shm::arena::{Arena, ArenaConfig};
    use kvd_shm::numa::NumaPolicy;

    use super::*;

    const BYTES: u64 = 1 << 20;

    fn arena() -> Arena {
        let numa = NumaPolicy::Interleave;
        let config = ArenaConfig { bytes: BYTES, hugetlb: false, numa, pin: false };
        Arena::create(config).expect("an arena")
    }

    fn enter(tenure: &mut Option<Tenure>, arena: &Arena) -> (Arc<Mapping>, Arc<Returns>) {
        let file = arena.descriptor().try_clone_to_owned().expect("a descriptor");
        Tenure::enter(tenure, file, BYTES).expect("a mapping")
    }

    #[test]
    fn the_same_file_is_the_same_arena_and_another_one_ends_what_was_held() {
        let (one, other) = (arena(), arena());
        let mut tenure = None;
        let (mapping, returns) = enter(&mut tenure, &one);
        let (again, same) = enter(&mut tenure, &one);
        assert!(Arc::ptr_eq(&mapping, &again) && Arc::ptr_eq(&returns, &same));
        let connection = (Epoch(1), SessionId(1));
        returns.attached(connection, true, |_| ());
        let (another, fresh) = enter(&mut tenure, &other);
        assert!(!Arc::ptr_eq(&mapping, &another) && !Arc::ptr_eq(&returns, &fresh));
        assert!(!returns.add_ticket(connection, TicketId(1)), "closed");
        // Back to the first one: nobody knows any more what was held there.
        let (_, fresh) = enter(&mut tenure, &one);
        assert!(!Arc::ptr_eq(&returns, &fresh));
    }

    #[test]
    fn a_mapping_waits_for_a_while_and_what_is_held_for_ever() {
        let arena = arena();
        let mut tenure = None;
        let (mapping, returns) = enter(&mut tenure, &arena);
        let (now, lost) = (Instant::now(), Arc::downgrade(&mapping));
        let kept = tenure.as_mut().expect("entered");
        kept.keep(mapping, now);
        kept.tire(now + MAPPED - Duration::from_millis(1));
        assert!(lost.upgrade().is_some());
        kept.tire(now + MAPPED);
        assert!(lost.upgrade().is_none());
        let (_, same) = enter(&mut tenure, &arena);
        assert!(Arc::ptr_eq(&returns, &same));
    }

    #[test]
    fn a_mapping_of_another_length_is_not_used() {
        let arena = arena();
        let mut tenure = None;
        let (whole, returns) = enter(&mut tenure, &arena);
        let file = arena.descriptor().try_clone_to_owned().expect("a descriptor");
        let (half, same) = Tenure::enter(&mut tenure, file, BYTES / 2).expect("a mapping");
        assert_eq!((whole.bytes(), half.bytes()), (BYTES, BYTES / 2));
        assert!(Arc::ptr_eq(&returns, &same));
    }
}
