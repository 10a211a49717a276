//! Looking up and reading.

#![expect(unsafe_code, reason = "exported by name; the caller's pointers are trusted")]
#![expect(clippy::missing_safety_doc, reason = "the header says once what pointers must be")]

use std::ffi::c_void;

use crate::calls::{fetch, locate, prefetch};
use crate::codes::Status;
use crate::guard::guard;
use crate::shapes::{Bytes, Client, Fetched, Located, Namespace, View};

/// Asks where blocks are, without taking them. What is reported present stays loadable for the daemon's promise window.
///
/// keys, count: the keys, at most KVD_ITEMS_MAX. Any number goes; the library splits what one request does not take.
/// flags: 0 or KVD_PREFIX.
/// located: count places for the answers, in the order of the keys. All are written, whatever the status, unless the
/// status is KVD_STATUS_ARGUMENT because of this array.
///
/// A daemon that is dead or slow is a miss: the answers are then KVD_MISS_SHED or KVD_MISS_DEADLINE, and the status says
/// why. The call ends by the client's deadline.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_locate(
    client: Client,
    space: *const Namespace,
    keys: *const Bytes,
    count: usize,
    flags: u32,
    located: *mut Located,
) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| locate::locate(caller, client, space, (keys, count), flags, located)) }
}

/// Fetches blocks, to be read in place. As kvd_locate, except:
///
/// deadline_ms: when the answer must be there. 0: the client's.
/// fetched: count places for the answers. Each one that is there holds a view, which the caller has to give back: with
/// kvd_release, or all together with kvd_release_fetched. While it is held, its bytes neither move nor change, whatever
/// becomes of the key, of the client and of the daemon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_fetch(
    client: Client,
    space: *const Namespace,
    keys: *const Bytes,
    count: usize,
    flags: u32,
    deadline_ms: u32,
    fetched: *mut Fetched,
) -> Status {
    let how = (flags, deadline_ms);
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| fetch::fetch(caller, client, space, (keys, count), how, fetched)) }
}

/// Tells the daemon that blocks will be fetched soon, in this order, so that it brings those that are not in memory there.
/// A hint: nothing is waited for but the sending, and a failure may be ignored.
///
/// keys, count: the keys, at most KVD_ITEMS_MAX, those wanted first in front.
/// deadline_ms: for how long from now the copies in memory are of use. What was not begun by then is dropped. 0: the
/// client's deadline.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_prefetch(
    client: Client,
    space: *const Namespace,
    keys: *const Bytes,
    count: usize,
    deadline_ms: u32,
) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| prefetch::prefetch(caller, client, space, (keys, count), deadline_ms)) }
}

/// Copies a whole block out, past the processor's cache if it is large. Nothing is copied unless the status is
/// KVD_STATUS_OK.
///
/// buffer, capacity: room for at least the block. KVD_STATUS_TOO_SMALL if it is less.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_view_copy(view: View, buffer: *mut c_void, capacity: usize) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| fetch::copy(caller, view, buffer, capacity)) }
}

/// Gives a view back. Its bytes must not be read any more. Does not wait for the daemon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_release(view: View) -> Status {
    // SAFETY: no pointers.
    unsafe { guard(|_| fetch::release(view)) }
}

/// Gives back every view of an array that kvd_fetch wrote, and makes the array one of KVD_MISS_NOT_ASKED. Views that are
/// 0 are passed over; KVD_STATUS_STALE_HANDLE says that some were not in use, the others are released nevertheless.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_release_fetched(fetched: *mut Fetched, count: usize) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| fetch::release_fetched(caller, fetched, count)) }
}
