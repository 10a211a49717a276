//! Time passes: what ends by itself ends here, in slices.

use super::{Tablespace, WallTime};
use crate::tablespace::journal::Reason;

/// Ends of each kind that one call sees to.
const SLICE: u32 = 128;

const fn is_to_come(second: u32, now: WallTime) -> bool {
    second as u64 > now.0 / 1000
}

impl Tablespace {
    /// Ends a slice of the promises and of the lives that are over. Whether more is due.
    pub(crate) fn settle(&mut self, now: WallTime) -> bool {
        self.sweep_promises();
        for _ in 0..SLICE {
            if !self.settle_promise(now) {
                break;
            }
        }
        for _ in 0..SLICE {
            let Some(&(second, id)) = self.expiries.first() else {
                break;
            };
            // A full journal keeps expired entries where they are; nobody finds them.
            if is_to_come(second, now) || self.journal.is_backed_up() {
                break;
            }
            self.remove_by_itself(id, Reason::Expired);
        }
        let life_is_over =
            self.expiries.first().is_some_and(|&(second, _)| !is_to_come(second, now));
        (life_is_over && !self.journal.is_backed_up()) || self.promise_is_due(now)
    }
}
