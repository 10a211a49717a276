//! Attached connections and what each of them holds.

use std::collections::BTreeMap;

use kvd_proto::ids::SessionId;

use crate::disk::Waiting;
use crate::input::{Peer, ProcessName};
use crate::rights::List;
use crate::slab::{NOWHERE, Slab};

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    pub(crate) peer: Peer,
    /// Whose it is, if that is certain.
    pub(crate) process: Option<ProcessName>,
    /// End of file came; what is left is quarantined.
    pub(crate) closed: bool,
    /// The process exited, but the daemon still serves what it had sent.
    pub(crate) gone: bool,
    /// Heads of the lists of its rights.
    pub(crate) heads: [u32; List::COUNT],
    pub(crate) leases: u32,
    pub(crate) hand_outs: u32,
    pub(crate) tickets: u32,
    /// What counts against the caps: all of the above but the daemon's own.
    pub(crate) capped: Capped,
    /// Bytes of the extents of all its rights.
    pub(crate) in_flight_bytes: u64,
    pub(crate) refused_total: u64,
    pub(crate) waiting: Waiting,
}

/// The part of a session's holdings that its caps bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Capped {
    pub(crate) leases: u32,
    pub(crate) tickets: u32,
    pub(crate) bytes: u64,
}

impl Session {
    fn new(id: SessionId, peer: Peer, process: Option<ProcessName>) -> Self {
        Self {
            id,
            peer,
            process,
            closed: false,
            gone: false,
            heads: [NOWHERE; List::COUNT],
            leases: 0,
            hand_outs: 0,
            tickets: 0,
            capped: Capped::default(),
            in_flight_bytes: 0,
            refused_total: 0,
            waiting: Waiting::default(),
        }
    }

    pub(crate) fn holds_nothing(&self) -> bool {
        self.heads == [NOWHERE; List::COUNT]
    }
}

#[derive(Debug)]
pub(crate) struct Sessions {
    all: Slab<Session>,
    by_id: BTreeMap<SessionId, u32>,
    /// Forgotten since the caller was last told.
    pub(crate) forgotten: Vec<SessionId>,
}

impl Sessions {
    pub(crate) const fn new() -> Self {
        Self { all: Slab::new(), by_id: BTreeMap::new(), forgotten: Vec::new() }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.all.len()
    }

    /// The place of the new session.
    pub(crate) fn open(&mut self, id: SessionId, peer: Peer, process: Option<ProcessName>) -> u32 {
        let index = self.all.insert(Session::new(id, peer, process));
        self.name(id, index);
        index
    }

    /// A session with a place beyond all others so far.
    pub(crate) fn open_at(
        &mut self,
        index: u32,
        id: SessionId,
        peer: Peer,
        process: Option<ProcessName>,
    ) {
        self.all.insert_at(index, Session::new(id, peer, process));
        self.name(id, index);
    }

    fn name(&mut self, id: SessionId, index: u32) {
        let before = self.by_id.insert(id, index);
        assert!(before.is_none(), "session {id} is opened twice");
    }

    pub(crate) fn find(&self, id: SessionId) -> Option<u32> {
        self.by_id.get(&id).copied()
    }

    /// # Panics
    /// If the session is not open.
    pub(crate) fn open_index(&self, id: SessionId) -> u32 {
        match self.find(id) {
            Some(index) if !self.at(index).closed => index,
            Some(_) | None => panic!("session {id} is not open"),
        }
    }

    pub(crate) fn at(&self, index: u32) -> &Session {
        self.all.at(index)
    }

    pub(crate) fn at_mut(&mut self, index: u32) -> &mut Session {
        self.all.at_mut(index)
    }

    /// Forgets a session that can neither ask nor hold anything any more; whether it is one.
    pub(crate) fn forget_if_over(&mut self, index: u32) -> bool {
        let session = self.all.at(index);
        let is_over = session.closed && session.holds_nothing();
        if is_over {
            self.by_id.remove(&session.id);
            self.forgotten.push(session.id);
            self.all.remove(index);
        }
        is_over
    }

    /// In the order of ids.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Session)> {
        self.by_id.values().map(|&index| (index, self.all.at(index)))
    }
}
