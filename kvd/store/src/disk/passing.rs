//! Time passes below: what is over ends, and devices are woken for what has become due.

use super::Durability;
use super::device::bit;
use crate::store::Store;
use crate::time::Timestamp;

/// Ends of each kind that one turn sees to.
const SLICE: u32 = 128;

impl Store {
    /// One turn of a tick; whether more is due.
    pub(crate) fn tick_below(&mut self, now: Timestamp) -> bool {
        if !self.disk.exists() {
            return false;
        }
        let mut more = self.settle_landings(now, SLICE);
        self.feed_the_starved();
        self.console();
        for device in 0..self.disk.count() {
            self.arrive(device);
            more |= self.settle_device(device, now);
            if self.is_due(device, now) {
                self.disk.out.devices_to_wake |= bit(device);
            }
        }
        more |= self.disk.bereaved.is_some() && self.disk.has_future();
        more || self.disk.devices.iter().any(|device| device.is_busy_arriving())
    }

    /// Ends promises and lives on a device. Not while devices are compared with each other or with
    /// the arena: the newest value must be there to be found the newest.
    fn settle_device(&mut self, device: u8, now: Timestamp) -> bool {
        if self.disk.is_settling() {
            return false;
        }
        let wall = self.config.disk.wall(now);
        let at = &mut self.disk.devices[usize::from(device)];
        let more = at.tablespace_mut().is_some_and(|tablespace| tablespace.settle(wall));
        self.absorb(device);
        more
    }

    /// Whether a device has something to do that only time brought about.
    fn is_due(&self, device: u8, now: Timestamp) -> bool {
        let at = &self.disk.devices[usize::from(device)];
        let Some(tablespace) = at.tablespace() else {
            return false;
        };
        let has_journal = (at.journal.is_none() && tablespace.has_records())
            || (!at.snapshot && tablespace.has_snapshot_work());
        let is_behind = tablespace.durable_sequence() < tablespace.written_sequence();
        let group = self.config.disk.durability == Durability::Group
            && is_behind
            && now >= at.synced_at.after(self.config.disk.group_interval_ms);
        let dirty = self.disk.dirty.len() > 0
            || (self.disk.dirty.rows > 0
                && (self.disk.drain.is_some() || self.is_under_pressure()));
        has_journal || group || dirty || !at.hints.is_empty() || !at.demanded.is_empty()
    }
}
