//! Rights come and go: pins, caps and figures that follow.

use crate::rights::{Kind, Right};
use crate::rows::RowId;
use crate::sessions::Session;
use crate::space::{ExtentId, State};
use crate::store::Store;
use crate::time::Timestamp;

/// Figures over all rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Holdings {
    pub(crate) leases: u64,
    pub(crate) tickets: u64,
    pub(crate) hand_outs: u64,
    /// Bytes of the extents of leases and hand-outs.
    pub(crate) leased_bytes: u64,
    /// Rights that outlive their closed socket.
    pub(crate) quarantined_rights: u64,
    pub(crate) quarantined_bytes: u64,
    /// Bytes that would stay in quarantine if all unobservable peers closed now.
    pub(crate) unknowable_bytes: u64,
}

impl Holdings {
    fn add(&mut self, session: &Session, kind: Kind, bytes: u64) {
        *self.count_mut(kind) += 1;
        if !kind.is_ticket() {
            self.leased_bytes += bytes;
        }
        if kind.outlives_socket() {
            if session.closed {
                self.quarantined_rights += 1;
                self.quarantined_bytes += bytes;
            }
            if session.peer == crate::input::Peer::Unknowable {
                self.unknowable_bytes += bytes;
            }
        }
    }

    fn subtract(&mut self, session: &Session, kind: Kind, bytes: u64) {
        *self.count_mut(kind) -= 1;
        if !kind.is_ticket() {
            self.leased_bytes -= bytes;
        }
        if kind.outlives_socket() {
            if session.closed {
                self.quarantined_rights -= 1;
                self.quarantined_bytes -= bytes;
            }
            if session.peer == crate::input::Peer::Unknowable {
                self.unknowable_bytes -= bytes;
            }
        }
    }

    const fn count_mut(&mut self, kind: Kind) -> &mut u64 {
        match kind {
            Kind::Ticket | Kind::DaemonTicket => &mut self.tickets,
            Kind::Lease | Kind::DaemonLease => &mut self.leases,
            Kind::HandOut | Kind::Lingering => &mut self.hand_outs,
        }
    }
}

impl Session {
    fn add(&mut self, kind: Kind, bytes: u64) {
        self.in_flight_bytes += bytes;
        *self.count_mut(kind) += 1;
        if let Some(capped) = self.capped_mut(kind) {
            *capped += 1;
            self.capped.bytes += bytes;
        }
    }

    fn subtract(&mut self, kind: Kind, bytes: u64) {
        self.in_flight_bytes -= bytes;
        *self.count_mut(kind) -= 1;
        if let Some(capped) = self.capped_mut(kind) {
            *capped -= 1;
            self.capped.bytes -= bytes;
        }
    }

    const fn count_mut(&mut self, kind: Kind) -> &mut u32 {
        match kind {
            Kind::Ticket | Kind::DaemonTicket => &mut self.tickets,
            Kind::Lease | Kind::DaemonLease => &mut self.leases,
            Kind::HandOut | Kind::Lingering => &mut self.hand_outs,
        }
    }

    const fn capped_mut(&mut self, kind: Kind) -> Option<&mut u32> {
        match kind {
            Kind::Ticket => Some(&mut self.capped.tickets),
            Kind::Lease | Kind::HandOut | Kind::Lingering => Some(&mut self.capped.leases),
            Kind::DaemonTicket | Kind::DaemonLease => None,
        }
    }
}

impl Store {
    /// Adds a right; whatever is not a ticket pins its extent.
    pub(crate) fn grant(&mut self, right: Right) -> u32 {
        let Right { kind, session, extent, .. } = right;
        if !kind.is_ticket() {
            self.pin(extent);
        }
        let bytes = self.space[extent].bytes();
        let holder = self.sessions.at_mut(session);
        holder.add(kind, bytes);
        self.holdings.add(holder, kind, bytes);
        let index = self.rights.insert(right, &mut holder.heads[kind.list().index()]);
        self.record_right(index);
        index
    }

