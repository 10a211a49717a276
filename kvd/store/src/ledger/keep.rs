//! The store's decisions, said in the ledger.

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::SessionId;

use super::record::RowFields;
use super::slots::{Range, RightSlot, SessionSlot};
use super::{Holder, RowEntry};
use crate::input::{Peer, ProcessName};
use crate::rights::Right;
use crate::rows::RowId;
use crate::space::ExtentId;
use crate::store::Store;

impl Store {
    /// See [`crate::Input::Open`].
    pub(crate) fn open(&mut self, id: SessionId, peer: Peer, process: Option<ProcessName>) {
        self.open_for(Holder::Peer, id, peer, process);
    }

    pub(super) fn open_for(
        &mut self,
        holder: Holder,
        id: SessionId,
        peer: Peer,
        process: Option<ProcessName>,
    ) -> u32 {
        let slot = self.sessions.open(id, peer, process);
        self.ledger.mark_next_session(id.0 + 1);
        self.ledger.session(slot, &SessionSlot { id, process, peer, holder });
        slot
    }

    /// Forgets a session that can neither ask nor hold anything any more.
    pub(crate) fn forget_if_over(&mut self, session: u32) {
        if self.sessions.forget_if_over(session) {
            self.ledger.session_over(session);
        }
    }

    /// A right was given.
    pub(crate) fn record_right(&mut self, index: u32) {
        if let Some(slot) = self.right_slot(index) {
            self.ledger.right(index, &slot);
        }
    }

    /// A right is of another kind, or another session's, now.
    pub(crate) fn record_change(&mut self, index: u32) {
        if let Some(slot) = self.right_slot(index) {
            self.ledger.right_changed(index, &slot);
        }
    }

    /// A right is about to end.
    pub(crate) fn strike_right(&mut self, index: u32) {
        if self.rights.at(index).kind.is_the_peers() {
            self.ledger.right_over(index);
        }
    }

    /// None if it is the daemon's own, which ends with the daemon.
    fn right_slot(&self, index: u32) -> Option<RightSlot> {
        let &Right { kind, session, extent, asked_bytes, owes_reserve, .. } = self.rights.at(index);
        let range = &self.space[extent];
        kind.is_the_peers().then(|| RightSlot {
            kind,
            session,
            range: Range { start: range.start(), bytes: range.bytes() },
            large: range.large(),
            version: range.version(),
            uses: self.rights.uses(index),
            asked_bytes,
            owes_reserve,
        })
    }

    /// The kernel is about to write to an extent. What [`super::Ledger::read_over`] wants.
    pub(crate) fn record_read(&mut self, extent: ExtentId) -> u32 {
        let range = &self.space[extent];
        self.ledger.read(Range { start: range.start(), bytes: range.bytes() })
    }

    /// A row was stored, with the checksum of its bytes if that is known.
    pub(crate) fn record_row(&mut self, id: RowId, checksum: Option<u64>) {
        if !self.ledger.keeps_row(id.0) {
            return;
        }
        let row = &self.rows[id];
        let names = self.namespaces.at(row.namespace);
        let extent = &self.space[row.host_extent()];
        let lineage = row.lineage();
        let fields = RowFields {
            class: row.class,
            large: extent.large(),
            with_lineage: lineage.is_some(),
            len_bytes: row.len_bytes,
            start: extent.start(),
            expires_at: self.config.disk.wall(row.expires_at),
            checksum,
            version: extent.version(),
            namespace: row.namespace.0,
        };
        let entry = RowEntry {
            fields,
            namespace: Namespace { model: &names.model, compat_key: &names.compat_key },
            key: row.key.as_bytes(),
            lineage: lineage.unwrap_or_default(),
        };
        self.ledger.row(id.0, &entry);
    }
}
