//! Rows are written to devices.

use super::device::{Below, bit};
use super::marks::{Copied, FAILURES_MAX};
use super::work::{DiskWork, SpillFault, SpillId};
use crate::rows::RowId;
use crate::space::ExtentId;
use crate::store::Store;
use crate::tablespace::{NewEntry, NoRoom, Refused};
use crate::time::Timestamp;
use kvd_proto::block_key::Namespace;
use kvd_proto::miss::MissReason;

/// How long a device whose file system is full is left alone.
const PAUSE_MS: u64 = 1_000;

/// One write of a row to a device.
#[derive(Debug)]
pub(crate) struct Spill {
    /// None: the row was replaced or is gone, and what is written is of no use.
    pub(crate) row: Option<RowId>,
    pub(crate) device: u8,
    /// Place on the device.
    pub(crate) range: ExtentId,
    /// Place in the arena, pinned until the write is over.
    pub(crate) extent: ExtentId,
    pub(crate) len_bytes: u32,
    /// Earlier writes of the row that failed.
    failures: u8,
}

/// Why a row is not written now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    /// It is being written.
    Off(SpillId),
    /// The device has no room at the moment.
    Later,
    /// Nothing that may go would make room.
    Full,
    /// The device will never have room for it.
    Never,
}

impl Store {
    /// Begins to write a dirty row.
    pub(crate) fn spill(&mut self, device: u8, id: RowId, now: Timestamp) -> Put {
        let row = &self.rows[id];
        let Copied::Dirty { failures } = row.marks.copied() else {
            panic!("{id:?} is not dirty");
        };
        let (len_bytes, class, extent) = (row.len_bytes, row.class, row.host_extent());
        let at = &mut self.disk.devices[usize::from(device)];
        let Some(tablespace) = at.tablespace_mut() else {
            return Put::Later;
        };
        let room = tablespace.take_room(len_bytes, class);
        let is_larger = u64::from(len_bytes) > tablespace.figures().space_bytes;
        self.absorb(device);
        let range = match room {
            Ok(range) => range,
            Err(reason) => {
                self.disk.totals.room_waits_total += 1;
                return match reason {
                    NoRoom::Pending => Put::Later,
                    NoRoom::Full if is_larger => Put::Never,
                    NoRoom::Full => Put::Full,
                };
            }
        };
        self.pin(extent);
        self.rows[id].marks.set_copied(Copied::Spilling);
        self.disk.devices[usize::from(device)].writes.begin(len_bytes.into(), now);
        self.disk.budget.spend(len_bytes.into());
        let spill = Spill { row: Some(id), device, range, extent, len_bytes, failures };
        self.disk.latest_spill += 1;
        let name = SpillId(self.disk.latest_spill);
        self.disk.spills.insert(name, spill);
        Put::Off(name)
    }

    /// The work for a spill that has just begun.
    pub(crate) fn spill_work(&self, name: SpillId) -> Option<DiskWork> {
        let spill = self.disk.spills.get(&name)?;
        let tablespace = self.disk.devices[usize::from(spill.device)].tablespace()?;
        let row = &self.rows[spill.row?];
        Some(DiskWork::Spill {
            spill: name,
            offset: tablespace.offset_of(spill.range),
            len_bytes: spill.len_bytes,
            arena_offset: self.space.payload_offset(spill.extent),
            checksum: row.checksum(),
            key: row.key.as_bytes().into(),
        })
    }

    /// The row of a spill is replaced or goes.
    pub(crate) fn void_spill(&mut self, row: RowId) {
        let spill = self.disk.spills.values_mut().find(|spill| spill.row == Some(row));
        let Some(spill) = spill else {
            panic!("{row:?} is not being written");
        };
        spill.row = None;
    }

    /// A device reports the end of a spill.
    pub(crate) fn spilled(
        &mut self,
        device: u8,
        name: SpillId,
        result: Result<u64, SpillFault>,
        took_us: u32,
        now: Timestamp,
    ) {
        let Some(spill) = self.disk.spills.remove(&name) else {
            panic!("{name:?} is reported, but was not taken or ended before");
        };
        assert_eq!(spill.device, device, "{name:?} belongs to another device");
        let len_bytes = u64::from(spill.len_bytes);
        self.disk.devices[usize::from(device)].writes.end(len_bytes, took_us, now);
        self.count_attempt(device, result != Err(SpillFault::Io));
        if result.is_ok() {
            self.disk.totals.spills_total += 1;
            self.disk.totals.spill_bytes_total += len_bytes;
        }
        match (spill.row, result) {
            (Some(row), Ok(checksum)) => self.keep_spill(&spill, row, checksum),
            (row, outcome) => {
                self.end_room(&spill, outcome.err());
                if let Some(row) = row {
                    self.spill_failed(&spill, row, outcome.err(), now);
                } else {
                    self.disk.totals.spills_void_total += 1;
                }
            }
        }
        self.unpin(spill.extent);
        if self.disk.devices[usize::from(device)].is_worn_out(self.config.disk.faults_max) {
            self.fail_device(device, super::DeviceFault::Io);
        }
    }

