//! Storing in place: reserve, fill, commit.

#![expect(unsafe_code, reason = "exported by name; the caller's pointers are trusted")]
#![expect(clippy::missing_safety_doc, reason = "the header says once what pointers must be")]

use crate::calls::{commit, reserve};
use crate::codes::Status;
use crate::guard::guard;
use crate::registry;
use crate::shapes::{Bytes, Client, CommitItem, Namespace, Reserved, Ticket};

/// Reserves room in the arena. Each ticket that is granted has to be committed or cancelled. Room that is lacking only
/// for the moment is asked for again until the deadline.
///
/// lens, count: the lengths of the blocks in bytes, at most KVD_ITEMS_MAX of them.
/// retention: one of enum kvd_retention.
/// deadline_ms: how long to wait for room. 0: the client's deadline.
/// reserved: count places for the answers, in the order of the lengths. All are written, whatever the status, unless
/// the status is KVD_STATUS_ARGUMENT because of this array. No ticket is granted unless the status is KVD_STATUS_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_reserve(
    client: Client,
    lens: *const u64,
    count: usize,
    retention: u8,
    deadline_ms: u32,
    reserved: *mut Reserved,
) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe {
        guard(|caller| {
            reserve::reserve(caller, client, (lens, count), retention, deadline_ms, reserved)
        })
    }
}

/// Copies bytes into the room of a ticket, past the processor's cache if they are many. The room may as well be
/// filled directly. Threads may fill different parts of it at the same time.
///
/// at: where, in bytes from the beginning of the room. What would leave the room is KVD_STATUS_ARGUMENT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_ticket_write(ticket: Ticket, at: u64, bytes: Bytes) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| reserve::write(caller, ticket, at, bytes)) }
}

/// Stores filled tickets under their keys.
///
/// items, count: at most KVD_ITEMS_MAX.
/// retention: one of enum kvd_retention, for all of them.
/// ttl_ms: how long they live, in milliseconds. 0: for ever.
/// refusals: count places, one of enum kvd_refusal each; KVD_REFUSAL_NONE means stored. All are written, whatever the
/// status, unless the status is KVD_STATUS_ARGUMENT because of this array.
///
/// Statuses from 1 to 19 leave all tickets as they were, to be committed again or cancelled. In every other case they
/// are spent: what is not stored is given back. After KVD_STATUS_DEADLINE and KVD_STATUS_DISCONNECTED the blocks may or may not be stored.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_commit(
    client: Client,
    space: *const Namespace,
    items: *const CommitItem,
    count: usize,
    retention: u8,
    ttl_ms: u64,
    refusals: *mut u8,
) -> Status {
    let terms = (retention, ttl_ms);
    // SAFETY: our caller keeps to the header.
    unsafe {
        guard(|caller| commit::commit(caller, client, space, (items, count), terms, refusals))
    }
}

/// Gives room back unused. It must not be written any more. Does not wait for the daemon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_cancel(ticket: Ticket) -> Status {
    // SAFETY: no pointers.
    unsafe { guard(|_| registry::remove_ticket(ticket)) }
}
