//! What the kernel refused and what is done without it: typed, so that the daemon can log each
//! refusal once and export it.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use nix::errno::Errno;

/// A facility that improves the arena but is not needed for it to be right.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Facility {
    /// `MFD_HUGETLB`: pages from the reserved pool. Without it: transparent or small pages.
    HugeTlb,
    /// `MFD_NOEXEC_SEAL`: the arena's file can never be made executable (Linux 6.3).
    NoexecSeal,
    /// `MADV_DONTDUMP`: the arena stays out of core dumps.
    DontDump,
    /// `MADV_HUGEPAGE`: ask for 2 MiB pages at the first touch.
    HugePageAdvice,
    /// `MADV_COLLAPSE`: make a 2 MiB page after the first touch (Linux 6.1).
    Collapse,
    /// `MADV_POPULATE_WRITE`: touch pages in bulk (Linux 5.14). Without it: one by one.
    Populate,
    /// `mlock`: the arena cannot be swapped out. Bounded by `RLIMIT_MEMLOCK`.
    Lock,
    /// `mbind`: the NUMA policy of the arena. Without it: the policy of the touching thread.
    NumaPolicy,
}

/// One refusal: which facility, and the kernel's reason.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Note {
    /// What was refused.
    pub facility: Facility,
    /// The error number that the kernel gave.
    pub errno: Errno,
}

impl fmt::Display for Note {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let consequence = match self.facility {
            Facility::HugeTlb => "no huge page pool for the arena, using other pages",
            Facility::NoexecSeal => "the arena file is not sealed against execution",
            Facility::DontDump => "core dumps will contain the arena",
            Facility::HugePageAdvice => "the kernel takes no advice on huge pages",
            Facility::Collapse => "part of the arena stays on 4 KiB pages",
            Facility::Populate => "arena pages are touched one by one",
            Facility::Lock => "the arena is not locked in memory",
            Facility::NumaPolicy => "the arena has no NUMA policy",
        };
        write!(out, "{consequence} ({})", self.errno)?;
        match self.remedy() {
            Some(remedy) => write!(out, ": {remedy}"),
            None => Ok(()),
        }
    }
}

impl Note {
    /// The way out, where the kernel's word for the refusal hides it.
    fn remedy(self) -> Option<&'static str> {
        // `mlock` says so at the limit, and if the limit is 0.
        let at_limit = matches!(self.errno, Errno::ENOMEM | Errno::EPERM);
        (self.facility == Facility::Lock && at_limit).then_some(
            "raise the limit of locked memory, LimitMEMLOCK= in the unit or ulimit -l in the shell, or give \
             --no-shared-arena-pin",
        )
    }
}

/// Collects refusals, each facility at most once in the life of the book.
#[derive(Debug, Default)]
pub(crate) struct NoteBook {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    said: Vec<Facility>,
    untold: Vec<Note>,
}

impl NoteBook {
    pub(crate) fn add(&self, facility: Facility, errno: Errno) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        if !pages.said.contains(&facility) {
            pages.said.push(facility);
            pages.untold.push(Note { facility, errno });
        }
    }

    pub(crate) fn take_untold(&self) -> Vec<Note> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut pages.untold)
    }

    pub(crate) fn mentions(&self, facility: Facility) -> bool {
        let pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.said.contains(&facility)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_locked_memory_is_called_by_its_name() {
        let said = |facility, errno| Note { facility, errno }.to_string();
        for errno in [Errno::ENOMEM, Errno::EPERM] {
            let said = said(Facility::Lock, errno);
            assert!(said.contains("LimitMEMLOCK=") && said.contains("ulimit -l"), "{said}");
        }
        assert!(said(Facility::Lock, Errno::ENOSYS).ends_with("implemented)"));
        assert!(said(Facility::Collapse, Errno::ENOMEM).ends_with("memory)"));
    }

    #[test]
    fn each_facility_is_said_once() {
        let book = NoteBook::default();
        book.add(Facility::Lock, Errno::ENOMEM);
        book.add(Facility::Lock, Errno::EPERM);
        book.add(Facility::Collapse, Errno::EINVAL);
        let told = book.take_untold();
        assert_eq!(
            told,
            [
                Note { facility: Facility::Lock, errno: Errno::ENOMEM },
                Note { facility: Facility::Collapse, errno: Errno::EINVAL },
            ]
        );
        book.add(Facility::Lock, Errno::ENOMEM);
        assert!(book.take_untold().is_empty());
        assert!(book.mentions(Facility::Lock));
        assert!(!book.mentions(Facility::NumaPolicy));
    }
}
