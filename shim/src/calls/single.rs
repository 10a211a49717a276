//! One block at a time, by copy.

use std::ffi::c_void;

use kvd_client::{ClientError, Commit, MissReason};

use crate::codes::{Miss, Refusal};
use crate::failure::Failure;
use crate::foreign::Caller;
use crate::registry;
use crate::shapes::{self, Bytes, Namespace};

pub(crate) fn put(
    caller: Caller<'_>,
    client: shapes::Client,
    space: *const Namespace,
    (key, value): (Bytes, Bytes),
    (retention, ttl_ms): (u8, u64),
    refusal: *mut u8,
) -> Result<(), Failure> {
    let mut place = caller.optional_output("the place for the refusal", refusal)?;
    place.fill(Refusal::NotAsked as u8);
    let space = super::namespace(caller, space)?;
    let key = super::key(caller, key)?;
    let value = caller.source("the value", value)?;
    let retention = super::retention(retention)?;
    let client = registry::client(client)?;
    let mut declined = |refusal: kvd_client::Refusal| {
        place.fill(refusal.code());
        Failure::from(ClientError::Declined(refusal))
    };
    let len_bytes = value.len() as u64;
    let mut granted = client.reserve(&[len_bytes], retention, client.options().deadline)?;
    let ticket = granted.remove(0).map_err(&mut declined)?;
    ticket.write_foreign(0, value)?;
    let commits = vec![Commit { ticket, key, len_bytes, lineage: None }];
    let mut outcomes = client.commit(space, commits, retention, super::ttl(ttl_ms))?;
    outcomes.remove(0).map_err(&mut declined)?;
    place.fill(Refusal::None as u8);
    Ok(())
}

pub(crate) fn get(
    caller: Caller<'_>,
    client: shapes::Client,
    space: *const Namespace,
    key: Bytes,
    (buffer, capacity): (*mut c_void, usize),
    (len, miss): (*mut u64, *mut u8),
) -> Result<(), Failure> {
    let mut len_place = caller.output("the place for the length", len)?;
    let mut miss_place = caller.optional_output("the place for the miss", miss)?;
    len_place.fill(0);
    miss_place.fill(Miss::NotAsked as u8);
    let space = super::namespace(caller, space)?;
    let key = super::key(caller, key)?;
    let buffer = caller.buffer("the buffer", buffer, capacity)?;
    let client = registry::client(client)?;
    let answer = client.fetch(space, &[key], false, client.options().deadline);
    let item = answer.items.into_iter().next().unwrap_or(Err(MissReason::NeverStored));
    let view = match item {
        Ok(view) => view,
        Err(reason) => {
            miss_place.fill(reason.code());
            return Err(answer.trouble.unwrap_or(ClientError::Miss(reason)).into());
        }
    };
    miss_place.fill(Miss::None as u8);
    len_place.fill(view.len() as u64);
    view.copy_part_to(0, &buffer.first(view.len())?);
    Ok(())
}
