//! `mlock`: keeps touched pages of the arena from being swapped out.

#![expect(unsafe_code, reason = "mlock")]

use std::ops::Range;

use nix::errno::Errno;
use nix::sys::mman::mlock;

use crate::region::Region;

/// Locks a range. The kernel refuses beyond `RLIMIT_MEMLOCK`, unless the caller may ignore it
/// (`CAP_IPC_LOCK`).
///
/// # Panics
/// If the range leaves the mapping.
pub(crate) fn lock(region: &Region, range: Range<usize>) -> Result<(), Errno> {
    let start = region.at(range.start, range.len());
    // SAFETY: the range is mapped (checked by `at`); locking changes no byte.
    unsafe { mlock(start.cast(), range.len()) }
}
