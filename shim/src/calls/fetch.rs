//! Blocks to read in place, and their end.

use std::ffi::c_void;
use std::sync::Arc;

use crate::codes::{Miss, Status};
use crate::failure::Failure;
use crate::foreign::Caller;
use crate::registry;
use crate::shapes::{self, Bytes, Fetched, Namespace};

pub(crate) fn fetch(
    caller: Caller<'_>,
    client: shapes::Client,
    space: *const Namespace,
    (keys, count): (*const Bytes, usize),
    (flags, deadline_ms): (u32, u32),
    fetched: *mut Fetched,
) -> Result<(), Failure> {
    let mut places = caller.outputs("the array for the answers", fetched, count)?;
    places.fill(Fetched::NOT_ASKED);
    let space = super::namespace(caller, space)?;
    let keys = super::keys(caller, keys, count)?;
    let prefix = super::wants_prefix(flags)?;
    let client = registry::client(client)?;
    let answer = client.fetch(space, &keys, prefix, super::deadline(&client, deadline_ms));
    let items: Vec<_> = answer.items.into_iter().map(|item| item.map(Arc::new)).collect();
    let handles = registry::add_views(items.iter().map(|item| item.as_ref().ok()))?;
    for (index, (item, handle)) in items.iter().zip(handles).enumerate() {
        places.set(
            index,
            match item {
                Ok(view) => Fetched {
                    view: handle.unwrap_or(0),
                    data: view.as_ptr().cast(),
                    len: view.len() as u64,
                    miss: Miss::None as u8,
                },
                Err(reason) => Fetched::miss(reason.code()),
            },
        );
    }
    super::end(answer.trouble)
}

pub(crate) fn copy(
    caller: Caller<'_>,
    view: shapes::View,
    buffer: *mut c_void,
    capacity: usize,
) -> Result<(), Failure> {
    let buffer = caller.buffer("the buffer", buffer, capacity)?;
    let view = registry::view(view)?;
    view.copy_part_to(0, &buffer.first(view.len())?);
    Ok(())
}

pub(crate) fn release(view: shapes::View) -> Result<(), Failure> {
    end_of(registry::remove_views(std::iter::once(view)) + usize::from(view == 0))
}

pub(crate) fn release_fetched(
    caller: Caller<'_>,
    fetched: *mut Fetched,
    count: usize,
) -> Result<(), Failure> {
    let fetched = caller.items_mut("the array of fetched blocks", fetched, count)?;
    let stale = registry::remove_views(fetched.iter().map(|fetched| fetched.view));
    fetched.fill(Fetched::NOT_ASKED);
    end_of(stale)
}

fn end_of(stale: usize) -> Result<(), Failure> {
    match stale {
        0 => Ok(()),
        stale => {
            Err(Failure::new(Status::StaleHandle, format!("{stale} views that are not in use")))
        }
    }
}
