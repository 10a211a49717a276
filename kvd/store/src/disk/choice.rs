//! Which row is written next, and by which device.
//!
//! `long` rows are written through: they queue up when they are stored. `short` rows, and `long`
//! ones whose block had to leave its device, are written when they come near the cold end of the
//! order, ahead of the moment in which they must go. A drain writes all of them, the warmest first.

use kvd_proto::retention::Retention;

use super::device::{Device, bit};
use super::marks::Copied;
use super::spills::Put;
use super::work::DiskWork;
use crate::rows::RowId;
use crate::space::State;
use crate::store::Store;
use crate::tablespace::Tablespace;
use crate::time::Timestamp;

/// Rows that one turn looks at beyond the queue.
const STEPS: u32 = 256;
/// A device leaves a row to another that would have it written this much sooner.
const PATIENCE_US: u32 = 1_000;
/// Classes that go below, in the order in which rows of them must leave.
const WRITTEN: [Retention; 2] = [Retention::Short, Retention::Long];

/// How far the cold end of the order is written.
#[derive(Debug, Default)]
pub(crate) struct Ahead {
    /// Class (of [`WRITTEN`]) and row to look at next; none: from the coldest on.
    at: Option<(usize, RowId)>,
    /// Bytes of the rows that this pass has looked at.
    passed: u64,
    /// The pass is over, and not enough was stored since to begin another.
    rests: bool,
    /// Bytes stored since the pass was over.
    stored: u64,
}

/// How far a drain is. One pass over all rows: what it does not write has no room below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Drain {
    at: DrainAt,
    /// Bytes that devices hold or will hold of the rows so far.
    taken_bytes: u64,
    /// Rows that were left out because they did not fit into that.
    no_room_rows: u64,
}

/// What a drain does with a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drained {
    /// There is nothing to be done for it.
    Passed,
    /// It does not fit any more: what is colder would only displace what is warmer.
    NoRoom,
    /// It does not fit yet: another device is still to come.
    Later,
    /// It is to be written.
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DrainAt {
    /// Down the order, the warmest first: class (of [`WRITTEN`] from the end), row, steps so far.
    Order(usize, Option<RowId>, u64),
    /// Through the table of rows: those that are not in the order at the moment.
    Table(u32),
    /// Over. What is stored from now on is lined up as it comes.
    End,
}

impl Drain {
    pub(crate) fn is_over(&self) -> bool {
        self.at == DrainAt::End
    }

    pub(crate) const fn no_room_rows(&self) -> u64 {
        self.no_room_rows
    }
}

/// What a device is ready for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) loads: u32,
    pub(crate) writes: u32,
    pub(crate) write_bytes: u64,
}

impl Store {
    /// Begins as many spills as the device is ready for.
    pub(crate) fn take_spills(
        &mut self,
        device: u8,
        limits: Limits,
        now: Timestamp,
        work: &mut Vec<DiskWork>,
    ) {
        if !self.may_write(device, now) {
            return;
        }
        let (mut left, mut bytes_left) = (limits.writes, limits.write_bytes);
        let mut steps = STEPS;
        while left > 0 {
            if self.disk.drain.is_none() && !self.disk.budget.is_open(now) {
                self.disk.totals.budget_waits_total += u64::from(self.disk.dirty.rows > 0);
                return;
            }
            let Some(row) = self.next_dirty(&mut steps, now) else {
                return;
            };
            let len_bytes = u64::from(self.rows[row].len_bytes);
            let is_first = left == limits.writes;
            let other = self.better_device(device, len_bytes, now);
            if other.is_some() || (len_bytes > bytes_left && !is_first) {
                self.disk.out.devices_to_wake |= other.map_or(0, bit);
                self.put_back(row);
                return;
            }
            match self.spill(device, row, now) {
                Put::Off(spill) => {
                    work.extend(self.spill_work(spill));
                    left -= 1;
                    bytes_left = bytes_left.saturating_sub(len_bytes);
                }
                Put::Later => {
                    self.put_back(row);
                    return;
                }
                Put::Full => self.displace(row),
                Put::Never => self.give_up(row),
            }
        }
    }

    /// Whether anything may be written to the device now.
    fn may_write(&self, device: u8, now: Timestamp) -> bool {
        let device = &self.disk.devices[usize::from(device)];
        let is_open = device.tablespace().is_some_and(|tablespace| !tablespace.is_stalled());
        is_open && device.paused_until <= now && !self.disk.is_settling()
    }

