//! Rights on their way back: leases of dropped views and tickets of dropped reservations.
//!
//! Dropping must never wait for a daemon, so a right is only queued here; it travels in front of the
//! next request, or in a frame of its own once enough has gathered. The queue belongs to one
//! connection. When that is lost it closes and forgets everything: the daemon takes back what a lost
//! session held, and a later session has no business with it. It also belongs to one process: a forked child's
//! copy takes nothing and is never locked, because a thread of the parent may have had it locked.

use std::sync::{Mutex, MutexGuard, PoisonError};

use kvd_proto::column::ColumnBuf;
use kvd_proto::ids::{LeaseId, TicketId};
use kvd_shm::forks;

/// So many leases are worth a frame of their own while their batch still has views in use.
const LEASES_DUE: usize = 64;

#[derive(Debug)]
pub(crate) struct Returns {
    /// Whose it is, as [`forks::generation`] counts.
    generation: u32,
    queue: Mutex<Queue>,
}

/// Everything that waits to be sent.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    pub(crate) leases: ColumnBuf<u64>,
    pub(crate) tickets: ColumnBuf<u64>,
    /// Whether it should not wait for the next request.
    due: bool,
    closed: bool,
}

impl Returns {
    pub(crate) fn new() -> Self {
        Self { generation: forks::generation(), queue: Mutex::default() }
    }

    /// Queues a lease; true when the queue should be sent now. `last` says that its batch is done.
    pub(crate) fn add_lease(&self, lease: LeaseId, last: bool) -> bool {
        let Some(mut queue) = self.queue().filter(|queue| !queue.closed) else {
            return false;
        };
        queue.leases.push(lease.0);
        queue.due |= last || queue.leases.len() >= LEASES_DUE;
        queue.due
    }

    /// Queues a ticket, which is always worth sending: it keeps others from writing.
    pub(crate) fn add_ticket(&self, ticket: TicketId) -> bool {
        let Some(mut queue) = self.queue().filter(|queue| !queue.closed) else {
            return false;
        };
        queue.tickets.push(ticket.0);
        queue.due = true;
        true
    }

    pub(crate) fn are_due(&self) -> bool {
        self.queue().is_some_and(|queue| queue.due)
    }

    /// Hands everything queued to `send` and empties the queue.
    pub(crate) fn drain(&self, send: impl FnOnce(&Queue)) {
        let Some(mut queue) = self.queue() else {
            return;
        };
        if !queue.leases.is_empty() || !queue.tickets.is_empty() {
            send(&queue);
        }
        queue.leases.clear();
        queue.tickets.clear();
        queue.due = false;
    }

    /// The connection is lost: forget what is queued and take nothing more.
    pub(crate) fn close(&self) {
        if let Some(mut queue) = self.queue() {
            *queue = Queue { closed: true, ..Queue::default() };
        }
    }

    /// The queue, if it is this process's.
    fn queue(&self) -> Option<MutexGuard<'_, Queue>> {
        let ours = self.generation == forks::generation();
        ours.then(|| self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drained(returns: &Returns) -> (usize, usize) {
        let mut counts = (0, 0);
        returns.drain(|queue| counts = (queue.leases.len(), queue.tickets.len()));
        counts
    }

    #[test]
    fn leases_wait_for_the_batch_to_end_or_for_company() {
        let returns = Returns::new();
        assert!(!returns.add_lease(LeaseId(1), false));
        assert!(returns.add_lease(LeaseId(2), true));
        assert_eq!(drained(&returns), (2, 0));
        assert!(!returns.are_due());
        for lease in 1..LEASES_DUE as u64 {
            assert!(!returns.add_lease(LeaseId(lease), false));
        }
        assert!(returns.add_lease(LeaseId(99), false));
        assert_eq!(drained(&returns), (LEASES_DUE, 0));
    }

    #[test]
    fn a_closed_queue_forgets_and_takes_nothing() {
        let returns = Returns::new();
        assert!(returns.add_ticket(TicketId(1)));
        returns.close();
        assert!(!returns.add_ticket(TicketId(2)));
        assert!(!returns.add_lease(LeaseId(3), true));
        assert!(!returns.are_due());
        assert_eq!(drained(&returns), (0, 0));
    }

    #[test]
    fn a_childs_copy_takes_nothing_and_is_never_locked() {
        let mut returns = Returns::new();
        assert!(returns.add_ticket(TicketId(1)));
        returns.generation = returns.generation.wrapping_sub(1);
        let _locked_for_ever = returns.queue.lock();
        assert!(!returns.add_ticket(TicketId(2)));
        assert!(!returns.add_lease(LeaseId(3), true));
        assert!(!returns.are_due());
        assert_eq!(drained(&returns), (0, 0));
        returns.close();
    }
}
