//! The two writes of which a device has at most one each: a piece of the journal, with the syncs
//! that it asks for, and a piece of a snapshot.
//!
//! A journal piece that is to be durable first syncs the containers that were written since they
//! were last synced, while it is being written itself, and then its own file. So whatever the
//! journal says for good is there for good.

use std::collections::BTreeSet;

use kvd_disk::{AlignedBuffer, Completion, Fault, FileId, Memory, Operation};
use kvd_store::{DiskDone, Half, WriteFault};

use super::pieces::{journal_file, snapshot_file};

/// Which record an operation belongs to, for its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The bytes themselves.
    Write,
    /// A container that must be on stable storage first.
    Container,
    /// The record's own file.
    File,
}

/// One record on its way.
#[derive(Debug)]
pub(super) struct Record {
    what: What,
    file: FileId,
    /// Its own file is to be synced, and has not been yet.
    sync: bool,
    /// Operations that have not ended.
    left: usize,
    result: Result<(), WriteFault>,
    fault: Option<Fault>,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Journal { sequence: u64 },
    Snapshot,
}

impl Record {
    /// A piece of a journal and its first operations. With `sync`, `unsynced` is emptied.
    pub(super) fn journal(
        (half, offset): (Half, u64),
        bytes: &[u8],
        sequence: u64,
        sync: bool,
        unsynced: &mut BTreeSet<FileId>,
        token: impl Fn(Step) -> u64,
    ) -> (Self, Vec<Operation>) {
        let file = journal_file(half);
        let mut operations = write(file, offset, bytes, &token);
        if sync {
            let containers = std::mem::take(unsynced).into_iter();
            operations.extend(containers.map(|file| Operation::sync(token(Step::Container), file)));
        }
        (Self::new(What::Journal { sequence }, file, sync, operations.len()), operations)
    }

    /// A piece of a snapshot and its first operation.
    pub(super) fn snapshot(
        (half, offset): (Half, u64),
        bytes: &[u8],
        last: bool,
        token: impl Fn(Step) -> u64,
    ) -> (Self, Vec<Operation>) {
        let file = snapshot_file(half);
        let operations = write(file, offset, bytes, &token);
        (Self::new(What::Snapshot, file, last, operations.len()), operations)
    }

    fn new(what: What, file: FileId, sync: bool, left: usize) -> Self {
        Self { what, file, sync, left, result: Ok(()), fault: None }
    }

    /// Takes the end of one of its operations.
    pub(super) fn ended(&mut self, step: Step, completion: Completion) {
        self.left -= 1;
        if let Err(fault) = completion.result {
            let failed = match step {
                Step::Write if fault.is_no_space() => WriteFault::NoSpace,
                Step::Write => WriteFault::Io,
                Step::Container | Step::File => WriteFault::Sync,
            };
            // A failed sync weighs more than a failed write.
            if self.result.is_ok() || failed == WriteFault::Sync {
                self.result = Err(failed);
            }
            self.fault.get_or_insert(fault);
        }
    }

    /// The next operation, once everything before it has ended.
    pub(super) fn next(&mut self, token: impl Fn(Step) -> u64) -> Option<Operation> {
        if self.left > 0 || !self.sync || self.result.is_err() {
            return None;
        }
        self.sync = false;
        self.left = 1;
        Some(Operation::sync(token(Step::File), self.file))
    }

    /// What to tell the store once nothing is left to do, and the fault behind it.
    pub(super) fn outcome(&self) -> Option<(DiskDone, Option<Fault>)> {
        if self.left > 0 || (self.sync && self.result.is_ok()) {
            return None;
        }
        let result = self.result;
        let done = match self.what {
            What::Journal { sequence } => DiskDone::Journaled { sequence, result },
            What::Snapshot => DiskDone::SnapshotWritten { result },
        };
        Some((done, self.fault))
    }
}