    /// The room of a spill that came to nothing.
    fn end_room(&mut self, spill: &Spill, fault: Option<SpillFault>) {
        let device = &mut self.disk.devices[usize::from(spill.device)];
        let Some(tablespace) = device.tablespace_mut() else {
            return;
        };
        match fault {
            Some(SpillFault::Io) => tablespace.quarantine(spill.range),
            Some(SpillFault::NoSpace | SpillFault::Mismatch) | None => {
                tablespace.give_back(spill.range);
            }
        }
    }

    /// The row is on the device: the block gets its entry.
    fn keep_spill(&mut self, spill: &Spill, id: RowId, checksum: u64) {
        if self.disk.devices[usize::from(spill.device)].tablespace().is_none() {
            self.spill_failed(spill, id, None, Timestamp(0));
            return;
        }
        if self.rows[id].marks.may_have_older() {
            self.remove_older(id, None, None);
        }
        let row = &self.rows[id];
        let entry = self.namespaces.at(row.namespace);
        self.disk.generation += 1;
        let new = NewEntry {
            extent: spill.range,
            namespace: Namespace { model: &entry.model, compat_key: &entry.compat_key },
            key: row.key.as_bytes(),
            len_bytes: spill.len_bytes,
            checksum,
            class: row.class,
            expires_at: self.config.disk.wall(row.expires_at),
            generation: self.disk.generation,
            lineage: row.lineage(),
            host: id,
        };
        let device = &mut self.disk.devices[usize::from(spill.device)];
        let Some(tablespace) = device.tablespace_mut() else {
            return;
        };
        let inserted = tablespace.insert(new);
        self.absorb(spill.device);
        let entry = match inserted {
            Ok(entry) => entry,
            // There is room for the bytes, but not for what must be known of them.
            Err(Refused::TooManyEntries | Refused::TooManyNamespaces) => {
                self.rows[id].marks.set_copied(Copied::Dirty { failures: 0 });
                self.give_up(id);
                return;
            }
        };
        self.disk.out.devices_to_wake |= bit(spill.device);
        self.disk.dirty.subtract(&self.rows[id]);
        let row = &mut self.rows[id];
        row.marks.set_copied(Copied::Clean);
        (row.device, row.entry) = (spill.device, entry);
        let version = self.space[spill.extent].version();
        self.ledger.summed(id.0, version, checksum);
        let row = &mut self.rows[id];
        if !self.config.keep_checksums {
            row.forget_checksum();
        }
        self.wait_for_journal(spill.device, id);
    }

    /// A row is still not on a device.
    fn spill_failed(
        &mut self,
        spill: &Spill,
        id: RowId,
        fault: Option<SpillFault>,
        now: Timestamp,
    ) {
        let dirty = |failures| Copied::Dirty { failures };
        match fault {
            Some(SpillFault::Mismatch) => {
                self.disk.totals.mismatches_total += 1;
                self.disk.totals.corrupt_total += 1;
                // The spill is over: there is nothing to void.
                self.rows[id].marks.set_copied(dirty(0));
                self.remove_row(id, MissReason::Corrupt);
            }
            Some(SpillFault::NoSpace) => {
                self.disk.totals.spill_faults_total += 1;
                self.disk.devices[usize::from(spill.device)].paused_until = now.after(PAUSE_MS);
                self.rows[id].marks.set_copied(dirty(spill.failures));
                self.disk.waits.fail_row(id);
                self.line_up_again(id);
            }
            Some(SpillFault::Io) => {
                self.disk.totals.spill_faults_total += 1;
                let failures = spill.failures + 1;
                if failures < FAILURES_MAX {
                    self.rows[id].marks.set_copied(dirty(failures));
                    self.line_up_again(id);
                } else {
                    self.rows[id].marks.set_copied(dirty(0));
                    self.give_up(id);
                }
            }
            None => {
                self.rows[id].marks.set_copied(dirty(spill.failures));
                self.line_up_again(id);
            }
        }
    }

    /// No device will ever hold the row.
    pub(crate) fn give_up(&mut self, id: RowId) {
        self.disk.totals.given_up_total += 1;
        self.disown(id);
    }

    /// The block of a row that was just written; see [`Self::link`].
    pub(crate) fn below(&self, id: RowId) -> Option<Below> {
        let row = &self.rows[id];
        let is_clean = row.marks.copied() == Copied::Clean;
        is_clean.then_some(Below { device: row.device, entry: row.entry })
    }
}
