//! The first touch of arena memory: huge pages where they can be had, then locked if asked.
//!
//! Each 2 MiB piece goes the cheapest way that works. One 4 KiB page of it is touched first. If the
//! kernel answered with a whole 2 MiB page, that was all. Otherwise the piece is collapsed *now*,
//! while it is nearly empty: the kernel then fills one fresh huge page with zeroes, instead of
//! handing out 512 small pages, copying them and taking them back. Only if that is refused are the
//! remaining small pages touched. (`copy_sweep` among the examples prints what a touch costs.)

use std::ops::Range;

use nix::errno::Errno;

use super::{Arena, PageKind};
use crate::advice::{Advice, advise};
use crate::lock::lock;
use crate::memory_file::{HUGE_PAGE_BYTES, PAGE_BYTES};
use crate::note::Facility;
use crate::residency::resident_pages;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// After this many pieces in a row for which the kernel found no huge page, it is asked no more:
/// on a fragmented host each attempt costs a search through memory.
const COLLAPSE_FAILURES_MAX: u32 = 16;

/// What one call of [`Arena::touch`] did.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct TouchReport {
    /// Bytes that have memory behind them now: the range, widened to whole pages.
    pub bytes: u64,
    /// How many of them are on 2 MiB pages, as far as this call could tell.
    pub huge_bytes: u64,
    /// Whether some of those had to be collapsed.
    pub collapsed: bool,
    /// Whether all of them are locked in memory.
    pub locked: bool,
}

/// Memory could not be had.
#[derive(Debug, thiserror::Error)]
#[error("touching arena bytes {start}..{end}")]
pub struct TouchError {
    /// First byte of the piece that failed.
    pub start: usize,
    /// One past its last byte.
    pub end: usize,
    /// The kernel's reason.
    #[source]
    pub source: Errno,
}

/// How many bytes are on which kind of page.
#[derive(Debug, Default)]
pub(super) struct Tally {
    transparent: AtomicU64,
    collapsed: AtomicU64,
    small: AtomicU64,
    /// Failures to collapse in a row.
    failures: AtomicU32,
}

impl Tally {
    /// Statistics only: nothing is ordered by these counters.
    fn add(&self, kind: PageKind, bytes: usize) {
        let counter = match kind {
            PageKind::HugeTlb => return,
            PageKind::Transparent => &self.transparent,
            PageKind::Collapsed => &self.collapsed,
            PageKind::Small => &self.small,
        };
        counter.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn prevailing(&self) -> PageKind {
        let transparent = self.transparent.load(Ordering::Relaxed);
        let collapsed = self.collapsed.load(Ordering::Relaxed);
        let small = self.small.load(Ordering::Relaxed);
        if small >= transparent.saturating_add(collapsed) {
            PageKind::Small
        } else if transparent >= collapsed {
            PageKind::Transparent
        } else {
            PageKind::Collapsed
        }
    }
}

impl Arena {
    /// Puts memory behind `range`, so that nobody ever waits (or is charged) for it again, and
    /// locks it if the arena is pinned. Contents do not change. May be called from several threads
    /// on different ranges; touching a range again is harmless.
    ///
    /// Start on multiples of 2 MiB: a piece that does not cover a whole huge page is touched page
    /// by page.
    ///
    /// # Errors
    /// If the kernel has no memory to give.
    ///
    /// # Panics
    /// If the range leaves the arena.
    pub fn touch(&self, range: Range<u64>) -> Result<TouchReport, TouchError> {
        let total = self.mapping().region().bytes();
        let Some(range) = to_pages(&range, total) else {
            panic!("range {range:?} leaves the arena of {total} bytes")
        };
        let mut report = TouchReport { bytes: range.len() as u64, ..TouchReport::default() };
        let mut start = range.start;
        while start < range.end {
            let next_huge = (start + 1).next_multiple_of(HUGE_PAGE_BYTES);
            let piece = start..next_huge.min(range.end);
            start = piece.end;
            let kind = self.touch_piece(piece.clone()).map_err(|source| TouchError {
                start: piece.start,
                end: piece.end,
                source,
            })?;
            self.tally.add(kind, piece.len());
            report.collapsed |= kind == PageKind::Collapsed;
            if kind != PageKind::Small {
                report.huge_bytes += piece.len() as u64;
            }
        }
        report.locked = self.pin && self.lock_touched(range);
        Ok(report)
    }

