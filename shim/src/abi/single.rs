//! One block at a time, by copy.

#![expect(unsafe_code, reason = "exported by name; the caller's pointers are trusted")]
#![expect(clippy::missing_safety_doc, reason = "the header says once what pointers must be")]

use std::ffi::c_void;

use crate::calls::single;
use crate::codes::Status;
use crate::guard::guard;
use crate::shapes::{Bytes, Client, Namespace};

/// Stores one block: kvd_reserve, kvd_ticket_write and kvd_commit in one call.
///
/// refusal: one of enum kvd_refusal, written whatever the status. May be null. KVD_STATUS_DECLINED says that the daemon
/// would not have the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_put(
    client: Client,
    space: *const Namespace,
    key: Bytes,
    value: Bytes,
    retention: u8,
    ttl_ms: u64,
    refusal: *mut u8,
) -> Status {
    let terms = (retention, ttl_ms);
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| single::put(caller, client, space, (key, value), terms, refusal)) }
}

/// Copies one block out: kvd_fetch, kvd_view_copy and kvd_release in one call.
///
/// buffer, capacity: room for the block. KVD_STATUS_TOO_SMALL if it does not fit; then nothing is copied, and len says how
/// much it takes.
/// len: the length of the block in bytes. Never null, always written; 0 for a miss.
/// miss: one of enum kvd_miss, written whatever the status. May be null. KVD_STATUS_MISS says that the daemon does not
/// have the block.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_get(
    client: Client,
    space: *const Namespace,
    key: Bytes,
    buffer: *mut c_void,
    capacity: usize,
    len: *mut u64,
    miss: *mut u8,
) -> Status {
    let room = (buffer, capacity);
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| single::get(caller, client, space, key, room, (len, miss))) }
}
