//! Time passes: what ends by itself ends here, in slices; or all of it, when room is needed.

use crate::store::Store;
use crate::time::Timestamp;

/// Ends of each kind that one tick sees to: some ten microseconds.
const SLICE: u32 = 128;

impl Store {
    /// See [`crate::Input::Tick`]. Whether more is due.
    pub(crate) fn tick(&mut self, now: Timestamp) -> bool {
        let blocked_rows_are_left = self.park_ahead(SLICE);
        let more_below = self.tick_below(now);
        self.settle_some(now) || blocked_rows_are_left || more_below
    }

    /// Ends a slice of what is over.
    pub(crate) fn settle_some(&mut self, now: Timestamp) -> bool {
        self.settle(now, SLICE)
    }

    /// Ends all that is over.
    pub(crate) fn settle_all(&mut self, now: Timestamp) {
        let more = self.settle(now, u32::MAX);
        assert!(!more, "4 billion ends at once");
    }

    fn settle(&mut self, now: Timestamp, slice: u32) -> bool {
        for _ in 0..slice {
            if !self.settle_promise(now) {
                break;
            }
        }
        for _ in 0..slice {
            if !self.settle_hand_out(now) {
                break;
            }
        }
        for _ in 0..slice {
            if !self.settle_row_expiry(now) {
                break;
            }
        }
        let row_is_due = self.expiries.first().is_some_and(|&(at, _)| at <= now);
        row_is_due || self.promises.is_due(now) || self.due_hand_out(now).is_some()
    }

    fn settle_promise(&mut self, now: Timestamp) -> bool {
        let Some((until, id)) = self.promises.pop_due(now) else {
            return false;
        };
        let is_live = self.rows.get(id).is_some_and(|row| {
            row.promised_until == until && self.space[row.host_extent()].promised()
        });
        if is_live {
            self.end_promise(id);
        }
        true
    }

    fn due_hand_out(&self, now: Timestamp) -> Option<u32> {
        self.rights.oldest_lingering().filter(|&index| self.rights.at(index).until <= now)
    }

    fn settle_hand_out(&mut self, now: Timestamp) -> bool {
        let due = self.due_hand_out(now);
        if let Some(index) = due {
            self.end(index);
        }
        due.is_some()
    }

    fn settle_row_expiry(&mut self, now: Timestamp) -> bool {
        let Some(&(at, id)) = self.expiries.first() else {
            return false;
        };
        if at > now {
            return false;
        }
        self.expire(id);
        true
    }
}
