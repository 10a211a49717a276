//! What a device is given to do, and what its answers set off.

use super::choice::Limits;
use super::device::{State, bit};
use super::work::{DiskDone, DiskWork, WriteFault};
use super::{DeviceFault, DeviceId, Durability};
use crate::effects::Effects;
use crate::store::Store;
use crate::tablespace::SnapshotWrite;
use crate::time::Timestamp;

/// How long a device is left alone whose file system has no room for its own records.
const PAUSE_MS: u64 = 1_000;

impl Store {
    /// See [`crate::Input::TakeWork`].
    pub(crate) fn take_work(
        &mut self,
        device: DeviceId,
        limits: Limits,
        now: Timestamp,
        effects: &mut Effects,
    ) {
        let DeviceId(device) = device;
        assert!(device < self.disk.count(), "device {device} is not configured");
        self.arrive(device);
        self.console();
        if self.disk.devices[usize::from(device)].tablespace().is_none() {
            return;
        }
        for _ in 0..limits.loads {
            let Some(work) = self.take_load(device, now) else {
                break;
            };
            effects.work.push(work);
        }
        self.take_spills(device, limits, now, &mut effects.work);
        effects.work.extend(self.take_journal(device, now));
        effects.work.extend(self.take_snapshot(device, now));
    }

    /// The next piece of the journal, with a sync if somebody waits for one.
    fn take_journal(&mut self, device: u8, now: Timestamp) -> Option<DiskWork> {
        let sync = self.wants_sync(device, now);
        let at = &mut self.disk.devices[usize::from(device)];
        if at.journal.is_some() || at.journal_paused_until > now {
            return None;
        }
        let write = at.tablespace_mut()?.next_batch(sync)?;
        at.journal = Some((write.sequence, write.sync));
        if write.sync {
            at.synced_at = now;
        }
        let (half, offset, bytes) = (write.half, write.offset, write.bytes);
        Some(DiskWork::Journal { half, offset, bytes, sequence: write.sequence, sync: write.sync })
    }

    /// Whether what is written should be forced to stable storage now.
    fn wants_sync(&self, device: u8, now: Timestamp) -> bool {
        let at = &self.disk.devices[usize::from(device)];
        let Some(tablespace) = at.tablespace() else {
            return false;
        };
        let is_behind = tablespace.has_records()
            || tablespace.durable_sequence() < tablespace.written_sequence();
        let config = &self.config.disk;
        let group = config.durability == Durability::Group
            && now >= at.synced_at.after(config.group_interval_ms);
        let drained = self.disk.drain.is_some() && at.writes.in_flight() == 0;
        !at.syncs.is_empty() || (is_behind && (group || drained))
    }

    /// The next piece of a snapshot. Making one takes several turns.
    fn take_snapshot(&mut self, device: u8, now: Timestamp) -> Option<DiskWork> {
        let at = &mut self.disk.devices[usize::from(device)];
        if at.snapshot || at.journal_paused_until > now {
            return None;
        }
        let tablespace = at.tablespace_mut()?;
        let write = tablespace.next_snapshot();
        if tablespace.has_snapshot_work() {
            self.disk.out.devices_to_wake |= bit(device);
        }
        let SnapshotWrite { half, offset, bytes, sync } = write?;
        self.disk.devices[usize::from(device)].snapshot = true;
        Some(DiskWork::Snapshot { half, offset, bytes, sync })
    }

    /// See [`crate::Input::DeviceSpace`].
    pub(crate) fn device_space(&mut self, device: DeviceId, bytes: u64, expected_bytes: u64) {
        let at = &mut self.disk.devices[usize::from(device)];
        if let Some(tablespace) = at.any_tablespace_mut() {
            tablespace.expect(expected_bytes);
            tablespace.grow_to(bytes);
            self.disk.out.devices_to_wake |= bit(device.0);
        }
    }

    /// See [`crate::Input::DeviceReads`].
    pub(crate) fn device_reads(&mut self, device: DeviceId, bytes_per_s: u64) {
        self.disk.devices[usize::from(device.0)].reads.suppose(bytes_per_s);
    }

