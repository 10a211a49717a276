//! Sums of what each tier holds of each namespace, kept where rows and entries enter and leave the index.

use kvd_proto::events::{Row as EventRow, Tally};

use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::{Entry, EntryId, Tablespace};

impl Store {
    /// A row is in the index, or its lineage has become another one.
    pub(crate) fn count_row(&mut self, id: RowId) {
        if self.config.events {
            let (namespace, tally) = (self.rows[id].namespace, self.tally_of(id));
            self.namespaces.tally_mut(namespace).add(tally);
        }
    }

    /// A row is about to leave the index, or to get another lineage.
    pub(crate) fn discount_row(&mut self, id: RowId) {
        if self.config.events {
            let (namespace, tally) = (self.rows[id].namespace, self.tally_of(id));
            self.namespaces.tally_mut(namespace).take_out(tally);
        }
    }

    fn tally_of(&self, id: RowId) -> Tally {
        let row = &self.rows[id];
        EventRow::new(row.key.as_bytes(), row.lineage()).tally()
    }
}

impl Tablespace {
    /// Sums are kept and changes told from now on. Takes a look at every entry: do it before anybody waits for it.
    pub fn keep_events(&mut self) {
        if core::mem::replace(&mut self.events, true) {
            return;
        }
        for number in 0..self.entries.end() {
            if self.entries.get(number).is_some() {
                self.count_entry(EntryId(number));
            }
        }
    }

    /// An entry is in the index.
    pub(crate) fn count_entry(&mut self, id: EntryId) {
        if self.events {
            let entry = self.entries.at(id.0);
            self.namespaces.tally_mut(entry.namespace).add(tally_of(entry));
        }
    }

    /// An entry is about to leave the index.
    pub(crate) fn discount_entry(&mut self, id: EntryId) {
        if self.events {
            let entry = self.entries.at(id.0);
            self.namespaces.tally_mut(entry.namespace).take_out(tally_of(entry));
        }
    }
}

fn tally_of(entry: &Entry) -> Tally {
    EventRow::new(entry.key(), entry.lineage()).tally()
}
