//! Sessions that are closed but not over: their process lives and holds what it was lent.
//!
//! Each keeps a descriptor of its process here until that exits. A process that connects again and
//! again, and never gives anything back, must not use up the descriptors of all others.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use kvd_proto::ids::SessionId;

/// Most of them for one process; beyond that its connections are refused until it gives up.
pub const LOST_MAX: usize = 256;

/// All of them, by process. What has ended meanwhile is found out when it matters.
#[derive(Debug, Default)]
pub struct Lost {
    all: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeSet<(i32, SessionId)>,
    after_sweep: usize,
}

impl Lost {
    /// Remembers a session. `is_held` tells of any session whether it still holds something.
    pub fn add(&self, pid: i32, session: SessionId, is_held: impl Fn(SessionId) -> bool) {
        let mut state = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        state.sessions.insert((pid, session));
        if state.sessions.len() > LOST_MAX + 2 * state.after_sweep {
            state.sessions.retain(|&(_, session)| is_held(session));
            state.after_sweep = state.sessions.len();
        }
    }

    /// Whether a process has lost as many sessions as it may.
    pub fn are_too_many(&self, pid: i32, is_held: impl Fn(SessionId) -> bool) -> bool {
        let mut state = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let of_process = (pid, SessionId(0))..=(pid, SessionId(u64::MAX));
        if state.sessions.range(of_process.clone()).count() < LOST_MAX {
            return false;
        }
        let over: Vec<_> =
            state.sessions.range(of_process).filter(|(_, id)| !is_held(*id)).copied().collect();
        for one in &over {
            state.sessions.remove(one);
        }
        over.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_process_has_its_own_bound_and_what_is_over_does_not_count() {
        let lost = Lost::default();
        let all = LOST_MAX as u64;
        (0..all).for_each(|id| lost.add(7, SessionId(id), |_| true));
        assert!(lost.are_too_many(7, |_| true));
        assert!(!lost.are_too_many(8, |_| true));
        assert!(!lost.are_too_many(7, |session| session.0 > 0), "one has ended");
        lost.add(7, SessionId(all), |_| true);
        assert!(lost.are_too_many(7, |_| true));
    }

    #[test]
    fn those_that_are_over_take_no_memory() {
        let lost = Lost::default();
        for id in 0..10_000 {
            lost.add(i32::try_from(id).unwrap(), SessionId(id), |session| session.0 == id);
        }
        assert!(lost.all.lock().unwrap().sessions.len() <= LOST_MAX + 2);
    }
}
