//! What a commit means below: older copies go, and the new row is to be written.

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use super::Durability;
use super::device::{Below, bit};
use super::marks::{Copied, Marks};
use super::work::WaitId;
use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::EntryId;
use crate::time::Timestamp;

impl Store {
    /// Class of the block that a device holds under this name, if there is no row.
    pub(crate) fn class_below(
        &self,
        namespace: Namespace<'_>,
        key: &[u8],
        now: Timestamp,
    ) -> Option<Retention> {
        let wall = self.config.disk.wall(now);
        let found = self.disk.devices.iter().filter_map(|device| {
            let tablespace = device.tablespace()?;
            let entry = tablespace.entry(tablespace.find(namespace, key, wall)?);
            Some((entry.generation(), entry.class()))
        });
        found.max().map(|(_, class)| class)
    }

    /// A new value is about to be stored: everything below forgets the old one. The devices that
    /// had one.
    pub(crate) fn replace_below(
        &mut self,
        old: Option<RowId>,
        namespace: Namespace<'_>,
        key: &[u8],
    ) -> u64 {
        if !self.disk.exists() {
            return 0;
        }
        if let Some(old) = old {
            self.part_from_old_value(old);
        }
        self.supersede_all(namespace, key)
    }

    /// The row stays, its value goes.
    fn part_from_old_value(&mut self, id: RowId) {
        if self.rows[id].marks.landed() {
            self.keep_no_longer(id);
        }
        match self.rows[id].marks.copied() {
            Copied::Never | Copied::Displaced => {}
            Copied::Dirty { .. } => self.disk.dirty.subtract(&self.rows[id]),
            Copied::Spilling => {
                self.void_spill(id);
                self.disk.dirty.subtract(&self.rows[id]);
            }
            Copied::Clean => {
                let row = &self.rows[id];
                self.link_none(Below { device: row.device, entry: row.entry });
            }
        }
        let row = &mut self.rows[id];
        row.marks = Marks::new(Copied::Never);
        row.entry = EntryId::NONE;
    }

    fn link_none(&mut self, below: Below) {
        let device = &mut self.disk.devices[usize::from(below.device)];
        if let Some(tablespace) = device.tablespace_mut() {
            tablespace.set_host(below.entry, RowId::NONE);
        }
    }

    /// A row was stored; `superseded` are the devices that had an older value. What its
    /// acknowledgement has to wait for, if anything.
    pub(crate) fn stored_below(
        &mut self,
        id: RowId,
        hash: u64,
        superseded: u64,
        is_new: bool,
    ) -> Option<WaitId> {
        if !self.disk.exists() {
            return None;
        }
        let class = self.rows[id].class;
        let goes_below = class >= Retention::Short && self.disk.has_future();
        let row = &mut self.rows[id];
        row.marks =
            Marks::new(if goes_below { Copied::Dirty { failures: 0 } } else { Copied::Never });
        row.marks
            .set_may_have_older(self.disk.devices.iter().any(super::device::Device::is_coming));
        if class == Retention::Short && (self.disk.ghosts.meet(hash) || !is_new) {
            row.marks.set_touched();
        }
        if goes_below {
            self.disk.dirty.add(&self.rows[id]);
            if class == Retention::Long || self.disk.drain.is_some() {
                self.disk.dirty.push(id);
                self.disk.out.devices_to_wake |= self.disk.ready_bits();
            } else {
                self.note_stored(self.space[self.rows[id].host_extent()].bytes());
            }
        }
        if class != Retention::Long {
            // Who waited for the value before this one: that will never be written.
            self.disk.waits.fail_row(id);
        }
        self.wait_for_stored(id, superseded)
    }

    fn wait_for_stored(&mut self, id: RowId, superseded: u64) -> Option<WaitId> {
        let is_long = self.rows[id].class == Retention::Long;
        if self.config.disk.durability != Durability::Strict || !(is_long || superseded != 0) {
            return None;
        }
        let wait = self.disk.waits.begin();
        if is_long {
            self.disk.waits.add_row(wait, id);
            if !self.disk.has_future() {
                self.disk.waits.fail_row(id);
            }
        }
        for device in (0..self.disk.count()).filter(|&device| superseded & bit(device) != 0) {
            self.disk.waits.add(wait);
            self.wait_for_sync(device, wait);
        }
        self.disk.waits.seal(wait);
        Some(wait)
    }

    /// See [`crate::Input::DropCorrupt`].
    pub(crate) fn drop_corrupt(&mut self, namespace: Namespace<'_>, key: &[u8], version: u32) {
        let named = self.named(namespace);
        let row = named.id.and_then(|id| self.find(id, self.hash(named.hash, key), key));
        let same = row.filter(|&row| self.space[self.rows[row].host_extent()].version() == version);
        if let Some(row) = same {
            self.disk.totals.corrupt_total += 1;
            self.remove_row(row, kvd_proto::miss::MissReason::Corrupt);
        }
    }
}
