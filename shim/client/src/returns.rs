//! What is held in an arena, and rights on their way back: leases of dropped views and tickets of dropped reservations.
//!
//! Dropping must never wait for a daemon, so a right is only queued here; it travels in front of the
//! next request, or in a frame of its own once enough has gathered. While there is no connection nothing is queued: the
//! next one begins by saying what is held of earlier ones ([`Kept`]), and all else is free by that. What was held by the
//! time belongs to one arena, not to one connection. It also belongs to one process: a forked child's
//! copy takes nothing and is never locked, because a thread of the parent may have had it locked.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;
use kvd_proto::column::ColumnBuf;
use kvd_proto::ids::{LeaseId, SessionId, TicketId};
use kvd_shm::forks;

use crate::attachment::Connection;

/// So many leases are worth a frame of their own while their batch still has views in use.
const LEASES_DUE: usize = 64;

/// Most earlier connections that are named to a daemon. What was held over older ones, and of which no daemon took note,
/// is free when the process ends.
const EARLIER_MAX: usize = 256;

#[derive(Debug)]
pub(crate) struct Returns {
    /// Whose it is, as [`forks::generation`] counts.
    generation: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    leases: HashSet<u64, RandomState>,
    tickets: HashSet<u64, RandomState>,
    /// The connection that there is.
    now: Option<Now>,
    /// Those that are lost, of which no daemon took note. Any of them may have been lent something that never arrived.
    earlier: Vec<SessionId>,
    queue: Queue,
    /// Whether it should not wait for the next request.
    due: bool,
    closed: bool,
}

#[derive(Debug)]
struct Now {
    connection: Connection,
    /// What is held of earlier connections can be given back over it.
    resumes: bool,
}

/// Everything that waits to be sent.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) leases: ColumnBuf<u64>,
    pub(crate) tickets: ColumnBuf<u64>,
}

/// What a daemon has to know of earlier connections.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) leases: ColumnBuf<u64>,
    pub(crate) tickets: ColumnBuf<u64>,
    /// Whatever else they were lent is free.
    pub(crate) sessions: ColumnBuf<u64>,
}

impl Default for Returns {
    fn default() -> Self {
        Self { generation: forks::generation(), state: Mutex::default() }
    }
}

impl Returns {
    /// Views of these leases were made.
    pub(crate) fn hold_leases(&self, leases: impl Iterator<Item = LeaseId>) {
        if let Some(mut state) = self.open() {
            state.leases.extend(leases.map(|lease| lease.0));
        }
    }

    /// A ticket can be used.
    pub(crate) fn hold_ticket(&self, ticket: TicketId) {
        if let Some(mut state) = self.open() {
            state.tickets.insert(ticket.0);
        }
    }

    /// A ticket can't be used any more, and need not be given back.
    pub(crate) fn forget_ticket(&self, ticket: TicketId) {
        if let Some(mut state) = self.open() {
            state.tickets.remove(&ticket.0);
        }
    }

    /// Queues a lease of this connection; true when the queue should be sent now. `last` says that its batch is done.
    pub(crate) fn add_lease(&self, of: Connection, lease: LeaseId, last: bool) -> bool {
        let Some(mut state) = self.open() else {
            return false;
        };
        state.leases.remove(&lease.0);
        if !state.can_return(of) {
            return false;
        }
        state.queue.leases.push(lease.0);
        state.due |= last || state.queue.leases.len() >= LEASES_DUE;
        state.due
    }

    /// Queues a ticket, which is always worth sending: it keeps others from writing.
    pub(crate) fn add_ticket(&self, of: Connection, ticket: TicketId) -> bool {
        let Some(mut state) = self.open() else {
            return false;
        };
        state.tickets.remove(&ticket.0);
        if !state.can_return(of) {
            return false;
        }
        state.queue.tickets.push(ticket.0);
        state.due = true;
        true
    }

    pub(crate) fn are_due(&self) -> bool {
        self.open().is_some_and(|state| state.due)
    }

