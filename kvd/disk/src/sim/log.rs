//! What happened to the files, in order: the raw material of crash images.

use std::collections::{BTreeMap, BTreeSet};

use crate::operation::FileId;

/// Some bytes of a file, as they were set.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Patch {
    pub(super) offset: usize,
    pub(super) bytes: Vec<u8>,
}

impl Patch {
    /// The first byte after it.
    pub(super) fn end(&self) -> usize {
        self.offset.saturating_add(self.bytes.len())
    }

    /// Sets the bytes; the file grows if need be.
    pub(super) fn apply(&self, file: &mut Vec<u8>) {
        let end = self.end();
        if file.len() < end {
            file.resize(end, 0);
        }
        if let Some(place) = file.get_mut(self.offset..end) {
            place.copy_from_slice(&self.bytes);
        }
    }
}

#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Event {
    /// An operation wrote: what really reached the file, which is durable only after a sync.
    Written(Patch),
    /// A byte went bad on the medium itself.
    Rotted(Patch),
    /// An operation synced all that was reaped before it was submitted, or failed to.
    Synced { ok: bool },
    /// Something outside of any operation, durable at once: the file got these contents.
    Became(Vec<u8>),
}

/// One step.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Record {
    pub(super) file: FileId,
    pub(super) event: Event,
    /// How many records there were when the operation was submitted.
    pub(super) submitted_at: usize,
}

/// All steps.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) records: Vec<Record>,
}

/// A write that comes after one that a crash may undo, or is one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Late {
    pub(super) file: FileId,
    pub(super) patch: Patch,
    /// A crash may undo it.
    pub(super) is_loose: bool,
}

impl Log {
    pub(super) fn push(&mut self, file: FileId, submitted_at: usize, event: Event) {
        self.records.push(Record { file, event, submitted_at });
    }

    /// The state after the first `after` records: what is in the files for certain up to the first write
    /// that may be undone, and all writes from there on, in order. Writes in flight at that moment
    /// may have happened.
    pub(super) fn state_after(&self, after: usize) -> (BTreeMap<FileId, Vec<u8>>, Vec<Late>) {
        let synced = self.synced(after);
        let mut certain: BTreeMap<FileId, Vec<u8>> = BTreeMap::new();
        let mut late: Vec<Late> = Vec::new();
        for (at, record) in self.records.iter().enumerate() {
            let (file, happened) = (record.file, at < after);
            match &record.event {
                Event::Became(contents) if happened => {
                    late.retain(|late| late.file != file);
                    certain.insert(file, contents.clone());
                }
                Event::Written(patch) if happened || record.submitted_at <= after => {
                    late.push(Late { file, patch: patch.clone(), is_loose: !synced.contains(&at) });
                }
                Event::Rotted(patch) if happened => {
                    late.push(Late { file, patch: patch.clone(), is_loose: false });
                }
                Event::Became(_) | Event::Written(_) | Event::Rotted(_) | Event::Synced { .. } => {}
            }
        }
        let first_loose = late.iter().position(|late| late.is_loose).unwrap_or(late.len());
        for Late { file, patch, .. } in late.drain(..first_loose) {
            patch.apply(certain.entry(file).or_default());
        }
        (certain, late)
    }

    /// Which writes the first sync that covers them made durable, before the crash. If that one failed, a
    /// later one says nothing: kernels drop what they could not write.
    fn synced(&self, after: usize) -> BTreeSet<usize> {
        let mut open: Vec<(usize, FileId)> = Vec::new();
        let mut synced = BTreeSet::new();
        for (at, record) in self.records.iter().take(after).enumerate() {
            match record.event {
                Event::Written(_) => open.push((at, record.file)),
                Event::Synced { ok } => open.retain(|(written_at, file)| {
                    let is_covered = *file == record.file && *written_at < record.submitted_at;
                    if is_covered && ok {
                        synced.insert(*written_at);
                    }
                    !is_covered
                }),
                Event::Became(_) | Event::Rotted(_) => {}
            }
        }
        synced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: FileId = FileId(0);

    fn write(byte: u8, offset: usize) -> Event {
        Event::Written(Patch { offset, bytes: vec![byte; 2] })
    }

    fn log(events: Vec<(usize, Event)>) -> Log {
        let mut log = Log::default();
        for (submitted_at, event) in events {
            log.push(FILE, submitted_at, event);
        }
        log
    }

    #[test]
    fn a_sync_covers_what_was_there_when_it_was_submitted() {
        let log = log(vec![
            (0, Event::Became(vec![0; 6])),
            (1, write(1, 0)),
            (1, write(2, 2)),
            // Submitted after the first write only.
            (2, Event::Synced { ok: true }),
        ]);
        let (durable, loose) = log.state_after(4);
        assert_eq!(durable[&FILE], [1, 1, 0, 0, 0, 0]);
        assert_eq!(loose.len(), 1);
        let (durable, loose) = log.state_after(3);
        assert_eq!(durable[&FILE], [0; 6], "the sync has not happened");
        assert_eq!(loose.len(), 2);
    }

    #[test]
    fn a_write_in_flight_may_have_happened() {
        let log = log(vec![(0, Event::Became(vec![0; 2])), (1, write(1, 0)), (2, write(2, 0))]);
        assert_eq!(log.state_after(1).1.len(), 1, "the first is in flight, the second unheard of");
        assert_eq!(log.state_after(0).0.len(), 0);
    }

    #[test]
    fn a_failed_sync_is_not_made_good_by_a_later_one() {
        let log = log(vec![
            (0, write(1, 0)),
            (1, Event::Synced { ok: false }),
            (2, write(2, 2)),
            (3, Event::Synced { ok: true }),
        ]);
        let (durable, late) = log.state_after(4);
        assert!(durable.is_empty());
        assert_eq!(late.iter().map(|late| late.is_loose).collect::<Vec<_>>(), [true, false]);
    }
}
