//! One blocking call on one file.

#![expect(unsafe_code, reason = "positioned I/O on memory that no Rust reference may cover")]

use std::fs::File;
use std::os::fd::AsRawFd;

use nix::errno::Errno;

use crate::operation::{Action, Memory, Operation};
use crate::transfer::Call;

/// Makes the call: how many bytes moved, or which errno.
pub(crate) fn carry_out(file: &File, operation: &Operation, call: Call) -> Result<usize, i32> {
    // The transfer has checked that the range fits a file.
    let offset = libc::off_t::try_from(call.offset).map_err(|_too_far| libc::EINVAL)?;
    let descriptor = file.as_raw_fd();
    let address = || operation.memory().map(|memory| place(memory, call));
    let moved = match (operation.action(), address()) {
        (Action::Read, Some(to)) => {
            // SAFETY: `to` starts `call.len` bytes of the operation's memory (see `place`), which the
            // caller keeps for the length of the call; nobody holds a reference to them.
            unsafe { libc::pread(descriptor, to.cast(), call.len, offset) }
        }
        (Action::Write, Some(from)) => {
            // SAFETY: as above; the call reads them only.
            unsafe { libc::pwrite(descriptor, from.cast_const().cast(), call.len, offset) }
        }
        (Action::Sync, None) => {
            // SAFETY: the descriptor is open, since `file` is borrowed.
            let failed = unsafe { libc::fdatasync(descriptor) };
            isize::try_from(failed).unwrap_or(-1)
        }
        (Action::Read | Action::Write, None) | (Action::Sync, Some(_)) => {
            unreachable!("operations are made with the memory that their action needs")
        }
    };
    usize::try_from(moved).map_err(|_negative| Errno::last_raw())
}

/// The address of the first of `call.len` bytes.
///
/// # Panics
/// If the call leaves the memory.
pub(crate) fn place(memory: &Memory, call: Call) -> *mut u8 {
    let end = call.start.checked_add(call.len);
    assert!(end.is_some_and(|end| end <= memory.len()), "a call that leaves its memory");
    memory.address().wrapping_add(call.start)
}
