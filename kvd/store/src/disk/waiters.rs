//! Sessions that wait for loads. Each is told when all it waits for has ended, or much of it, or
//! when there is room for loads that it could not begin.

use kvd_proto::ids::SessionId;
use kvd_proto::miss::MissReason;

use super::loads::{Landing, Load, Step};
use super::work::LoadId;
use crate::rows::RowId;
use crate::store::Store;
use crate::time::Timestamp;

/// Loads that end before a session is told that some have.
const ENOUGH: u32 = 8;
/// Sessions without a load that are told when one ended.
const TOLD_AT_ONCE: usize = 4;

/// What a session waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// Loads that it is registered with.
    pub(crate) loads: u32,
    /// Of those that it was, how many ended since it was told.
    pub(crate) ended: u32,
    /// Loaded rows that are kept for it.
    pub(crate) landed: u32,
    /// It is in the line of those who could not begin a load.
    pub(crate) starved: bool,
}

impl Store {
    /// Registers a session with a load.
    pub(crate) fn wait_for(&mut self, load: LoadId, session: u32) {
        let Some(load) = self.disk.loads.get_mut(load) else {
            return;
        };
        let session = self.sessions.at_mut(session);
        if !load.waiters.contains(&session.id) {
            load.waiters.push(session.id);
            session.waiting.loads += 1;
        }
    }

    /// Lines a session up for loads that it could not begin.
    pub(crate) fn starve(&mut self, session: u32) {
        self.disk.totals.loads_starved_total += 1;
        let session = self.sessions.at_mut(session);
        if !session.waiting.starved {
            session.waiting.starved = true;
            self.disk.starved.push_back(session.id);
        }
    }

    /// A load is over: those who waited for it are one load closer to being told.
    pub(crate) fn end_waits(&mut self, load: &Load) {
        for &id in &load.waiters {
            let Some(index) = self.sessions.find(id) else {
                continue;
            };
            let waiting = &mut self.sessions.at_mut(index).waiting;
            waiting.loads -= 1;
            waiting.ended += 1;
            if waiting.loads == 0 || waiting.ended >= ENOUGH {
                waiting.ended = 0;
                self.disk.out.wake(id);
            }
        }
        self.feed_the_starved();
    }

    /// Tells some of those who could not begin a load that one ended; all of them if no load is
    /// left whose end could be the occasion.
    pub(crate) fn feed_the_starved(&mut self) {
        let is_quiet = self.disk.loads.len() == 0 && self.disk.landings.rows.is_empty();
        let mut told = 0;
        while is_quiet || told < TOLD_AT_ONCE {
            let Some(id) = self.disk.starved.pop_front() else {
                return;
            };
            let Some(index) = self.sessions.find(id) else {
                continue;
            };
            self.sessions.at_mut(index).waiting.starved = false;
            self.disk.out.wake(id);
            told += 1;
        }
    }

    /// Keeps a loaded row for those who waited for it.
    pub(crate) fn keep_for(&mut self, row: RowId, waiters: Vec<SessionId>, until: Timestamp) {
        if waiters.is_empty() {
            return;
        }
        for &id in &waiters {
            if let Some(index) = self.sessions.find(id) {
                self.sessions.at_mut(index).waiting.landed += 1;
            }
        }
        let extent = self.rows[row].host_extent();
        self.pin(extent);
        self.rows[row].marks.set_landed(true);
        self.disk.landings.bytes += self.space[extent].bytes();
        self.disk.landings.rows.insert(row, Landing { waiters, until });
        self.disk.landings.ends.push_back((until, row));
    }

    /// A session has fetched a row that was kept for some.
    pub(crate) fn pick_up(&mut self, session: u32, row: RowId) {
        let Some(landing) = self.disk.landings.rows.get_mut(&row) else {
            return;
        };
        let session = self.sessions.at_mut(session);
        let Some(at) = landing.waiters.iter().position(|&id| id == session.id) else {
            return;
        };
        landing.waiters.remove(at);
        session.waiting.landed -= 1;
        if landing.waiters.is_empty() {
            self.keep_no_longer(row);
        }
    }

    /// Nobody is waited for any more, or the row goes.
    pub(crate) fn keep_no_longer(&mut self, row: RowId) {
        let Some(landing) = self.disk.landings.rows.remove(&row) else {
            return;
        };
        for id in landing.waiters {
            if let Some(index) = self.sessions.find(id) {
                self.sessions.at_mut(index).waiting.landed -= 1;
            }
        }
        self.rows[row].marks.set_landed(false);
        let extent = self.rows[row].host_extent();
        self.disk.landings.bytes -= self.space[extent].bytes();
        self.unpin(extent);
        self.feed_the_starved();
    }

    /// Ends what was kept long enough; whether more is due.
    pub(crate) fn settle_landings(&mut self, now: Timestamp, slice: u32) -> bool {
        for _ in 0..slice {
            let due = self.disk.landings.ends.pop_front_if(|(until, _)| *until <= now);
            let Some((until, row)) = due else {
                return false;
            };
            if self.disk.landings.rows.get(&row).is_some_and(|landing| landing.until == until) {
                self.keep_no_longer(row);
            }
        }
        self.disk.landings.ends.front().is_some_and(|&(until, _)| until <= now)
    }

    /// See [`crate::Input::StopWaiting`].
    pub(crate) fn stop_waiting(&mut self, session: SessionId, given_up: u32) {
        let index = self.sessions.open_index(session);
        for _ in 0..given_up {
            self.totals.count_miss(MissReason::Deadline);
        }
        self.withdraw_waits(index);
    }

    /// Takes a session out of everything that it waits for.
    pub(crate) fn withdraw_waits(&mut self, index: u32) {
        let session = self.sessions.at_mut(index);
        let (id, waiting) = (session.id, core::mem::take(&mut session.waiting));
        if waiting.starved {
            self.disk.starved.retain(|&other| other != id);
        }
        if waiting.loads > 0 {
            self.withdraw_from_loads(id);
        }
        if waiting.landed > 0 {
            self.sessions.at_mut(index).waiting.landed = waiting.landed;
            let kept = self.disk.landings.rows.iter();
            let kept = kept.filter(|(_, landing)| landing.waiters.contains(&id));
            let kept: Vec<RowId> = kept.map(|(&row, _)| row).collect();
            for row in kept {
                self.pick_up(index, row);
            }
        }
    }

    fn withdraw_from_loads(&mut self, id: SessionId) {
        let mut unwanted = Vec::new();
        for (load_id, load) in self.disk.loads.iter_mut() {
            let before = load.waiters.len();
            load.waiters.retain(|&other| other != id);
            let is_last = load.waiters.len() < before && load.waiters.is_empty();
            let other_reason = load.promised_until.is_some() || load.hinted_until.is_some();
            if is_last && load.step == Step::Waiting && !other_reason {
                unwanted.push(load_id);
            }
        }
        for load in unwanted {
            self.disk.totals.loads_cancelled_total += 1;
            self.drop_waiting_load(load);
        }
    }
}
