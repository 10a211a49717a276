//! What will be wanted soon.

use crate::failure::Failure;
use crate::foreign::Caller;
use crate::registry;
use crate::shapes::{self, Bytes, Namespace};

pub(crate) fn prefetch(
    caller: Caller<'_>,
    client: shapes::Client,
    space: *const Namespace,
    (keys, count): (*const Bytes, usize),
    deadline_ms: u32,
) -> Result<(), Failure> {
    let space = super::namespace(caller, space)?;
    let keys = super::keys(caller, keys, count)?;
    let client = registry::client(client)?;
    Ok(client.prefetch(space, &keys, super::deadline(&client, deadline_ms))?)
}