fn write(file: FileId, offset: u64, bytes: &[u8], token: impl Fn(Step) -> u64) -> Vec<Operation> {
    if bytes.is_empty() {
        return Vec::new();
    }
    let memory = Memory::Owned(AlignedBuffer::copy_of(bytes));
    vec![Operation::write(token(Step::Write), file, offset, memory)]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use kvd_disk::Action;

    use super::*;

    fn token(step: Step) -> u64 {
        step as u64
    }

    fn end(record: &mut Record, step: Step, result: Result<(), Fault>) {
        let completion = Completion { token: 0, result, memory: None, took: Duration::ZERO };
        record.ended(step, completion);
    }

    #[test]
    fn containers_are_synced_before_the_journal() {
        let mut unsynced = BTreeSet::from([FileId(4), FileId(6)]);
        let (mut record, first) =
            Record::journal((Half::B, 8192), &[7; 4096], 3, true, &mut unsynced, token);
        let actions: Vec<_> = first.iter().map(|op| (op.action(), op.file())).collect();
        let wanted =
            [(Action::Write, FileId(1)), (Action::Sync, FileId(4)), (Action::Sync, FileId(6))];
        assert_eq!(actions, wanted);
        assert!(unsynced.is_empty());
        for step in [Step::Container, Step::Write] {
            end(&mut record, step, Ok(()));
            assert!(record.next(token).is_none(), "one has not ended");
        }
        end(&mut record, Step::Container, Ok(()));
        assert!(record.outcome().is_none());
        let last = record.next(token).unwrap();
        assert_eq!((last.action(), last.file()), (Action::Sync, FileId(1)));
        end(&mut record, Step::File, Ok(()));
        let wanted = DiskDone::Journaled { sequence: 3, result: Ok(()) };
        assert_eq!(record.outcome(), Some((wanted, None)));
    }

    #[test]
    fn a_failed_container_fails_the_record_and_spares_its_own_sync() {
        let mut unsynced = BTreeSet::from([FileId(4)]);
        let (mut record, _) =
            Record::journal((Half::A, 0), &[7; 4096], 3, true, &mut unsynced, token);
        end(&mut record, Step::Write, Err(Fault::Errno(nix::libc::EIO)));
        end(&mut record, Step::Container, Err(Fault::Errno(nix::libc::EIO)));
        assert!(record.next(token).is_none());
        let (done, fault) = record.outcome().unwrap();
        assert_eq!(done, DiskDone::Journaled { sequence: 3, result: Err(WriteFault::Sync) });
        assert_eq!(fault, Some(Fault::Errno(nix::libc::EIO)));
    }

    #[test]
    fn a_sync_alone_and_nothing_at_all_end() {
        let mut unsynced = BTreeSet::new();
        let (mut record, first) = Record::journal((Half::A, 0), &[], 1, true, &mut unsynced, token);
        assert!(first.is_empty() && record.outcome().is_none());
        assert!(record.next(token).is_some());
        end(&mut record, Step::File, Ok(()));
        assert!(record.outcome().is_some());
        let (record, first) = Record::journal((Half::A, 0), &[], 1, false, &mut unsynced, token);
        assert!(first.is_empty() && record.outcome().is_some());
    }

    #[test]
    fn only_the_last_piece_of_a_snapshot_syncs() {
        let (mut record, first) = Record::snapshot((Half::A, 4096), &[1; 4096], false, token);
        assert_eq!((first.len(), first[0].file(), first[0].offset()), (1, FileId(2), 4096));
        end(&mut record, Step::Write, Ok(()));
        assert!(record.next(token).is_none() && record.outcome().is_some());
        let (mut record, _) = Record::snapshot((Half::A, 8192), &[1; 4096], true, token);
        end(&mut record, Step::Write, Err(Fault::Errno(nix::libc::ENOSPC)));
        let wanted = DiskDone::SnapshotWritten { result: Err(WriteFault::NoSpace) };
        assert_eq!(record.outcome().map(|(done, _)| done), Some(wanted));
    }
}
