//! Rows leave the arena, blocks leave devices, and each tells the other.

use kvd_proto::block_key::Namespace;
use kvd_proto::miss::MissReason;

use super::device::{Below, bit};
use super::marks::Copied;
use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::journal::Reason;
use crate::tablespace::{EntryId, Gone};
use crate::time::Timestamp;

impl Store {
    /// The block that devices hold under this name, if its time is not over: the newest one.
    pub(crate) fn find_below(
        &mut self,
        namespace: Namespace<'_>,
        key: &[u8],
        now: Timestamp,
    ) -> Option<Below> {
        let newest = self.newest_below(namespace, key)?;
        let tablespace = self.disk.devices[usize::from(newest.device)].tablespace()?;
        let expires_at = tablespace.entry(newest.entry).expires_at();
        if self.config.disk.monotonic(expires_at) > now {
            return Some(newest);
        }
        self.remove_below(newest, Reason::Expired);
        None
    }

    /// The newest block under this name. Older ones, which a crash may have left, go.
    fn newest_below(&mut self, namespace: Namespace<'_>, key: &[u8]) -> Option<Below> {
        let mut newest: Option<(u64, Below)> = None;
        for device in 0..self.disk.count() {
            let Some((generation, below)) = self.disk.at(device, namespace, key) else {
                continue;
            };
            let older = match newest {
                Some((other, _)) if other > generation => Some(below),
                Some((_, other)) => Some(other),
                None => None,
            };
            if older != Some(below) {
                newest = Some((generation, below));
            }
            if let Some(older) = older {
                self.supersede(older);
            }
        }
        newest.map(|(_, below)| below)
    }

    /// A newer value of this block exists. If the arena holds the old one, that goes, too.
    pub(crate) fn supersede(&mut self, below: Below) {
        self.disk.totals.superseded_total += 1;
        let tablespace = self.disk.devices[usize::from(below.device)].tablespace();
        let row = tablespace.map_or(RowId::NONE, |tablespace| tablespace.entry(below.entry).host());
        self.remove_below(below, Reason::Superseded);
        if row != RowId::NONE {
            self.remove_row(row, MissReason::Cleared);
        }
    }

    /// Every device forgets what it holds under this name, because a row takes its place; devices
    /// that had something.
    pub(crate) fn supersede_all(&mut self, namespace: Namespace<'_>, key: &[u8]) -> u64 {
        let mut devices = 0;
        for device in 0..self.disk.count() {
            if let Some((_, below)) = self.disk.at(device, namespace, key) {
                self.disk.totals.superseded_total += 1;
                self.remove_below(below, Reason::Superseded);
                devices |= bit(device);
            }
        }
        devices
    }

    /// Removes a block from its device. A row linked to it stays, as one that is to be written.
    pub(crate) fn remove_below(&mut self, below: Below, reason: Reason) {
        let device = &mut self.disk.devices[usize::from(below.device)];
        let gone = device.tablespace_mut().map(|at| at.remove(below.entry, reason));
        self.disk.out.devices_to_wake |= bit(below.device);
        self.pass_on(below.device);
        if let Some(gone) = gone {
            self.note_gone(below.device, gone);
        }
    }

    /// Takes note of the blocks that have left a device by themselves. Called after whatever could
    /// make some leave, before anything else can happen to it.
    pub(crate) fn absorb(&mut self, device: u8) {
        let mut all = core::mem::take(&mut self.disk.scratch);
        let at = &mut self.disk.devices[usize::from(device)];
        if let Some(tablespace) = at.any_tablespace_mut() {
            tablespace.take_gone(&mut all);
        }
        self.pass_on(device);
        for gone in all.drain(..) {
            self.note_gone(device, gone);
        }
        self.disk.scratch = all;
    }

    fn note_gone(&mut self, device: u8, gone: Gone) {
        let Gone { entry, host, hash, reason, .. } = gone;
        self.void_load(Below { device, entry });
        if host != RowId::NONE {
            self.unlink_row(host, reason);
        } else if let Some(reason) = super::landing::miss_of(reason) {
            self.evidence.removed(hash, reason);
        }
    }

    /// Ties a row to its block on a device.
    pub(crate) fn link(&mut self, row: RowId, below: Below) {
        let device = &mut self.disk.devices[usize::from(below.device)];
        if let Some(tablespace) = device.tablespace_mut() {
            tablespace.set_host(below.entry, row);
        }
    }