    /// See [`crate::Input::WorkDone`].
    pub(crate) fn work_done(&mut self, device: DeviceId, done: &[DiskDone], now: Timestamp) {
        let DeviceId(device) = device;
        assert!(device < self.disk.count(), "device {device} is not configured");
        for &done in done {
            match done {
                DiskDone::Loaded { load, result, took_us } => {
                    self.loaded(device, load, result, took_us, now);
                }
                DiskDone::Spilled { spill, result, took_us } => {
                    self.spilled(device, spill, result, took_us, now);
                }
                DiskDone::Journaled { sequence, result } => {
                    self.journaled(device, sequence, result, now);
                }
                DiskDone::SnapshotWritten { result } => self.snapshot_written(device, result, now),
            }
        }
    }

    fn journaled(
        &mut self,
        device: u8,
        sequence: u64,
        result: Result<(), WriteFault>,
        now: Timestamp,
    ) {
        let at = &mut self.disk.devices[usize::from(device)];
        let Some((asked, sync)) = at.journal.take() else {
            panic!("no piece of a journal was taken");
        };
        assert_eq!(asked, sequence, "another piece of the journal was taken");
        let State::Ready(tablespace) = &mut at.state else {
            return;
        };
        match result {
            Ok(()) => {
                tablespace.batch_written(sequence, true);
                if sync {
                    tablespace.synced(sequence);
                }
                let (durable, written) =
                    (tablespace.durable_sequence(), tablespace.written_sequence());
                while let Some(wait) = at.syncs.pop_reached(durable) {
                    self.disk.waits.settle(wait, true);
                }
                while let Some(wait) = at.written.pop_reached(written) {
                    self.disk.waits.settle(wait, true);
                }
            }
            Err(WriteFault::NoSpace) => {
                tablespace.batch_written(sequence, false);
                at.journal_paused_until = now.after(PAUSE_MS);
            }
            Err(fault) => self.fail_device(device, device_fault(fault)),
        }
    }

    fn snapshot_written(&mut self, device: u8, result: Result<(), WriteFault>, now: Timestamp) {
        let at = &mut self.disk.devices[usize::from(device)];
        assert!(core::mem::take(&mut at.snapshot), "no piece of a snapshot was taken");
        let State::Ready(tablespace) = &mut at.state else {
            return;
        };
        match result {
            Ok(()) => tablespace.snapshot_written(true),
            Err(WriteFault::NoSpace) => {
                tablespace.snapshot_written(false);
                at.journal_paused_until = now.after(PAUSE_MS);
            }
            Err(fault) => self.fail_device(device, device_fault(fault)),
        }
    }

    /// The row's block is in the journal: who waits for the row waits for a sync of that now.
    pub(crate) fn wait_for_journal(&mut self, device: u8, row: crate::rows::RowId) {
        for wait in self.disk.waits.take_row(row) {
            self.disk.waits.add(wait);
            self.wait_for_sync(device, wait);
            self.disk.waits.settle(wait, true);
        }
    }

    /// A condition of a wait: everything that the journal says so far is on stable storage.
    pub(crate) fn wait_for_sync(&mut self, device: u8, wait: super::WaitId) {
        let at = &mut self.disk.devices[usize::from(device)];
        let State::Ready(tablespace) = &mut at.state else {
            self.disk.waits.settle(wait, false);
            return;
        };
        let sequence = tablespace.latest_sequence();
        if sequence <= tablespace.durable_sequence() {
            self.disk.waits.settle(wait, true);
        } else {
            at.syncs.push(sequence, wait);
            self.disk.out.devices_to_wake |= bit(device);
        }
    }

    /// A condition of a wait: everything that the journal says so far is written, so that it
    /// outlives the daemon, if not the host.
    pub(crate) fn wait_for_write(&mut self, device: u8, wait: super::WaitId) {
        let at = &mut self.disk.devices[usize::from(device)];
        let State::Ready(tablespace) = &mut at.state else {
            self.disk.waits.settle(wait, false);
            return;
        };
        let sequence = tablespace.latest_sequence();
        if sequence <= tablespace.written_sequence() {
            self.disk.waits.settle(wait, true);
        } else {
            at.written.push(sequence, wait);
            self.disk.out.devices_to_wake |= bit(device);
        }
    }
}

const fn device_fault(fault: WriteFault) -> DeviceFault {
    match fault {
        WriteFault::Io | WriteFault::NoSpace => DeviceFault::Journal,
        WriteFault::Sync => DeviceFault::Sync,
    }
}
