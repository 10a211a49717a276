//! `madvise`: hints and page operations that never change what a byte of the mapping reads as.

#![expect(unsafe_code, reason = "madvise")]

use std::ops::Range;

use nix::errno::Errno;

use crate::region::Region;

/// The advice this crate gives. Nothing that discards or detaches pages may join this list: the
/// safety argument of [`advise`] rests on that.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Advice {
    /// Leave the range out of core dumps.
    NotInDumps,
    /// Prefer 2 MiB pages from the first touch on.
    HugePages,
    /// Touch every page as a write would.
    PopulateWrite,
    /// Turn each 2 MiB piece into one huge page now.
    Collapse,
}

impl Advice {
    fn code(self) -> libc::c_int {
        match self {
            Self::NotInDumps => libc::MADV_DONTDUMP,
            Self::HugePages => libc::MADV_HUGEPAGE,
            Self::PopulateWrite => libc::MADV_POPULATE_WRITE,
            Self::Collapse => libc::MADV_COLLAPSE,
        }
    }
}

/// Gives one piece of advice on a page-aligned range, again if a signal came in between.
///
/// # Panics
/// If the range leaves the mapping.
pub(crate) fn advise(region: &Region, range: Range<usize>, advice: Advice) -> Result<(), Errno> {
    let start = region.at(range.start, range.len());
    loop {
        // SAFETY: the range lies inside a live mapping (checked by `at`), and no advice of ours
        // changes or removes memory.
        let result = unsafe { libc::madvise(start.as_ptr().cast(), range.len(), advice.code()) };
        match Errno::result(result) {
            Ok(_zero) => return Ok(()),
            Err(Errno::EINTR) => {}
            Err(errno) => return Err(errno),
        }
    }
}
