//! Devices that fail: what was on them is missed, what was to be written goes elsewhere.

use std::collections::VecDeque;

use kvd_proto::retention::Retention;

use super::DeviceFault;
use super::device::{Below, Device, State};
use super::loads::Step;
use super::marks::Copied;
use super::work::LoadId;
use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::EntryId;
use crate::time::Timestamp;

/// How long a block is left alone whose read took too long.
const REST_MS: u64 = 10_000;
/// Rows that one turn looks at after a device failed.
const ROWS_AT_ONCE: u32 = 1024;
/// Blocks that rest at once; one more wakes the oldest.
const RESTS_MAX: usize = 256;

/// Blocks whose reads took too long lately.
#[derive(Debug, Default)]
pub(crate) struct Rests {
    all: VecDeque<(Timestamp, Below)>,
}

impl Rests {
    pub(crate) fn add(&mut self, below: Below, now: Timestamp) {
        if self.all.len() == RESTS_MAX {
            self.all.pop_front();
        }
        self.all.push_back((now.after(REST_MS), below));
    }

    /// Whether the block is left alone. (If its number went to another since, that one rests.)
    pub(crate) fn rests(&mut self, below: Below, now: Timestamp) -> bool {
        while self.all.pop_front_if(|(until, _)| *until <= now).is_some() {}
        self.all.iter().any(|&(_, other)| other == below)
    }
}

impl Device {
    /// Whether it has failed too often in a row to go on with it.
    pub(crate) const fn is_worn_out(&self, faults_max: u32) -> bool {
        self.faults_in_a_row >= faults_max && !self.is_failed()
    }
}

impl Store {
    /// Counts how a read or a write ended.
    pub(crate) fn count_attempt(&mut self, device: u8, success: bool) {
        let device = &mut self.disk.devices[usize::from(device)];
        device.faults_in_a_row = if success { 0 } else { device.faults_in_a_row + 1 };
    }

    /// See [`crate::Input::DeviceFailed`].
    pub(crate) fn fail_device(&mut self, device: u8, fault: DeviceFault) {
        let at = &mut self.disk.devices[usize::from(device)];
        if at.is_failed() {
            return;
        }
        let was_of_use = at.tablespace().is_some();
        match core::mem::replace(&mut at.state, State::Failed(fault)) {
            State::Ready(tablespace) | State::Arriving(tablespace, _) => {
                self.disk.out.retired.push(*tablespace);
            }
            State::Recovering | State::Failed(_) => {}
        }
        at.comparing = None;
        at.reuniting = None;
        if was_of_use {
            self.tell_failed();
        }
        let at = &mut self.disk.devices[usize::from(device)];
        self.disk.hints -= at.hints.len();
        at.hints.clear();
        at.demanded.clear();
        at.promised.clear();
        let waits = core::mem::take(&mut at.waits);
        while let Some(wait) = at.syncs.pop().or_else(|| at.written.pop()) {
            self.disk.waits.settle(wait, false);
        }
        for wait in waits {
            self.disk.waits.settle(wait, false);
        }
        self.end_loads_of(device);
        self.forget_late_if_over();
        self.disk.bereaved = Some(0);
        if !self.disk.has_future() {
            let rows: Vec<_> = self.disk.waits.rows().collect();
            for row in rows {
                self.disk.waits.fail_row(row);
            }
        }
        self.disk.out.devices_to_wake |= self.disk.ready_bits();
    }

    /// Goes on with the rows whose copies were on a device that failed: another is to have them.
    pub(crate) fn console(&mut self) {
        let Some(from) = self.disk.bereaved.filter(|_| self.disk.has_future()) else {
            return;
        };
        let end = from.saturating_add(ROWS_AT_ONCE).min(self.rows.end());
        for id in (from..end).map(RowId) {
            let Some(row) = self.rows.get(id) else {
                continue;
            };
            let is_on_failed = row.marks.copied() == Copied::Clean
                && self.disk.devices[usize::from(row.device)].is_failed();
            if is_on_failed {
                self.rows[id].marks.set_copied(Copied::Displaced);
                self.rows[id].entry = EntryId::NONE;
                // The copy that a hint made ends soon anyway.
                if self.rows[id].marks.hinted() {
                    continue;
                }
                self.soil(id);
                if self.rows[id].class == Retention::Long || self.disk.drain.is_some() {
                    self.line_up_again(id);
                }
            }
        }
        self.disk.bereaved = (end < self.rows.end()).then_some(end);
        self.disk.out.devices_to_wake |= self.disk.ready_bits();
    }

    /// Loads that wait end now; those under way end when the device says so, in vain.
    fn end_loads_of(&mut self, device: u8) {
        let loads = self.disk.loads.iter();
        let loads = loads.filter(|(_, load)| load.below.device == device);
        let loads = loads.filter(|(_, load)| load.step != Step::Void);
        let loads: Vec<(LoadId, Below)> = loads.map(|(id, load)| (id, load.below)).collect();
        for (_, below) in loads {
            self.void_load(below);
        }
    }

    /// Drops the places of loads that are over, once they are too many.
    pub(crate) fn sweep_waiting(&mut self, device: u8) {
        let at = &mut self.disk.devices[usize::from(device)];
        let live = 2 * at.loads as usize + 64;
        if at.demanded.len() + at.promised.len() <= 2 * live {
            return;
        }
        let loads = &self.disk.loads;
        let is_live = |id: &LoadId| loads.get(*id).is_some_and(|load| load.step == Step::Waiting);
        at.demanded.retain(is_live);
        at.promised.retain(is_live);
    }
}

#[cfg(test)]
mod tests {
    use super::{RESTS_MAX, Rests};
    use crate::disk::device::Below;
    use crate::tablespace::EntryId;
    use crate::time::Timestamp;

    #[test]
    fn a_block_rests_for_a_while() {
        let below = |entry| Below { device: 0, entry: EntryId(entry) };
        let mut rests = Rests::default();
        rests.add(below(1), Timestamp(5));
        assert!(rests.rests(below(1), Timestamp(10_004)));
        assert!(!rests.rests(below(2), Timestamp(10_004)));
        assert!(!rests.rests(below(1), Timestamp(10_005)));
        for entry in 0..1000 {
            rests.add(below(entry), Timestamp(0));
        }
        assert_eq!(rests.all.len(), RESTS_MAX);
        assert!(rests.rests(below(999), Timestamp(1)) && !rests.rests(below(1), Timestamp(1)));
    }
}
