//! What the functions of the ABI do, in safe code. Each takes the [`Caller`] by which alone it can read its pointers.
//!
//! Arguments are checked first, all of them; then every answer is written, whatever happens.

pub(crate) mod attach;
pub(crate) mod clear;
pub(crate) mod commit;
pub(crate) mod fetch;
pub(crate) mod locate;
pub(crate) mod prefetch;
pub(crate) mod reserve;
pub(crate) mod single;
pub(crate) mod stats;
pub(crate) mod words;

use std::time::Duration;

use kvd_client::{Client, ClientError, KEY_BYTES_MAX, NAMESPACE_PART_BYTES_MAX, Retention};

use crate::codes::KVD_PREFIX;
use crate::failure::Failure;
use crate::foreign::Caller;
use crate::shapes::{Bytes, Namespace};

/// The namespace that `space` points to.
fn namespace<'call>(
    caller: Caller<'call>,
    space: *const Namespace,
) -> Result<kvd_client::Namespace<'call>, Failure> {
    let space = caller.item("the namespace", space)?;
    let model = caller.text("the namespace's model", space.model)?;
    let compat_key = caller.text("the namespace's compat_key", space.compat_key)?;
    at_most(
        "the longer part of the namespace",
        model.len().max(compat_key.len()),
        NAMESPACE_PART_BYTES_MAX,
    )?;
    Ok(kvd_client::Namespace { model, compat_key })
}

/// The keys of a look-up.
fn keys<'call>(
    caller: Caller<'call>,
    keys: *const Bytes,
    count: usize,
) -> Result<Vec<&'call [u8]>, Failure> {
    let keys = caller.items("the array of keys", keys, count)?;
    keys.iter().map(|bytes| key(caller, *bytes)).collect()
}

/// A key of at most the allowed length.
fn key<'call>(caller: Caller<'call>, bytes: Bytes) -> Result<&'call [u8], Failure> {
    let key = caller.bytes("a key", bytes)?;
    at_most("a key", key.len(), KEY_BYTES_MAX)?;
    Ok(key)
}

/// The client looks at lengths too, but in a commit only when the tickets are spent.
fn at_most(what: &str, len: usize, len_max: usize) -> Result<(), Failure> {
    if len > len_max {
        return Err(Failure::argument(format!("{what} has {len} bytes, at most {len_max}")));
    }
    Ok(())
}

/// Whether the flags of a look-up ask for the prefix.
fn wants_prefix(flags: u32) -> Result<bool, Failure> {
    known_flags(flags, KVD_PREFIX)
}

/// Whether the only flag that there is, is set.
fn known_flags(flags: u32, known: u32) -> Result<bool, Failure> {
    if flags & !known != 0 {
        return Err(Failure::argument(format!("flags {flags:#x}, known are {known:#x}")));
    }
    Ok(flags & known != 0)
}

fn retention(code: u8) -> Result<Retention, Failure> {
    let class = Retention::ALL.into_iter().find(|class| *class as u8 == code);
    class.ok_or_else(|| Failure::argument(format!("{code} is no retention class")))
}

/// The deadline of a call, or the client's own.
fn deadline(client: &Client, deadline_ms: u32) -> Duration {
    match deadline_ms {
        0 => client.options().deadline,
        deadline_ms => Duration::from_millis(deadline_ms.into()),
    }
}

/// A time to live, unless it is unlimited.
fn ttl(ttl_ms: u64) -> Option<Duration> {
    (ttl_ms > 0).then(|| Duration::from_millis(ttl_ms))
}

/// A look-up ended well if nothing kept the daemon from answering it.
fn end(trouble: Option<ClientError>) -> Result<(), Failure> {
    trouble.map_or(Ok(()), |trouble| Err(trouble.into()))
}