    /// Hands everything queued to `send` and empties the queue.
    pub(crate) fn drain(&self, send: impl FnOnce(&Queue)) {
        let Some(mut state) = self.open() else {
            return;
        };
        let State { queue, due, .. } = &mut *state;
        if !queue.leases.is_empty() || !queue.tickets.is_empty() {
            send(queue);
        }
        queue.leases.clear();
        queue.tickets.clear();
        *due = false;
    }

    /// There is a connection. If its daemon wants to know what is held of earlier ones, and there were any, `send` is given
    /// that: from then on it is held of this one.
    pub(crate) fn attached(&self, connection: Connection, resumes: bool, send: impl FnOnce(&Kept)) {
        let Some(mut state) = self.open() else {
            return;
        };
        state.now = Some(Now { connection, resumes });
        if resumes && !state.earlier.is_empty() {
            let sessions = state.earlier.iter().map(|session| session.0).collect();
            let (leases, tickets) = (sorted(&state.leases), sorted(&state.tickets));
            send(&Kept { leases, tickets, sessions });
            state.due = true;
        }
    }

    /// The daemon took note of it.
    pub(crate) fn resumed(&self) {
        if let Some(mut state) = self.open() {
            state.earlier.clear();
        }
    }

    /// The connection is lost. What is queued was not held any more.
    pub(crate) fn lost(&self, connection: Connection) {
        let Some(mut state) = self.open() else {
            return;
        };
        state.now = None;
        state.queue = Queue::default();
        state.due = false;
        if state.earlier.len() >= EARLIER_MAX {
            state.earlier.remove(0);
        }
        state.earlier.push(connection.1);
    }

    /// The arena is gone: forget everything and take nothing more.
    pub(crate) fn close(&self) {
        if let Some(mut state) = self.open() {
            *state = State { closed: true, ..State::default() };
        }
    }

    /// The state, if it is this process's and not closed.
    fn open(&self) -> Option<MutexGuard<'_, State>> {
        let ours = self.generation == forks::generation();
        let state = ours.then(|| self.state.lock().unwrap_or_else(PoisonError::into_inner))?;
        (!state.closed).then_some(state)
    }
}

impl State {
    /// Whether a right that was given over `of` can be given back over the present connection.
    fn can_return(&self, of: Connection) -> bool {
        self.now.as_ref().is_some_and(|now| now.resumes || now.connection == of)
    }
}