    /// The block of a row is gone: the row is the only copy now.
    fn unlink_row(&mut self, id: RowId, reason: Reason) {
        let row = &mut self.rows[id];
        assert_eq!(row.marks.copied(), Copied::Clean, "{id:?} is linked, but not clean");
        row.entry = EntryId::NONE;
        // The copy that a hint made ends soon anyway.
        if row.marks.hinted() {
            row.marks.set_copied(Copied::Never);
            return;
        }
        row.marks.set_copied(Copied::Displaced);
        match reason {
            Reason::Evicted | Reason::Superseded | Reason::Expired | Reason::Cleared => {}
            // The row is as good as ever.
            Reason::Corrupt | Reason::Faulty => {
                self.soil(id);
                self.line_up_again(id);
            }
        }
    }

    /// A displaced row is to be written again.
    pub(crate) fn soil(&mut self, id: RowId) {
        let row = &mut self.rows[id];
        assert_eq!(row.marks.copied(), Copied::Displaced);
        row.marks.set_copied(Copied::Dirty { failures: 0 });
        self.disk.dirty.add(&self.rows[id]);
    }

    /// No device has room for a dirty row at present.
    pub(crate) fn displace(&mut self, id: RowId) {
        self.disown(id);
        self.rows[id].marks.set_copied(Copied::Displaced);
    }

    /// A row is about to leave for `reason`; called only if its marks say anything.
    pub(crate) fn leave_below(&mut self, id: RowId, reason: MissReason) {
        if self.rows[id].marks.landed() {
            self.keep_no_longer(id);
        }
        let evicted = matches!(reason, MissReason::Evicted(_));
        let row = &self.rows[id];
        let below = Below { device: row.device, entry: row.entry };
        let same = match reason {
            MissReason::Evicted(_) | MissReason::Corrupt => self.same_as(id),
            MissReason::Expired
            | MissReason::Cleared
            | MissReason::NeverStored
            | MissReason::OtherNamespace
            | MissReason::Deadline
            | MissReason::Shed => None,
        };
        let own = self.below(id);
        match self.rows[id].marks.copied() {
            Copied::Never => {}
            Copied::Displaced => self.count_drop(id, evicted),
            Copied::Dirty { .. } | Copied::Spilling => {
                self.count_drop(id, evicted);
                self.disown(id);
            }
            Copied::Clean => self.leave_copy(id, below, reason),
        }
        if self.rows[id].marks.may_have_older() {
            self.leave_older(id, own, same);
        }
    }

    /// A clean row leaves: its block stays or goes with it.
    fn leave_copy(&mut self, id: RowId, below: Below, reason: MissReason) {
        let hinted = self.rows[id].marks.hinted();
        let Some(tablespace) = self.disk.devices[usize::from(below.device)].tablespace_mut() else {
            self.disk.totals.dropped_faulty_total +=
                u64::from(matches!(reason, MissReason::Evicted(_)));
            return;
        };
        tablespace.set_host(below.entry, RowId::NONE);
        match reason {
            MissReason::Evicted(_) => {
                // It was used more recently than all that left the arena before it.
                tablespace.touch(below.entry);
                self.disk.totals.demotions_total += 1;
            }
            MissReason::Expired if hinted => {}
            MissReason::Expired => self.remove_below(below, Reason::Expired),
            MissReason::Cleared => self.remove_below(below, Reason::Cleared),
            MissReason::Corrupt
            | MissReason::NeverStored
            | MissReason::OtherNamespace
            | MissReason::Deadline
            | MissReason::Shed => {}
        }
        self.rows[id].marks.set_copied(Copied::Never);
    }

    /// The bytes of a row that is not on a device yet are about to change or to go: what is being
    /// written of it is void, and who waited for it has waited in vain.
    pub(crate) fn disown(&mut self, id: RowId) {
        if self.rows[id].marks.copied() == Copied::Spilling {
            self.void_spill(id);
        }
        self.disk.dirty.subtract(&self.rows[id]);
        let row = &mut self.rows[id];
        row.marks.set_copied(Copied::Never);
        self.disk.waits.fail_row(id);
    }

    fn count_drop(&mut self, id: RowId, evicted: bool) {
        let (row, totals) = (&self.rows[id], &mut self.disk.totals);
        if !evicted {
            return;
        }
        totals.dropped_unwritten_total += 1;
        let is_short = row.class == kvd_proto::retention::Retention::Short;
        let untouched = is_short && self.disk.ghosts.are_wanted() && !row.marks.touched();
        totals.untouched_total += u64::from(untouched);
    }
}
