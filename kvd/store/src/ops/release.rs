//! Rights given back: leases, tickets, and hand-outs by the next request.

use kvd_proto::ids::{SessionId, TicketId};
use kvd_proto::refusal::Refusal;

use crate::effects::Outcome;
use crate::input::Ids;
use crate::rights::{Kind, List, Right};
use crate::slab::NOWHERE;
use crate::store::Store;
use crate::time::Timestamp;

impl Store {
    /// See [`crate::Input::Release`].
    pub(crate) fn release(&mut self, session: SessionId, leases: Ids<'_>) -> Outcome {
        let session = self.sessions.open_index(session);
        let (mut released, mut unknown) = (0, 0);
        for lease in leases.iter() {
            let found = self.rights.by_name(lease.0).filter(|&index| {
                let right = self.rights.at(index);
                right.session == session && matches!(right.kind, Kind::Lease | Kind::DaemonLease)
            });
            match found {
                Some(index) => {
                    self.end(index);
                    released += 1;
                }
                None => unknown += 1,
            }
        }
        self.totals.stale_releases_total += u64::from(unknown);
        Outcome::Released { released, unknown }
    }

    /// See [`crate::Input::Cancel`].
    pub(crate) fn cancel(
        &mut self,
        session: SessionId,
        ticket: TicketId,
        linger: bool,
        now: Timestamp,
    ) -> Outcome {
        let found = self.ticket(session, ticket);
        let cancelled = found.map(|index| self.cancel_ticket(index, linger, now));
        Outcome::Cancelled(self.counted(cancelled))
    }

    fn cancel_ticket(&mut self, index: u32, linger: bool, now: Timestamp) {
        if !linger {
            self.end(index);
            return;
        }
        // The extent becomes an orphan that a lingering right pins, and is somebody's all the time.
        let right = Right { kind: Kind::Lingering, ..*self.rights.at(index) };
        let lingering = self.grant(right);
        self.withdraw(index);
        self.space.let_go(right.extent);
        self.rights.linger(lingering, now.after(self.config.view_grace_ms));
    }

    /// The open ticket of this name, if it is the session's.
    pub(crate) fn ticket(&self, session: SessionId, ticket: TicketId) -> Result<u32, Refusal> {
        let session = self.sessions.open_index(session);
        let index = self.rights.by_name(ticket.0).ok_or(Refusal::UnknownTicket)?;
        let right = self.rights.at(index);
        if !right.kind.is_ticket() {
            return Err(Refusal::UnknownTicket);
        }
        if right.session != session {
            return Err(Refusal::WrongOwner);
        }
        Ok(index)
    }

    /// See [`crate::Input::NextRequest`].
    pub(crate) fn next_request(&mut self, session: SessionId, now: Timestamp) {
        let session = self.sessions.open_index(session);
        self.linger_all(session, now);
    }

    pub(crate) fn linger_all(&mut self, session: u32, now: Timestamp) {
        loop {
            let index = self.sessions.at(session).heads[List::Handed.index()];
            if index == NOWHERE {
                return;
            }
            self.linger(index, now);
        }
    }
}