    /// Another device that should write a block of this size rather than `device`: one that has
    /// room for it without evicting, if `device` has not, or one that would be done much sooner.
    fn better_device(&self, device: u8, len_bytes: u64, now: Timestamp) -> Option<u8> {
        let prospect = |device: u8| {
            let at = &self.disk.devices[usize::from(device)];
            let free = at.tablespace().map_or(0, |tablespace| tablespace.figures().free_bytes);
            let us = at.writes.estimate_us(at.writes.in_flight_bytes + len_bytes);
            (free >= len_bytes.next_multiple_of(4096).max(4096), us)
        };
        let (has_room, us) = prospect(device);
        let others = (0..self.disk.count()).filter(|&other| other != device);
        let others = others.filter(|&other| self.may_write(other, now));
        let (other, other_has_room, other_us) = others
            .map(|other| (other, prospect(other).0, prospect(other).1))
            .min_by_key(|&(_, has_room, us)| (!has_room, us))?;
        let sooner = us > other_us.saturating_mul(2).saturating_add(PATIENCE_US);
        let better = (other_has_room && !has_room) || (other_has_room == has_room && sooner);
        better.then_some(other)
    }

    /// The next row to write, if there is one that is worth it.
    fn next_dirty(&mut self, steps: &mut u32, now: Timestamp) -> Option<RowId> {
        while let Some(row) = self.disk.dirty.pop() {
            if self.is_to_be_written(row, now) {
                return Some(row);
            }
        }
        match self.disk.drain {
            None => self.next_ahead(steps, now),
            Some(drain) => self.next_drained(drain, steps, now),
        }
    }

    fn is_to_be_written(&self, row: RowId, now: Timestamp) -> bool {
        self.rows.get(row).is_some_and(|row| row.marks.is_dirty() && !row.is_expired(now))
    }

    /// A row that was chosen could not be written: it is the next one again.
    fn put_back(&mut self, row: RowId) {
        self.disk.dirty.push_front(row);
    }

    /// A write of a row failed: it is tried again in its turn.
    pub(crate) fn line_up_again(&mut self, row: RowId) {
        self.disk.dirty.push(row);
    }

    /// The next dirty row near the cold end.
    fn next_ahead(&mut self, steps: &mut u32, now: Timestamp) -> Option<RowId> {
        if self.disk.ahead.rests || !self.is_under_pressure() {
            return None;
        }
        let target = self.ahead_bytes();
        while *steps > 0 {
            *steps -= 1;
            let at =
                self.disk.ahead.at.filter(|&(class, row)| self.is_in_order(row, WRITTEN[class]));
            let next = match at {
                Some((class, row)) => Some((class, row)),
                None if self.disk.ahead.passed == 0 => self.coldest_of(0),
                // The row went elsewhere, and with it the place.
                None => None,
            };
            let Some((class, row)) = next.filter(|_| self.disk.ahead.passed < target) else {
                self.disk.ahead = Ahead { rests: true, ..Ahead::default() };
                return None;
            };
            self.disk.ahead.passed += self.space[self.rows[row].host_extent()].bytes();
            let warmer = self.evict.warmer(row).map(|row| (class, row));
            self.disk.ahead.at = warmer.or_else(|| self.coldest_of(class + 1));
            let is_displaced = self.rows[row].marks.copied() == Copied::Displaced;
            if is_displaced && !self.rows[row].is_expired(now) {
                self.soil(row);
            }
            if self.is_to_be_written(row, now) && self.is_worth_writing(row) {
                return Some(row);
            }
        }
        None
    }

    fn coldest_of(&self, class: usize) -> Option<(usize, RowId)> {
        let classes = WRITTEN.iter().enumerate().skip(class);
        classes.filter_map(|(class, &of)| Some((class, self.evict.coldest(of)?))).next()
    }

    fn is_in_order(&self, row: RowId, class: Retention) -> bool {
        self.rows.get(row).is_some_and(|row| row.class == class && !row.parked)
    }

    /// The second touch, where it is asked for.
    pub(crate) fn is_worth_writing(&self, row: RowId) -> bool {
        let row = &self.rows[row];
        row.class != Retention::Short || !self.disk.ghosts.are_wanted() || row.marks.touched()
    }

    /// Whether rows must go soon: a quarter of the arena, of the budget or of the rows is left.
    pub(crate) fn is_under_pressure(&self) -> bool {
        let free = self.space.bytes_in(State::Free);
        let payload = self.host_bytes + self.disk.loads.payload_bytes;
        free < self.space.end() / 4
            || payload > self.config.budget_bytes / 4 * 3
            || self.rows.len() > self.config.rows_max / 4 * 3
    }

    /// Bytes at the cold end that should be on a device.
    fn ahead_bytes(&self) -> u64 {
        self.space.end() / 8
    }

    /// A row came that is written ahead of its end.
    pub(crate) fn note_stored(&mut self, bytes: u64) {
        let enough = self.ahead_bytes() / 8;
        let ahead = &mut self.disk.ahead;
        ahead.stored += bytes;
        if !ahead.rests || ahead.stored >= enough {
            *ahead = Ahead { rests: false, stored: 0, ..*ahead };
            if self.is_under_pressure() {
                self.disk.out.devices_to_wake |= self.disk.ready_bits();
            }
        }
    }