fn sorted(held: &HashSet<u64, RandomState>) -> ColumnBuf<u64> {
    let mut all: Vec<u64> = held.iter().copied().collect();
    all.sort_unstable();
    all.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use kvd_proto::ids::Epoch;

    use super::*;

    const FIRST: Connection = (Epoch(1), SessionId(1));
    const SECOND: Connection = (Epoch(2), SessionId(2));

    fn drained(returns: &Returns) -> (usize, usize) {
        let mut counts = (0, 0);
        returns.drain(|queue| counts = (queue.leases.len(), queue.tickets.len()));
        counts
    }

    /// What the daemon of a connection is told when it begins: leases, tickets, sessions.
    fn told(returns: &Returns, connection: Connection, resumes: bool) -> Option<[Vec<u64>; 3]> {
        let mut told = None;
        returns.attached(connection, resumes, |kept| {
            let columns = [&kept.leases, &kept.tickets, &kept.sessions];
            told = Some(columns.map(|column| column.as_column().iter().collect()));
        });
        told
    }

    fn attached() -> Returns {
        let returns = Returns::default();
        assert_eq!(told(&returns, FIRST, true), None);
        returns
    }

    #[test]
    fn leases_wait_for_the_batch_to_end_or_for_company() {
        let returns = attached();
        assert!(!returns.add_lease(FIRST, LeaseId(1), false));
        assert!(returns.add_lease(FIRST, LeaseId(2), true));
        assert_eq!(drained(&returns), (2, 0));
        assert!(!returns.are_due());
        for lease in 1..LEASES_DUE as u64 {
            assert!(!returns.add_lease(FIRST, LeaseId(lease), false));
        }
        assert!(returns.add_lease(FIRST, LeaseId(99), false));
        assert_eq!(drained(&returns), (LEASES_DUE, 0));
    }

    #[test]
    fn the_next_daemon_is_told_what_is_still_held() {
        let returns = attached();
        returns.hold_leases([5, 3, 4].map(LeaseId).into_iter());
        [7, 8, 9].map(TicketId).into_iter().for_each(|ticket| returns.hold_ticket(ticket));
        returns.forget_ticket(TicketId(9));
        assert!(returns.add_lease(FIRST, LeaseId(4), true));
        returns.lost(FIRST);
        // Dropped while there is no daemon: nobody has to be told, it is not held.
        assert!(!returns.add_lease(FIRST, LeaseId(3), true));
        assert!(!returns.add_ticket(FIRST, TicketId(7)));
        assert!(!returns.are_due());
        let kept = [vec![5], vec![8], vec![1]];
        assert_eq!(told(&returns, SECOND, true), Some(kept));
        assert!(returns.are_due(), "it is to be sent now");
        // And later, as one of its own.
        assert!(returns.add_lease(FIRST, LeaseId(5), true));
        assert_eq!(drained(&returns), (1, 0));
    }

    #[test]
    fn sessions_are_named_until_a_daemon_took_note() {
        let returns = attached();
        returns.lost(FIRST);
        assert_eq!(told(&returns, SECOND, true).map(|[.., sessions]| sessions), Some(vec![1]));
        returns.lost(SECOND);
        let third = (Epoch(2), SessionId(3));
        assert_eq!(told(&returns, third, true).map(|[.., sessions]| sessions), Some(vec![1, 2]));
        returns.resumed();
        returns.lost(third);
        for number in 4..1_000 {
            let sessions = told(&returns, (Epoch(3), SessionId(number)), true);
            let [.., sessions] = sessions.expect("there were some");
            assert_eq!(sessions.last(), Some(&(number - 1)));
            assert!(sessions.len() <= EARLIER_MAX);
            returns.lost((Epoch(3), SessionId(number)));
        }
    }

    #[test]
    fn a_daemon_that_knows_nothing_of_it_gets_only_its_own() {
        let returns = attached();
        returns.hold_leases([5, 6].map(LeaseId).into_iter());
        returns.lost(FIRST);
        assert_eq!(told(&returns, SECOND, false), None);
        returns.hold_leases([7].map(LeaseId).into_iter());
        assert!(!returns.add_lease(FIRST, LeaseId(5), true));
        assert!(returns.add_lease(SECOND, LeaseId(7), true));
        assert_eq!(drained(&returns), (1, 0));
        returns.lost(SECOND);
        // The one after it may.
        let kept = [vec![6], vec![], vec![1, 2]];
        assert_eq!(told(&returns, (Epoch(3), SessionId(3)), true), Some(kept));
    }

    #[test]
    fn a_closed_queue_forgets_and_takes_nothing() {
        let returns = attached();
        returns.hold_ticket(TicketId(2));
        assert!(returns.add_ticket(FIRST, TicketId(1)));
        returns.close();
        assert!(!returns.add_ticket(FIRST, TicketId(2)));
        assert!(!returns.add_lease(FIRST, LeaseId(3), true));
        assert!(!returns.are_due());
        assert_eq!(drained(&returns), (0, 0));
        returns.lost(FIRST);
        assert_eq!(told(&returns, SECOND, true), None);
    }

    #[test]
    fn a_childs_copy_takes_nothing_and_is_never_locked() {
        let mut returns = attached();
        assert!(returns.add_ticket(FIRST, TicketId(1)));
        returns.generation = returns.generation.wrapping_sub(1);
        let _locked_for_ever = returns.state.lock();
        assert!(!returns.add_ticket(FIRST, TicketId(2)));
        assert!(!returns.add_lease(FIRST, LeaseId(3), true));
        returns.hold_leases([4].map(LeaseId).into_iter());
        returns.hold_ticket(TicketId(5));
        assert!(!returns.are_due());
        assert_eq!(drained(&returns), (0, 0));
        returns.lost(FIRST);
        assert_eq!(told(&returns, SECOND, true), None);
        returns.close();
    }
}