    fn touch_piece(&self, piece: Range<usize>) -> Result<PageKind, Errno> {
        if self.from_pool {
            self.populate(piece)?;
            return Ok(PageKind::HugeTlb);
        }
        if piece.len() < HUGE_PAGE_BYTES {
            self.populate(piece)?;
            return Ok(PageKind::Small);
        }
        let region = self.mapping().region();
        // A container may refuse the question; then a huge page is only recognised after a collapse.
        let untouched = resident_pages(region, piece.clone()) == Ok(0);
        self.populate(piece.start..piece.start + PAGE_BYTES)?;
        let pages = HUGE_PAGE_BYTES / PAGE_BYTES;
        if untouched && resident_pages(region, piece.clone()) == Ok(pages) {
            return Ok(PageKind::Transparent);
        }
        if self.collapse(piece.clone()) {
            return Ok(PageKind::Collapsed);
        }
        self.populate(piece)?;
        Ok(PageKind::Small)
    }

    /// Whether the piece is one huge page now.
    fn collapse(&self, piece: Range<usize>) -> bool {
        let failures = &self.tally.failures;
        // Relaxed: a late view costs at most a few attempts more.
        if failures.load(Ordering::Relaxed) >= COLLAPSE_FAILURES_MAX {
            return false;
        }
        match advise(self.mapping().region(), piece, Advice::Collapse) {
            Ok(()) => {
                failures.store(0, Ordering::Relaxed);
                true
            }
            Err(errno @ (Errno::ENOMEM | Errno::EAGAIN | Errno::EBUSY)) => {
                let before = failures.fetch_add(1, Ordering::Relaxed);
                if before + 1 >= COLLAPSE_FAILURES_MAX {
                    self.notes.add(Facility::Collapse, errno);
                }
                false
            }
            Err(errno) => {
                failures.store(COLLAPSE_FAILURES_MAX, Ordering::Relaxed);
                self.notes.add(Facility::Collapse, errno);
                false
            }
        }
    }

    fn populate(&self, range: Range<usize>) -> Result<(), Errno> {
        let told_no = self.notes.mentions(Facility::Populate);
        if !told_no {
            match advise(self.mapping().region(), range.clone(), Advice::PopulateWrite) {
                Ok(()) => return Ok(()),
                Err(errno @ (Errno::EINVAL | Errno::ENOSYS | Errno::EPERM | Errno::EACCES)) => {
                    self.notes.add(Facility::Populate, errno);
                }
                Err(errno) => return Err(errno),
            }
        }
        for page in range.step_by(PAGE_BYTES) {
            self.mapping().touch_byte(page);
        }
        Ok(())
    }

    fn lock_touched(&self, range: Range<usize>) -> bool {
        if self.notes.mentions(Facility::Lock) {
            return false;
        }
        match lock(self.mapping().region(), range) {
            Ok(()) => true,
            Err(errno) => {
                self.notes.add(Facility::Lock, errno);
                false
            }
        }
    }
}

/// The range, widened to whole pages, or `None` if it leaves the arena.
fn to_pages(range: &Range<u64>, total: usize) -> Option<Range<usize>> {
    let start = usize::try_from(range.start).ok()?;
    let end = usize::try_from(range.end).ok()?;
    if start > end || end > total {
        return None;
    }
    Some(start / PAGE_BYTES * PAGE_BYTES..end.next_multiple_of(PAGE_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_grow_to_pages_and_stay_inside() {
        let total = 3 * PAGE_BYTES;
        assert_eq!(to_pages(&(1..4097), total), Some(0..8192));
        assert_eq!(to_pages(&(4096..12288), total), Some(4096..12288));
        assert_eq!(to_pages(&(0..0), total), Some(0..0));
        assert_eq!(to_pages(&(0..12289), total), None);
        assert_eq!(to_pages(&(u64::MAX..u64::MAX), total), None);
        #[expect(clippy::reversed_empty_ranges, reason = "the case under test")]
        let backwards = 2..1;
        assert_eq!(to_pages(&backwards, total), None);
    }

    #[test]
    fn the_prevailing_kind_is_by_bytes() {
        let tally = Tally::default();
        assert_eq!(tally.prevailing(), PageKind::Small);
        tally.add(PageKind::Collapsed, HUGE_PAGE_BYTES);
        assert_eq!(tally.prevailing(), PageKind::Collapsed);
        tally.add(PageKind::Transparent, 2 * HUGE_PAGE_BYTES);
        assert_eq!(tally.prevailing(), PageKind::Transparent);
        tally.add(PageKind::Small, 4 * HUGE_PAGE_BYTES);
        assert_eq!(tally.prevailing(), PageKind::Small);
    }
}
