//! Attached files, in the kernel's table where it has room: saves a look-up and a count each I/O.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use io_uring::{IoUring, squeue, types};

use crate::open::Features;
use crate::operation::FileId;

/// Sizes of the table, tried in turn: it may not be larger than the limit of open files.
const SLOTS: [usize; 3] = [4096, 512, 64];

/// A file that is attached, or was and has operations left.
#[derive(Debug)]
pub(super) struct Attached {
    file: File,
    slot: Option<u32>,
}

impl Attached {
    /// How an entry names the file.
    pub(super) fn named(&self) -> (types::Fd, squeue::Flags) {
        match self.slot.and_then(|slot| RawFd::try_from(slot).ok()) {
            Some(slot) => (types::Fd(slot), squeue::Flags::FIXED_FILE),
            None => (types::Fd(self.file.as_raw_fd()), squeue::Flags::empty()),
        }
    }
}

/// All of them.
#[derive(Debug)]
pub(super) struct Files {
    attached: BTreeMap<FileId, Arc<Attached>>,
    /// Detached, but operations in flight still name them.
    leaving: Vec<Arc<Attached>>,
    free_slots: Vec<u32>,
}

impl Files {
    pub(super) fn new(uring: &IoUring, features: &mut Features) -> Self {
        let mut free_slots = Vec::new();
        let mut refusal = None;
        for slots in SLOTS {
            match uring.submitter().register_files(&vec![-1; slots]) {
                Ok(()) => {
                    free_slots = (0..u32::try_from(slots).unwrap_or(0)).rev().collect();
                    break;
                }
                Err(error) => refusal = Some(format!("fixed_files: {error}")),
            }
        }
        if free_slots.is_empty() {
            features.refused.extend(refusal);
        } else {
            features.in_force.push("fixed_files");
        }
        Self { attached: BTreeMap::new(), leaving: Vec::new(), free_slots }
    }

    pub(super) fn attach(&mut self, uring: &IoUring, id: FileId, file: File) {
        self.let_go(uring);
        let slot = self.free_slots.pop();
        let slot = slot.filter(|slot| {
            let set = uring.submitter().register_files_update(*slot, &[file.as_raw_fd()]);
            matches!(set, Ok(1))
        });
        let before = self.attached.insert(id, Arc::new(Attached { file, slot }));
        assert!(before.is_none(), "file {id} is attached already");
    }

    pub(super) fn detach(&mut self, uring: &IoUring, id: FileId) {
        self.leaving.extend(self.attached.remove(&id));
        self.let_go(uring);
    }

    pub(super) fn find(&self, id: FileId) -> Option<&Arc<Attached>> {
        self.attached.get(&id)
    }

    /// Closes detached files that no operation names any more.
    pub(super) fn let_go(&mut self, uring: &IoUring) {
        let free_slots = &mut self.free_slots;
        self.leaving.retain(|file| {
            if Arc::strong_count(file) > 1 {
                return true;
            }
            if let Some(slot) = file.slot
                && matches!(uring.submitter().register_files_update(slot, &[-1]), Ok(1))
            {
                free_slots.push(slot);
            }
            false
        });
    }
}
