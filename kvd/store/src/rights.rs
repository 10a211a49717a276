//! Who may read or write which extent. A right is named by its place in a table and by how often
//! that place was used before, so that a stale name never means somebody else's right.

use std::collections::VecDeque;

use crate::slab::NOWHERE;
use crate::space::ExtentId;
use crate::time::Timestamp;

/// What a right allows, and who gives it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The client writes and commits.
    Ticket,
    /// The daemon writes what arrives on the socket, and commits.
    DaemonTicket,
    /// The client reads until it releases.
    Lease,
    /// The daemon reads until it has sent the bytes.
    DaemonLease,
    /// A protocol-1 client reads until its next request.
    HandOut,
    /// A protocol-1 client may still look until the grace time is over.
    Lingering,
}

impl Kind {
    /// Which list of its session the right is in.
    pub(crate) const fn list(self) -> List {
        match self {
            Self::Ticket | Self::DaemonTicket | Self::Lease | Self::DaemonLease => List::Held,
            Self::HandOut => List::Handed,
            Self::Lingering => List::Lingering,
        }
    }

    pub(crate) const fn is_ticket(self) -> bool {
        matches!(self, Self::Ticket | Self::DaemonTicket)
    }

    /// Whether the right ends with the peer's process; the others are the daemon's own.
    pub(crate) const fn is_the_peers(self) -> bool {
        !matches!(self, Self::DaemonTicket | Self::DaemonLease)
    }

    /// Whether a client may use its extent after its socket is closed.
    pub(crate) const fn outlives_socket(self) -> bool {
        matches!(self, Self::Ticket | Self::Lease)
    }
}

/// The lists of a session's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum List {
    /// Until given back.
    Held,
    /// Until the next request.
    Handed,
    /// Until the grace time is over.
    Lingering,
}

impl List {
    pub(crate) const COUNT: usize = 3;
    pub(crate) const ALL: [Self; Self::COUNT] = [Self::Held, Self::Handed, Self::Lingering];

    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Right {
    pub(crate) kind: Kind,
    /// Place of its session in the table of sessions.
    pub(crate) session: u32,
    pub(crate) extent: ExtentId,
    /// Tickets: payload bytes asked for.
    pub(crate) asked_bytes: u32,
    /// Tickets: reserved before the class was known, perhaps from the reserve.
    pub(crate) owes_reserve: bool,
    /// Lingering: end of the grace time.
    pub(crate) until: Timestamp,
}

/// Numbers of the neighbours in two lists: the session's, and that of all lingering rights.
#[derive(Clone, Copy, Debug)]
struct Links {
    previous: u32,
    next: u32,
    older: u32,
    newer: u32,
}

const UNLINKED: Links = Links { previous: NOWHERE, next: NOWHERE, older: NOWHERE, newer: NOWHERE };

#[derive(Debug)]
struct Slot {
    uses: u32,
    links: Links,
    right: Option<Right>,
}

#[derive(Debug)]
pub(crate) struct Rights {
    slots: Vec<Slot>,
    /// Numbers to use again, from the end on; those beyond `preferred` at the beginning.
    vacant: VecDeque<u32>,
    /// Numbers below this are used first.
    preferred: u32,
    oldest: u32,
    newest: u32,
}

impl Rights {
    pub(crate) const fn new(preferred: u32) -> Self {
        Self {
            slots: Vec::new(),
            vacant: VecDeque::new(),
            preferred,
            oldest: NOWHERE,
            newest: NOWHERE,
        }
    }

    /// The number that the next right gets.
    pub(crate) fn next_index(&self) -> u32 {
        let end = u32::try_from(self.slots.len()).unwrap_or(NOWHERE);
        self.vacant.back().copied().unwrap_or(end)
    }

    /// How often the place of a right was used.
    pub(crate) fn uses(&self, index: u32) -> u32 {
        self.slots[index as usize].uses
    }

    /// Adds a right at the head of a list of its session.
    pub(crate) fn insert(&mut self, right: Right, head: &mut u32) -> u32 {
        let index = self.vacant.pop_back().unwrap_or_else(|| self.new_slot());
        let slot = &mut self.slots[index as usize];
        slot.uses += 1;
        slot.links = UNLINKED;
        slot.right = Some(right);
        self.link(index, head);
        index
    }