    /// Adds a right that a predecessor gave and the ledger knows.
    pub(crate) fn grant_again(&mut self, index: u32, uses: u32, right: Right) {
        let Right { kind, session, extent, .. } = right;
        if !kind.is_ticket() {
            self.space.pin(extent);
        }
        let bytes = self.space[extent].bytes();
        let holder = self.sessions.at_mut(session);
        holder.add(kind, bytes);
        self.holdings.add(holder, kind, bytes);
        self.rights.insert_at(index, uses, right, &mut holder.heads[kind.list().index()]);
    }

    /// Ends a right without touching its extent.
    pub(crate) fn withdraw(&mut self, index: u32) -> Right {
        self.strike_right(index);
        let Right { kind, session, extent, .. } = *self.rights.at(index);
        if kind == Kind::Lingering {
            self.rights.stop_lingering(index);
        }
        let bytes = self.space[extent].bytes();
        let holder = self.sessions.at_mut(session);
        holder.subtract(kind, bytes);
        self.holdings.subtract(holder, kind, bytes);
        self.rights.remove(index, &mut holder.heads[kind.list().index()])
    }

    /// Ends a right: its extent loses a pin, or, with its ticket, its purpose. The session may be
    /// forgotten with it.
    pub(crate) fn end(&mut self, index: u32) {
        let right = self.withdraw(index);
        if right.kind.is_ticket() {
            self.space.let_go(right.extent);
        } else {
            self.unpin(right.extent);
        }
        self.forget_if_over(right.session);
    }

    /// Turns a hand-out into a lingering right, or back.
    pub(crate) fn change(&mut self, index: u32, kind: Kind) {
        let right = *self.rights.at(index);
        let bytes = self.space[right.extent].bytes();
        let holder = self.sessions.at_mut(right.session);
        holder.subtract(right.kind, bytes);
        self.holdings.subtract(holder, right.kind, bytes);
        if right.kind == Kind::Lingering {
            self.rights.stop_lingering(index);
        }
        self.rights.change(index, kind, &mut holder.heads);
        holder.add(kind, bytes);
        self.holdings.add(holder, kind, bytes);
        self.record_change(index);
    }

    /// Makes a right another session's. The one that had it may be forgotten with it.
    pub(crate) fn pass(&mut self, index: u32, heir: u32) {
        let Right { kind, session, extent, .. } = *self.rights.at(index);
        if session == heir {
            return;
        }
        let bytes = self.space[extent].bytes();
        let list = kind.list().index();
        let holder = self.sessions.at_mut(session);
        holder.subtract(kind, bytes);
        self.holdings.subtract(holder, kind, bytes);
        self.rights.leave(index, &mut holder.heads[list]);
        let holder = self.sessions.at_mut(heir);
        holder.add(kind, bytes);
        self.holdings.add(holder, kind, bytes);
        self.rights.join(index, heir, &mut holder.heads[list]);
        self.record_change(index);
        self.forget_if_over(session);
    }

    /// Starts the grace time of a right.
    pub(crate) fn linger(&mut self, index: u32, now: Timestamp) {
        self.change(index, Kind::Lingering);
        self.rights.linger(index, now.after(self.config.view_grace_ms));
    }

    /// The session closed: what outlives its socket is quarantined from now on.
    pub(crate) fn mark_closed(&mut self, session: u32) {
        let mut index = self.sessions.at(session).heads[crate::rights::List::Held.index()];
        while index != crate::slab::NOWHERE {
            let right = self.rights.at(index);
            if right.kind.outlives_socket() {
                self.holdings.quarantined_rights += 1;
                self.holdings.quarantined_bytes += self.space[right.extent].bytes();
            }
            index = self.rights.next(index);
        }
        self.sessions.at_mut(session).closed = true;
    }

    pub(crate) fn pin(&mut self, extent: ExtentId) {
        self.uncount_evictable(extent);
        self.space.pin(extent);
    }

    pub(crate) fn unpin(&mut self, extent: ExtentId) {
        let has_row = self.space[extent].state() == State::Stored;
        self.space.unpin(extent);
        if has_row {
            self.count_evictable(extent);
        }
    }

    /// The row was used.
    pub(crate) fn touch(&mut self, id: RowId) {
        self.ledger.touched(id.0);
        let row = &mut self.rows[id];
        if row.parked {
            row.parked = false;
            self.evict.insert(id, row.class);
        } else {
            self.evict.touch(id, row.class);
        }
    }
}
