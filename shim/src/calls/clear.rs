//! Blocks are forgotten.

use std::ffi::c_char;

use kvd_client::{ClearScope, Namespace};

use crate::codes::KVD_EVERYTHING;
use crate::failure::Failure;
use crate::foreign::Caller;
use crate::registry;
use crate::shapes;

pub(crate) fn clear(
    caller: Caller<'_>,
    client: shapes::Client,
    (model, compat_key): (*const c_char, *const c_char),
    flags: u32,
    rows: *mut u64,
) -> Result<(), Failure> {
    let mut place = caller.optional_output("the place for the count", rows)?;
    place.fill(0);
    let model = caller.optional_text("the model", model)?;
    let compat_key = caller.optional_text("the compat_key", compat_key)?;
    let everything = super::known_flags(flags, KVD_EVERYTHING)?;
    let scope = match (model, compat_key, everything) {
        (None, None, true) => ClearScope::Everything,
        (Some(model), None, false) => ClearScope::Model(model),
        (Some(model), Some(compat_key), false) => {
            ClearScope::Namespace(Namespace { model, compat_key })
        }
        _ => return Err(Failure::argument("name a model, or nothing and KVD_EVERYTHING")),
    };
    place.fill(registry::client(client)?.clear(scope)?);
    Ok(())
}