    /// The next row that a drain writes.
    fn next_drained(&mut self, mut drain: Drain, steps: &mut u32, now: Timestamp) -> Option<RowId> {
        let room_bytes = self.drain_room();
        let mut found = None;
        while *steps > 0 && found.is_none() && !drain.is_over() {
            *steps -= 1;
            let (next, row) = self.drain_step(drain.at);
            let left_bytes = room_bytes.saturating_sub(drain.taken_bytes);
            let (drained, bytes) = match row {
                Some(row) => self.drain_row(row, left_bytes, now),
                None => (Drained::Passed, 0),
            };
            if drained == Drained::Later {
                // Its arrival goes on with it, or its end.
                self.disk.drain = Some(drain);
                return None;
            }
            // The table comes to every row, so each is counted once.
            let is_left_out = drained == Drained::NoRoom && matches!(drain.at, DrainAt::Table(_));
            drain.no_room_rows += u64::from(is_left_out);
            drain.taken_bytes += bytes;
            drain.at = next;
            found = row.filter(|_| drained == Drained::Write);
        }
        self.disk.drain = Some(drain);
        if !drain.is_over() {
            self.disk.out.devices_to_wake |= self.disk.ready_bits();
        }
        found
    }

    /// Bytes that a drain may fill: the devices keep some for what comes and goes.
    fn drain_room(&self) -> u64 {
        let devices = self.disk.devices.iter().filter_map(Device::tablespace);
        let bytes = devices.map(Tablespace::room_to_come).sum::<u64>();
        bytes / 8 * 7
    }

    /// Where a drain goes on, and the row that it has come to.
    fn drain_step(&self, at: DrainAt) -> (DrainAt, Option<RowId>) {
        match at {
            DrainAt::Order(class, at, steps) => {
                let Some(&of) = WRITTEN.iter().rev().nth(class) else {
                    return (DrainAt::Table(0), None);
                };
                let at = at.filter(|&row| self.is_in_order(row, of));
                // Rows that are used meanwhile begin the walk anew; the table ends that.
                let is_lost = at.is_none() && steps > 0;
                let at = at.or_else(|| self.evict.warmest(of));
                let Some(row) = at.filter(|_| !is_lost) else {
                    return (DrainAt::Order(class + 1, None, 0), None);
                };
                let next = match self.evict.colder(row) {
                    Some(colder) if steps <= 2 * u64::from(self.rows.len()) => {
                        DrainAt::Order(class, Some(colder), steps + 1)
                    }
                    Some(_) | None => DrainAt::Order(class + 1, None, 0),
                };
                (next, Some(row))
            }
            DrainAt::Table(at) if at < self.rows.end() => (DrainAt::Table(at + 1), Some(RowId(at))),
            DrainAt::Table(_) | DrainAt::End => (DrainAt::End, None),
        }
    }

    /// What a drain does with a row, and the bytes that devices then hold of it.
    fn drain_row(&mut self, id: RowId, left_bytes: u64, now: Timestamp) -> (Drained, u64) {
        let Some(row) = self.rows.get(id).filter(|row| !row.is_expired(now)) else {
            return (Drained::Passed, 0);
        };
        let bytes = u64::from(row.len_bytes).next_multiple_of(4096).max(4096);
        match row.marks.copied() {
            Copied::Never | Copied::Spilling => (Drained::Passed, 0),
            Copied::Clean => {
                self.touch_below(id);
                (Drained::Passed, bytes)
            }
            Copied::Dirty { .. } | Copied::Displaced if left_bytes >= bytes => {
                if row.marks.copied() == Copied::Displaced {
                    self.soil(id);
                }
                (Drained::Write, bytes)
            }
            Copied::Dirty { .. } | Copied::Displaced if self.disk.is_anyone_coming() => {
                (Drained::Later, 0)
            }
            Copied::Dirty { .. } => {
                self.displace(id);
                (Drained::NoRoom, 0)
            }
            Copied::Displaced => (Drained::NoRoom, 0),
        }
    }

    /// The block of a clean row is as warm as the row.
    fn touch_below(&mut self, id: RowId) {
        let Some(below) = self.below(id) else {
            return;
        };
        let device = &mut self.disk.devices[usize::from(below.device)];
        if let Some(tablespace) = device.tablespace_mut() {
            tablespace.touch(below.entry);
        }
    }

    /// See [`crate::Input::Drain`].
    pub(crate) fn set_drain(&mut self, on: bool) {
        let at = DrainAt::Order(0, None, 0);
        let start = Drain { at, taken_bytes: 0, no_room_rows: 0 };
        self.disk.drain = on.then_some(start);
        self.disk.out.devices_to_wake |= self.disk.ready_bits();
    }
}
