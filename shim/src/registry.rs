//! Everything that handles of this process stand for, behind one lock.
//!
//! The lock is held for look-ups only: never while the daemon is asked, while bytes are copied, or while a right is
//! dropped, which may send a frame.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kvd_client::{Client, Ticket, View};

use crate::codes::Status;
use crate::failure::Failure;
use crate::handles::Table;

/// A right, and the process that took it: a child has the handles of its parent, but not the rights.
#[derive(Debug)]
struct Held<T> {
    process: u32,
    right: Arc<T>,
}

/// What the handles stand for.
#[derive(Debug)]
pub(crate) struct Registry {
    clients: Table<Client>,
    views: Table<Held<View>>,
    tickets: Table<Held<Ticket>>,
}

static REGISTRY: Mutex<Registry> =
    Mutex::new(Registry { clients: Table::new(1), views: Table::new(2), tickets: Table::new(3) });

/// The registry, when nobody else looks something up.
pub(crate) fn lock() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn add_client(client: Client) -> Result<u64, Failure> {
    lock().clients.insert(client).map_err(|_refused| full("clients"))
}

pub(crate) fn client(handle: u64) -> Result<Client, Failure> {
    lock().clients.get(handle).cloned().ok_or_else(|| stale("client", handle))
}

pub(crate) fn remove_client(handle: u64) -> Result<(), Failure> {
    let removed = lock().clients.remove(handle);
    removed.map(drop).ok_or_else(|| stale("client", handle))
}

/// Handles for the views that are there, in order. All or none.
pub(crate) fn add_views<'a>(
    views: impl IntoIterator<Item = Option<&'a Arc<View>>>,
) -> Result<Vec<Option<u64>>, Failure> {
    add(views, "views", |registry| &mut registry.views)
}

/// Handles for the tickets that are there, in order. All or none.
pub(crate) fn add_tickets<'a>(
    tickets: impl IntoIterator<Item = Option<&'a Arc<Ticket>>>,
) -> Result<Vec<Option<u64>>, Failure> {
    add(tickets, "tickets", |registry| &mut registry.tickets)
}

/// The view, for as long as the caller keeps it.
pub(crate) fn view(handle: u64) -> Result<Arc<View>, Failure> {
    let process = std::process::id();
    borrow(&lock().views, "view", handle, process)
}

/// The ticket, for as long as the caller keeps it.
pub(crate) fn ticket(handle: u64) -> Result<Arc<Ticket>, Failure> {
    let process = std::process::id();
    borrow(&lock().tickets, "ticket", handle, process)
}

/// Ends views; handles that stand for nothing are counted. 0 is passed over.
pub(crate) fn remove_views(handles: impl Iterator<Item = u64>) -> usize {
    let mut removed = Vec::with_capacity(handles.size_hint().0);
    let mut stale = 0;
    let mut registry = lock();
    for handle in handles.filter(|handle| *handle != 0) {
        match registry.views.remove(handle) {
            Some(held) => removed.push(held),
            None => stale += 1,
        }
    }
    drop(registry);
    stale
}

/// Ends a ticket.
pub(crate) fn remove_ticket(handle: u64) -> Result<(), Failure> {
    let removed = lock().tickets.remove(handle);
    removed.map(drop).ok_or_else(|| stale("ticket", handle))
}

/// Takes tickets out, in order. All or none: if one is stale, of another process, named twice or being written to, all
/// stay where they are.
pub(crate) fn take_tickets(handles: &[u64]) -> Result<Vec<Ticket>, Failure> {
    let process = std::process::id();
    let mut sorted = handles.to_vec();
    sorted.sort_unstable();
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(Failure::argument(format!("ticket {:#x} is named twice", twice[0])));
    }
    let mut registry = lock();
    for &handle in handles {
        // Whoever writes to a ticket has a second reference, and can get one only under the lock.
        if Arc::strong_count(&borrow(&registry.tickets, "ticket", handle, process)?) > 2 {
            let text = format!("another thread writes to ticket {handle:#x}");
            return Err(Failure::new(Status::InUse, text));
        }
    }
    let taken = handles.iter().filter_map(|&handle| registry.tickets.remove(handle));
    Ok(taken.filter_map(|held| Arc::into_inner(held.right)).collect())
}

fn add<'a, T: 'a>(
    rights: impl IntoIterator<Item = Option<&'a Arc<T>>>,
    what: &str,
    table: impl FnOnce(&mut Registry) -> &mut Table<Held<T>>,
) -> Result<Vec<Option<u64>>, Failure> {
    let process = std::process::id();
    let mut registry = lock();
    let table = table(&mut registry);
    let mut handles = Vec::new();
    for right in rights {
        let Some(right) = right else {
            handles.push(None);
            continue;
        };
        match table.insert(Held { process, right: Arc::clone(right) }) {
            Ok(handle) => handles.push(Some(handle)),
            Err(_) => {
                // The rights live on in the caller's hands, so nothing is dropped under the lock.
                for handle in handles.into_iter().flatten() {
                    table.remove(handle);
                }
                return Err(full(what));
            }
        }
    }
    Ok(handles)
}

fn borrow<T>(
    table: &Table<Held<T>>,
    what: &str,
    handle: u64,
    process: u32,
) -> Result<Arc<T>, Failure> {
    let held = table.get(handle).ok_or_else(|| stale(what, handle))?;
    if held.process != process {
        let text = format!("{what} {handle:#x} belongs to process {}", held.process);
        return Err(Failure::new(Status::OtherProcess, text));
    }
    Ok(Arc::clone(&held.right))
}

fn stale(what: &str, handle: u64) -> Failure {
    Failure::new(Status::StaleHandle, format!("{handle:#x} is no {what} that is in use"))
}

fn full(what: &str) -> Failure {
    Failure::new(Status::TooManyHandles, format!("too many {what}"))
}
