//! The same value in the arena and on a device, found so when rows and blocks meet that do not know of each
//! other: rows that were adopted, and the blocks that their daemon had written of them.

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use super::device::{Below, bit};
use super::marks::Copied;
use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::{Entry, WallTime};

/// Rows that one turn looks at.
const ROWS_AT_ONCE: u32 = 256;

/// What tells a value from all others that a name ever had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Same {
    len_bytes: u32,
    checksum: u64,
    class: Retention,
    expires_at: WallTime,
}

impl Same {
    /// Whether a block under the same name is this value.
    pub(crate) fn is(self, entry: &Entry) -> bool {
        let Self { len_bytes, checksum, class, expires_at } = self;
        (entry.len_bytes(), entry.checksum()) == (len_bytes, checksum)
            && (entry.class(), entry.expires_at()) == (class, expires_at)
    }
}

impl Store {
    /// What blocks are compared with that may be the same as a row's value; none if too little is known.
    pub(crate) fn same_as(&self, id: RowId) -> Option<Same> {
        let row = &self.rows[id];
        Some(Same {
            len_bytes: row.len_bytes,
            checksum: row.checksum()?,
            class: row.class,
            expires_at: self.config.disk.wall(row.expires_at),
        })
    }

    pub(crate) fn is_same(&self, below: Below, same: Same) -> bool {
        let tablespace = self.disk.devices[usize::from(below.device)].tablespace();
        tablespace.is_some_and(|tablespace| same.is(tablespace.entry(below.entry)))
    }

    /// Goes on with seeking what adopted rows have on a device.
    pub(crate) fn reunite(&mut self, device: u8) {
        let Some(from) = self.disk.devices[usize::from(device)].reuniting else {
            return;
        };
        let end = from.saturating_add(ROWS_AT_ONCE).min(self.disk.adopted_end);
        for id in (from..end).map(RowId) {
            self.reunite_row(device, id);
        }
        let is_over = end == self.disk.adopted_end;
        self.disk.devices[usize::from(device)].reuniting = (!is_over).then_some(end);
        self.disk.out.devices_to_wake |= if is_over { self.disk.ready_bits() } else { bit(device) };
    }

    /// A row whose value the device has is clean.
    fn reunite_row(&mut self, device: u8, id: RowId) {
        let Some(row) = self.rows.get(id) else {
            return;
        };
        if !row.marks.is_dirty() || !row.marks.may_have_older() {
            return;
        }
        let Some(same) = self.same_as(id) else {
            return;
        };
        let entry = self.namespaces.at(row.namespace);
        let namespace = Namespace { model: &entry.model, compat_key: &entry.compat_key };
        let Some((_, below)) = self.disk.at(device, namespace, row.key.as_bytes()) else {
            return;
        };
        if !self.is_same(below, same) {
            return;
        }
        self.disk.dirty.subtract(&self.rows[id]);
        let is_anyone_coming = self.disk.is_anyone_coming();
        let row = &mut self.rows[id];
        row.marks.set_copied(Copied::Clean);
        row.marks.set_may_have_older(is_anyone_coming);
        (row.device, row.entry) = (below.device, below.entry);
        if !self.config.keep_checksums {
            row.forget_checksum();
        }
        self.link(id, below);
        // Whoever waits for the row to be written has waited enough once it is known to be there.
        self.wait_for_journal(device, id);
    }
}
