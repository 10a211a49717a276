//! What a commit means below: older copies go, and the new row is to be written.

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use super::Durability;
use super::device::{Below, Device, bit};
use super::marks::{Copied, Marks};
use super::work::WaitId;
use crate::input::Commit;
use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::{EntryId, WallTime};
use crate::time::Timestamp;

/// What devices had under the name of a value that is being stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Before {
    /// The very same block, which stays.
    Same(Below),
    /// Older values on these devices, or none; they are removed.
    Gone {
        /// One bit per device.
        devices: u64,
    },
}

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

    /// A value is about to be stored: everything below forgets the one before, unless it is the same.
    pub(crate) fn replace_below(
        &mut self,
        old: Option<RowId>,
        commit: &Commit<'_>,
        len_bytes: u32,
        now: Timestamp,
    ) -> Before {
        if !self.disk.exists() {
            return Before::Gone { devices: 0 };
        }
        let same = self.same_below(commit, len_bytes, now);
        if let Some(old) = old {
            self.part_from_old_value(old);
        }
        match same {
            Some(below) => Before::Same(below),
            None => Before::Gone { devices: self.supersede_all(commit.namespace, commit.key) },
        }
    }

    /// The block on a device that is what is being stored, to the last bit: then nothing has to be
    /// removed or written. Engines store again what they had to compute again.
    fn same_below(&self, commit: &Commit<'_>, len_bytes: u32, now: Timestamp) -> Option<Below> {
        let checksum = commit.checksum?;
        let is_settled = |device: &Device| !device.is_coming() && device.comparing.is_none();
        if commit.ttl_ms.is_some() || !self.disk.devices.iter().all(is_settled) {
            return None;
        }
        let wall = self.config.disk.wall(now);
        let (device, tablespace, id) =
            (0_u8..).zip(&self.disk.devices).find_map(|(device, at)| {
                let tablespace = at.tablespace()?;
                Some((device, tablespace, tablespace.find(commit.namespace, commit.key, wall)?))
            })?;
        let (entry, below) = (tablespace.entry(id), Below { device, entry: id });
        let is_same = (entry.checksum(), entry.len_bytes(), entry.class())
            == (checksum, len_bytes, commit.retention)
            && entry.expires_at() == WallTime::NEVER
            && (commit.lineage.is_none() || commit.lineage == entry.lineage());
        // A load of it would make a second row.
        (is_same && self.disk.loads.of(below).is_none()).then_some(below)
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

    /// A row was stored. What its acknowledgement has to wait for, if anything.
    pub(crate) fn stored_below(
        &mut self,
        id: RowId,
        hash: u64,
        before: Before,
        is_new: bool,
    ) -> Option<WaitId> {
        if !self.disk.exists() {
            return None;
        }
        let superseded = match before {
            Before::Same(below) => return self.stored_again(id, below),
            Before::Gone { devices } => devices,
        };
        let class = self.rows[id].class;
        let goes_below = class >= Retention::Short && self.disk.has_future();
        let row = &mut self.rows[id];
        row.marks =
            Marks::new(if goes_below { Copied::Dirty { failures: 0 } } else { Copied::Never });
        row.marks.set_may_have_older(self.disk.devices.iter().any(Device::is_coming));
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

    /// A row was stored whose block a device has: it is clean at once.
    fn stored_again(&mut self, id: RowId, below: Below) -> Option<WaitId> {
        self.disk.totals.stored_again_total += 1;
        let row = &mut self.rows[id];
        row.marks = Marks::new(Copied::Clean);
        (row.device, row.entry) = (below.device, below.entry);
        let is_long = row.class == Retention::Long;
        self.link(id, below);
        if let Some(tablespace) = self.disk.devices[usize::from(below.device)].tablespace_mut() {
            tablespace.touch(below.entry);
        }
        let wait = (self.config.disk.durability == Durability::Strict && is_long)
            .then(|| self.disk.waits.begin());
        if let Some(wait) = wait {
            self.disk.waits.add_row(wait, id);
            self.disk.waits.seal(wait);
        }
        // Also whoever waited for the row before.
        self.wait_for_journal(below.device, id);
        wait
    }

    /// A value that replaces one on a device is not acknowledged before the end of that one is
    /// written, whatever the durability: a killed daemon must not bring it back.
    fn wait_for_stored(&mut self, id: RowId, superseded: u64) -> Option<WaitId> {
        let strict = self.config.disk.durability == Durability::Strict;
        let for_row = strict && self.rows[id].class == Retention::Long;
        let late = strict && self.disk.is_anyone_coming();
        if !for_row && superseded == 0 && !late {
            return None;
        }
        let wait = self.disk.waits.begin();
        if late {
            self.wait_for_late(id, wait);
        }
        if for_row {
            self.disk.waits.add_row(wait, id);
            if !self.disk.has_future() {
                self.disk.waits.fail_row(id);
            }
        }
        for device in (0..self.disk.count()).filter(|&device| superseded & bit(device) != 0) {
            self.disk.waits.add(wait);
            if strict {
                self.wait_for_sync(device, wait);
            } else {
                self.wait_for_write(device, wait);
            }
        }
        self.disk.waits.seal(wait);
        Some(wait)
    }

    /// A condition of a wait: devices that are still to come have been told, and have written, that
    /// the name of a row means something else now.
    fn wait_for_late(&mut self, id: RowId, wait: WaitId) {
        self.note_late(id, None);
        for device in self.disk.devices.iter_mut().filter(|device| device.is_coming()) {
            self.disk.waits.add(wait);
            device.waits.push(wait);
        }
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
