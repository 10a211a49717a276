//! Handing out what must be written, and hearing that it was.

use super::{JournalWrite, Tablespace};

impl Tablespace {
    /// The next write to the journal, if there is something to say. At most one is under way. A
    /// journal's first batch may say nothing.
    ///
    /// With `sync` it is to be followed by a sync; there is one then even if all is written, as
    /// long as not all is durable.
    pub(crate) fn next_batch(&mut self, sync: bool) -> Option<JournalWrite> {
        self.turn_over_if_due();
        let sync = sync || self.is_turn_due();
        self.journal.next(sync)
    }

    /// A write to the journal ended. What was not written is offered again.
    ///
    /// # Panics
    /// If it is not the one that is under way.
    pub(crate) fn batch_written(&mut self, sequence: u64, success: bool) {
        self.journal.wrote(sequence, success);
        self.leave_limbo(self.journal.written());
    }

    /// A sync that began after the batches up to this number were written has ended.
    pub(crate) fn synced(&mut self, sequence: u64) {
        self.journal.synced(sequence);
    }

    /// Number of the latest batch that is written.
    pub(crate) const fn written_sequence(&self) -> u64 {
        self.journal.written()
    }

    /// Number of the latest batch that survives any crash.
    pub(crate) const fn durable_sequence(&self) -> u64 {
        self.journal.durable()
    }

    /// Number of a batch that, once durable, makes everything so far durable.
    pub(crate) fn latest_sequence(&self) -> u64 {
        self.journal.latest_sequence()
    }

    /// Whether records wait to be written.
    pub(crate) fn has_records(&self) -> bool {
        self.journal.has_records()
    }
}