    /// Adds a right at a place beyond all that were used so far.
    ///
    /// # Panics
    /// If the place is not beyond them.
    pub(crate) fn insert_at(&mut self, index: u32, uses: u32, right: Right, head: &mut u32) {
        assert!(self.slots.len() <= index as usize, "right {index} exists");
        let unused = || Slot { uses: 0, links: UNLINKED, right: None };
        self.slots.resize_with(index as usize, unused);
        self.slots.push(Slot { uses, links: UNLINKED, right: Some(right) });
        self.link(index, head);
    }

    /// After the last [`Self::insert_at`]: how often each place was used so far.
    pub(crate) fn resume(&mut self, uses: &[u32]) {
        let unused = || Slot { uses: 0, links: UNLINKED, right: None };
        self.slots.resize_with(self.slots.len().max(uses.len()), unused);
        for (slot, &uses) in self.slots.iter_mut().zip(uses) {
            slot.uses = uses;
        }
        for index in (0..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.right.is_none() && slot.uses < u32::MAX)
            .map(|(index, _)| index)
            .collect::<Vec<u32>>()
            .into_iter()
            .rev()
        {
            self.vacate(index);
        }
    }

    /// Ends a right; `head` is that of the list it is in.
    pub(crate) fn remove(&mut self, index: u32, head: &mut u32) -> Right {
        self.unlink(index, head);
        let slot = &mut self.slots[index as usize];
        let Some(right) = slot.right.take() else {
            panic!("right {index} ended twice");
        };
        if slot.uses < u32::MAX {
            self.vacate(index);
        }
        right
    }

    pub(crate) fn at(&self, index: u32) -> &Right {
        match &self.slots[index as usize].right {
            Some(right) => right,
            None => panic!("right {index} does not exist"),
        }
    }

    pub(crate) fn get(&self, index: u32) -> Option<&Right> {
        self.slots.get(index as usize)?.right.as_ref()
    }

    /// The right in `list` after `index`.
    pub(crate) fn next(&self, index: u32) -> u32 {
        self.slots[index as usize].links.next
    }

    /// The name that clients see.
    pub(crate) fn name(&self, index: u32) -> u64 {
        (u64::from(self.slots[index as usize].uses) << 32) | u64::from(index)
    }

    /// The right that clients call `name`, if it has not ended.
    pub(crate) fn by_name(&self, name: u64) -> Option<u32> {
        let index = u32::try_from(name & u64::from(u32::MAX)).ok()?;
        let slot = self.slots.get(index as usize)?;
        (slot.right.is_some() && u64::from(slot.uses) == name >> 32).then_some(index)
    }

    /// Changes the kind of a right, which moves from one list of its session to another.
    pub(crate) fn change(&mut self, index: u32, kind: Kind, heads: &mut [u32; List::COUNT]) {
        let from = self.at(index).kind.list();
        self.unlink(index, &mut heads[from.index()]);
        if let Some(right) = &mut self.slots[index as usize].right {
            right.kind = kind;
        }
        self.link(index, &mut heads[kind.list().index()]);
    }

    /// Takes a right out of the list of its session, whose head this is, before it joins another one.
    pub(crate) fn leave(&mut self, index: u32, head: &mut u32) {
        self.unlink(index, head);
    }

    /// Puts a right that has left its session into the list of another one.
    pub(crate) fn join(&mut self, index: u32, session: u32, head: &mut u32) {
        if let Some(right) = &mut self.slots[index as usize].right {
            right.session = session;
        }
        self.link(index, head);
    }

    /// Starts the grace time of a right. Ends are added in the order of time.
    pub(crate) fn linger(&mut self, index: u32, until: Timestamp) {
        let older = self.newest;
        let slot = &mut self.slots[index as usize];
        slot.links.older = older;
        slot.links.newer = NOWHERE;
        if let Some(right) = &mut slot.right {
            right.until = until;
        }
        if older == NOWHERE {
            self.oldest = index;
        } else {
            self.slots[older as usize].links.newer = index;
        }
        self.newest = index;
    }

