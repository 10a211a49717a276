//! The store as a whole: clearing it, and its figures.

#![expect(unsafe_code, reason = "exported by name; the caller's pointers are trusted")]
#![expect(clippy::missing_safety_doc, reason = "the header says once what pointers must be")]

use std::ffi::c_char;

use crate::calls::{clear, stats};
use crate::codes::Status;
use crate::guard::guard;
use crate::shapes::{Client, Stat};

/// Forgets blocks in every tier. Views of them stay readable.
///
/// model, compat_key: that namespace. compat_key null: all of the model. Both null, with the flag KVD_EVERYTHING: all
/// there is. Anything else is KVD_STATUS_ARGUMENT, so that a slip never clears more than was meant.
/// rows: how many blocks that were. May be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_clear(
    client: Client,
    model: *const c_char,
    compat_key: *const c_char,
    flags: u32,
    rows: *mut u64,
) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| clear::clear(caller, client, (model, compat_key), flags, rows)) }
}

/// The daemon's counters and gauges.
///
/// stats, capacity: places for them. stats may be null if capacity is 0.
/// count: how many figures there are. Never null, always written; if it is more than capacity, only so many were
/// written as there are places.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_stats(
    client: Client,
    stats: *mut Stat,
    capacity: usize,
    count: *mut usize,
) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| stats::stats(caller, client, stats, capacity, count)) }
}
