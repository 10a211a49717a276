//! Clients come and go.

#![expect(unsafe_code, reason = "exported by name; the caller's pointers are trusted")]
#![expect(clippy::missing_safety_doc, reason = "the header says once what pointers must be")]

use crate::calls::attach;
use crate::codes::Status;
use crate::guard::guard;
use crate::registry;
use crate::shapes::{Client, Connection, Options};

/// Makes a client. Needs no daemon and waits for none: the connection is made by the first call that needs it. Give it
/// back with kvd_detach.
///
/// abi_version: KVD_ABI_VERSION, always.
/// options: may be null, for the defaults. Not kept.
/// client: where the client is written; 0 unless the status is KVD_STATUS_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_attach(
    abi_version: u32,
    options: *const Options,
    client: *mut Client,
) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| attach::attach(caller, abi_version, options, client)) }
}

/// Connects now if there is no connection, and tells to what. For those who want to know before they go on.
///
/// connection: where that is written. May be null. Written only if the status is KVD_STATUS_OK.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_connect(client: Client, connection: *mut Connection) -> Status {
    // SAFETY: our caller keeps to the header.
    unsafe { guard(|caller| attach::connect(caller, client, connection)) }
}

/// Ends a client. Calls of other threads that use it go on to their end. Views stay readable, and views and tickets
/// have still to be given back; the connection closes with the last of them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kvd_detach(client: Client) -> Status {
    // SAFETY: no pointers.
    unsafe { guard(|_| registry::remove_client(client)) }
}