    /// Takes a right out of the order of grace times.
    pub(crate) fn stop_lingering(&mut self, index: u32) {
        let Links { older, newer, .. } = self.slots[index as usize].links;
        if older == NOWHERE {
            assert!(self.oldest == index, "right {index} does not linger");
            self.oldest = newer;
        } else {
            self.slots[older as usize].links.newer = newer;
        }
        if newer == NOWHERE {
            self.newest = older;
        } else {
            self.slots[newer as usize].links.older = older;
        }
    }

    /// The lingering right whose grace time ends first.
    pub(crate) fn oldest_lingering(&self) -> Option<u32> {
        (self.oldest != NOWHERE).then_some(self.oldest)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Right)> {
        (0..).zip(&self.slots).filter_map(|(index, slot)| Some((index, slot.right.as_ref()?)))
    }

    fn vacate(&mut self, index: u32) {
        if index < self.preferred {
            self.vacant.push_back(index);
        } else {
            self.vacant.push_front(index);
        }
    }

    fn new_slot(&mut self) -> u32 {
        let index = u32::try_from(self.slots.len()).unwrap_or(NOWHERE);
        assert!(index != NOWHERE, "4 billion rights");
        self.slots.push(Slot { uses: 0, links: UNLINKED, right: None });
        index
    }

    fn link(&mut self, index: u32, head: &mut u32) {
        let next = core::mem::replace(head, index);
        let links = &mut self.slots[index as usize].links;
        links.previous = NOWHERE;
        links.next = next;
        if next != NOWHERE {
            self.slots[next as usize].links.previous = index;
        }
    }

    fn unlink(&mut self, index: u32, head: &mut u32) {
        let Links { previous, next, .. } = self.slots[index as usize].links;
        if previous == NOWHERE {
            assert!(*head == index, "right {index} is not in this list");
            *head = next;
        } else {
            self.slots[previous as usize].links.next = next;
        }
        if next != NOWHERE {
            self.slots[next as usize].links.previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Kind, List, Right, Rights};
    use crate::slab::NOWHERE;
    use crate::space::ExtentId;
    use crate::time::Timestamp;

    fn right() -> Right {
        Right {
            kind: Kind::HandOut,
            session: 0,
            extent: ExtentId(0),
            asked_bytes: 0,
            owes_reserve: false,
            until: Timestamp(0),
        }
    }

    #[test]
    fn a_stale_name_means_nothing() {
        let (mut rights, mut head) = (Rights::new(u32::MAX), NOWHERE);
        let first = rights.insert(right(), &mut head);
        let name = rights.name(first);
        assert!(name != 0);
        assert_eq!(rights.by_name(name), Some(first));
        rights.remove(first, &mut head);
        assert_eq!(rights.by_name(name), None);
        assert_eq!(rights.insert(right(), &mut head), first);
        assert_eq!(rights.by_name(name), None);
        assert_ne!(rights.name(first), name);
        assert_eq!(rights.by_name(0), None);
        assert_eq!(rights.by_name(u64::MAX), None);
    }

    #[test]
    fn lists_hold_through_changes() {
        let (mut rights, mut heads) = (Rights::new(u32::MAX), [NOWHERE; List::COUNT]);
        let all: Vec<u32> = (0..4).map(|_| rights.insert(right(), &mut heads[1])).collect();
        for &index in &all[..3] {
            rights.change(index, Kind::Lingering, &mut heads);
            rights.linger(index, Timestamp(5));
        }
        rights.stop_lingering(all[1]);
        rights.change(all[1], Kind::HandOut, &mut heads);
        let [_, handed, lingering] = heads;
        assert_eq!((handed, rights.next(handed)), (all[1], all[3]));
        assert_eq!((lingering, rights.next(lingering)), (all[2], all[0]));
        assert_eq!(rights.oldest_lingering(), Some(all[0]));
        rights.stop_lingering(all[0]);
        rights.remove(all[0], &mut heads[2]);
        assert_eq!(rights.oldest_lingering(), Some(all[2]));
    }
}
