//! A row goes, for whatever reason. Its extent is free at once, or stays as an orphan while
//! somebody pins it.

use kvd_proto::miss::MissReason;

use crate::rows::RowId;
use crate::store::Store;
use crate::time::Timestamp;

impl Store {
    /// Removes a row and keeps in mind why.
    pub(crate) fn remove_row(&mut self, id: RowId, reason: MissReason) {
        self.tell_removed(id, reason);
        if !self.rows[id].marks.is_plain() {
            self.leave_below(id, reason);
        }
        let hash = self.row_hash(&self.rows[id]);
        self.leave(id, hash);
        self.let_extent_go(id);
        let row = self.rows.remove(id);
        if !row.parked {
            self.evict.remove(id, row.class);
        }
        if row.expires_at != Timestamp::NEVER {
            self.expiries.remove(&(row.expires_at, id));
        }
        self.host_bytes -= u64::from(row.len_bytes);
        self.lineage_bytes -= row.lineage_bytes();
        if self.namespaces.remove_row(row.namespace) {
            self.ledger.namespace_over(row.namespace.0);
        }
        self.evidence.removed(hash, reason);
    }

    /// The time to live of a row is over.
    pub(crate) fn expire(&mut self, id: RowId) {
        self.totals.expirations_total += 1;
        self.remove_row(id, MissReason::Expired);
    }

    /// Parts a row from its extent; the row is about to go or to get another one.
    pub(crate) fn let_extent_go(&mut self, id: RowId) {
        self.ledger.row_over(id.0);
        let extent = self.rows[id].host_extent();
        if self.space[extent].promised() {
            self.promises.rows -= 1;
            self.promises.bytes -= self.space[extent].bytes();
        } else {
            self.uncount_evictable(extent);
        }
        self.space.let_go(extent);
    }

    /// A promise is over: the row may be evictable again.
    pub(crate) fn end_promise(&mut self, id: RowId) {
        let extent = self.rows[id].host_extent();
        self.space.set_promised(extent, false);
        self.promises.rows -= 1;
        self.promises.bytes -= self.space[extent].bytes();
        self.count_evictable(extent);
    }
}
