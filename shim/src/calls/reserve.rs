//! Room to fill.

use std::sync::Arc;

use crate::codes::Refusal;
use crate::failure::Failure;
use crate::foreign::Caller;
use crate::registry;
use crate::shapes::{self, Bytes, Reserved};

pub(crate) fn reserve(
    caller: Caller<'_>,
    client: shapes::Client,
    (lens, count): (*const u64, usize),
    retention: u8,
    deadline_ms: u32,
    reserved: *mut Reserved,
) -> Result<(), Failure> {
    let mut places = caller.outputs("the array for the answers", reserved, count)?;
    places.fill(Reserved::NOT_ASKED);
    let lens = caller.items("the array of lengths", lens, count)?;
    let retention = super::retention(retention)?;
    let client = registry::client(client)?;
    let outcomes = client.reserve(lens, retention, super::deadline(&client, deadline_ms))?;
    let outcomes: Vec<_> = outcomes.into_iter().map(|outcome| outcome.map(Arc::new)).collect();
    let handles = registry::add_tickets(outcomes.iter().map(|outcome| outcome.as_ref().ok()))?;
    for (index, (outcome, handle)) in outcomes.iter().zip(handles).enumerate() {
        places.set(
            index,
            match outcome {
                Ok(ticket) => Reserved {
                    ticket: handle.unwrap_or(0),
                    data: ticket.as_mut_ptr().cast(),
                    len: ticket.capacity() as u64,
                    refusal: Refusal::None as u8,
                },
                Err(refusal) => Reserved::refused(refusal.code()),
            },
        );
    }
    Ok(())
}

pub(crate) fn write(
    caller: Caller<'_>,
    ticket: shapes::Ticket,
    at: u64,
    bytes: Bytes,
) -> Result<(), Failure> {
    let source = caller.source("the bytes to write", bytes)?;
    let at = usize::try_from(at).unwrap_or(usize::MAX);
    Ok(registry::ticket(ticket)?.write_foreign(at, source)?)
}
