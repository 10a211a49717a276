//! `mincore`: which pages of the arena's file are in memory.

#![expect(unsafe_code, reason = "mincore")]

use std::ops::Range;

use nix::errno::Errno;

use crate::memory_file::{HUGE_PAGE_BYTES, PAGE_BYTES};
use crate::region::Region;

const PAGES_MAX: usize = HUGE_PAGE_BYTES / PAGE_BYTES;

/// How many 4 KiB pages of a page-aligned range of at most 2 MiB are in memory.
///
/// # Panics
/// If the range leaves the mapping or is longer than 2 MiB.
pub(crate) fn resident_pages(region: &Region, range: Range<usize>) -> Result<usize, Errno> {
    let start = region.at(range.start, range.len());
    assert!(range.len() <= HUGE_PAGE_BYTES, "residency of more than one huge page");
    let mut answers = [0_u8; PAGES_MAX];
    // SAFETY: the range is mapped (checked by `at`), and the kernel writes one byte for each of its
    // pages, of which there are at most `PAGES_MAX`.
    let result = unsafe { libc::mincore(start.as_ptr().cast(), range.len(), answers.as_mut_ptr()) };
    Errno::result(result)?;
    // Only the lowest bit of an answer has a meaning.
    Ok(answers.iter().filter(|answer| **answer & 1 == 1).count())
}
