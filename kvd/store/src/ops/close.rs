//! The end of sessions: the socket closes, the process exits, an operator decides.

use kvd_proto::ids::SessionId;

use crate::effects::Outcome;
use crate::rights::{Kind, List};
use crate::slab::NOWHERE;
use crate::store::Store;
use crate::time::Timestamp;

impl Store {
    /// See [`crate::Input::Close`].
    pub(crate) fn close(&mut self, session: SessionId, now: Timestamp) {
        let Some(index) = self.sessions.find(session) else {
            return;
        };
        if self.sessions.at(index).closed {
            return;
        }
        self.withdraw_waits(index);
        self.end_where(index, List::Held, |kind| !kind.outlives_socket());
        if self.sessions.at(index).gone {
            self.end_all(index);
        } else {
            self.linger_all(index, now);
        }
        self.mark_closed(index);
        self.forget_if_over(index);
    }

    /// See [`crate::Input::PeerGone`].
    pub(crate) fn peer_gone(&mut self, session: SessionId) {
        let Some(index) = self.sessions.find(session) else {
            return;
        };
        let held = self.sessions.at_mut(index);
        held.gone = true;
        // A forked child may still use the connection, and then it uses the mapping too.
        if held.closed {
            self.end_all(index);
        }
    }

    /// See [`crate::Input::ReleaseQuarantine`].
    pub(crate) fn release_quarantine(&mut self, session: Option<SessionId>) -> Outcome {
        let before = self.holdings.quarantined_bytes;
        let closed: Vec<u32> = self
            .sessions
            .iter()
            .filter(|(_, held)| held.closed && session.is_none_or(|session| session == held.id))
            .map(|(index, _)| index)
            .collect();
        for index in closed {
            self.end_all(index);
        }
        Outcome::QuarantineReleased { bytes: before - self.holdings.quarantined_bytes }
    }

    /// Ends all that the peer holds; what the daemon itself is busy with stays. A closed session
    /// is forgotten by the end of its last right, so it is not looked at again after that.
    fn end_all(&mut self, session: u32) {
        let lists = List::ALL.map(|list| self.list_of(session, list, Kind::is_the_peers));
        for index in lists.into_iter().flatten() {
            self.end(index);
        }
    }

    fn end_where(&mut self, session: u32, list: List, applies: fn(Kind) -> bool) {
        for index in self.list_of(session, list, applies) {
            self.end(index);
        }
    }

    fn list_of(&self, session: u32, list: List, applies: fn(Kind) -> bool) -> Vec<u32> {
        let mut found = Vec::new();
        let mut index = self.sessions.at(session).heads[list.index()];
        while index != NOWHERE {
            if applies(self.rights.at(index).kind) {
                found.push(index);
            }
            index = self.rights.next(index);
        }
        found
    }
}
