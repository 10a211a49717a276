//! Descriptors that a service manager passes to a process at its start (`LISTEN_FDS`), each with a name.

#![expect(unsafe_code, reason = "owning descriptors that are known by their numbers only")]

use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Once;

/// Takes what was passed to this process, close-on-exec, in the order in which it was passed. Nothing if nothing was
/// passed, or if it was meant for another process.
///
/// Call it first of all in `main`: what is open from number three on then came from outside. A second call takes nothing.
/// The variables stay as they are: to change them is unsafe once there are threads, and the daemon starts no process that
/// could read them.
///
/// # Errors
/// If the variables make no sense, or number descriptors that are not open. Nothing is taken then.
pub fn descriptors() -> io::Result<Vec<(String, OwnedFd)>> {
    static TAKEN: Once = Once::new();
    let mut taken = Ok(Vec::new());
    TAKEN.call_once(|| {
        taken = sd_notify::listen_fds_with_names().map(|passed| {
            // SAFETY: the numbers are open (they were made close-on-exec just now), the manager left them to us, and
            // nobody in this process has taken them before: `TAKEN` saw to that.
            passed.map(|(raw, name)| (name, unsafe { OwnedFd::from_raw_fd(raw) })).collect()
        });
    });
    taken
}
