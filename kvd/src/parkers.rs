//! Where session threads wait for storage, and how the brain wakes them.
//!
//! A session waits for loads under its own id, and for what must be durable under the id of that
//! wait. Whoever is not waiting costs the brain one look at an empty list.
//!
//! **Invariant:** nobody waits without a deadline, and nobody waits on once the daemon ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

use kvd_proto::ids::SessionId;
use kvd_store::{Effects, WaitId};

/// What one thread waits on. A wake that comes before the wait ends it at once.
#[derive(Debug, Default)]
pub struct Parker {
    woken: Mutex<bool>,
    changed: Condvar,
}

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// There is something to look at.
    Woken,
    /// The time is over.
    TooLate,
}

impl Parker {
    fn wake(&self) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }

    /// Waits for a wake, at most until `deadline`.
    pub fn wait(&self, deadline: Instant) -> Waited {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        while !*woken {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Waited::TooLate;
            }
            (woken, _) =
                self.changed.wait_timeout(woken, left).unwrap_or_else(PoisonError::into_inner);
        }
        *woken = false;
        Waited::Woken
    }
}

/// Everybody who waits.
#[derive(Debug, Default)]
pub struct Parkers {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sessions: BTreeMap<SessionId, Arc<Parker>>,
    waits: BTreeMap<WaitId, Arc<Parker>>,
    /// Nobody may wait for loads any more.
    loads_over: bool,
    /// Nobody may wait for anything any more.
    over: bool,
}

impl Parkers {
    /// Announces that a session is going to wait for loads; none if that is over.
    pub fn for_loads(&self, session: SessionId, parker: &Arc<Parker>) -> Option<Parked<'_>> {
        let mut state = self.lock();
        if state.loads_over {
            return None;
        }
        state.sessions.insert(session, Arc::clone(parker));
        drop(state);
        Some(Parked { parkers: self, place: Place::Session(session) })
    }

    /// Announces that a thread is going to wait for a verdict; none if that is over.
    pub fn for_verdict(&self, wait: WaitId, parker: &Arc<Parker>) -> Option<Parked<'_>> {
        let mut state = self.lock();
        if state.over {
            return None;
        }
        state.waits.insert(wait, Arc::clone(parker));
        drop(state);
        Some(Parked { parkers: self, place: Place::Wait(wait) })
    }

    /// Wakes whom these effects name.
    pub fn wake(&self, effects: &Effects) {
        if effects.woken.is_empty() && effects.decided.is_empty() {
            return;
        }
        let state = self.lock();
        let sessions = effects.woken.iter().filter_map(|session| state.sessions.get(session));
        let waits = effects.decided.iter().filter_map(|wait| state.waits.get(wait));
        sessions.chain(waits).for_each(|parker| parker.wake());
    }

    /// Ends the waits for loads: what is not loaded is a miss.
    pub fn end_loads(&self) {
        let mut state = self.lock();
        state.loads_over = true;
        state.sessions.values().for_each(|parker| parker.wake());
    }

    /// Ends every wait.
    pub fn end_all(&self) {
        self.end_loads();
        let mut state = self.lock();
        state.over = true;
        state.waits.values().for_each(|parker| parker.wake());
    }

    /// Lets threads wait again, after [`Parkers::end_loads`] or [`Parkers::end_all`].
    pub fn begin_again(&self) {
        let mut state = self.lock();
        (state.loads_over, state.over) = (false, false);
    }

    /// Whether waits for loads have ended.
    #[must_use]
    pub fn are_loads_over(&self) -> bool {
        self.lock().loads_over
    }

    /// Whether all waits have ended.
    #[must_use]
    pub fn are_over(&self) -> bool {
        self.lock().over
    }

    /// How many threads wait.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.lock();
        state.sessions.len() + state.waits.len()
    }

    /// Whether nobody waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
enum Place {
    Session(SessionId),
    Wait(WaitId),
}

/// A place among those who wait; it is given up with this value.
#[derive(Debug)]
pub struct Parked<'a> {
    parkers: &'a Parkers,
    place: Place,
}

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        let mut state = self.parkers.lock();
        match self.place {
            Place::Session(session) => state.sessions.remove(&session),
            Place::Wait(wait) => state.waits.remove(&wait),
        };
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn far() -> Instant {
        Instant::now() + Duration::from_secs(3600)
    }

    fn effects(woken: &[u64], decided: &[u64]) -> Effects {
        let mut effects = Effects::default();
        effects.woken.extend(woken.iter().map(|id| SessionId(*id)));
        effects.decided.extend(decided.iter().map(|id| WaitId(*id)));
        effects
    }

    #[test]
    fn a_wake_before_the_wait_is_not_lost_and_counts_once() {
        let (parkers, parker) = (Parkers::default(), Arc::new(Parker::default()));
        let parked = parkers.for_loads(SessionId(1), &parker).unwrap();
        parkers.wake(&effects(&[2], &[1]));
        assert_eq!(parker.wait(Instant::now()), Waited::TooLate, "that was somebody else");
        parkers.wake(&effects(&[1], &[]));
        assert_eq!(parker.wait(far()), Waited::Woken);
        assert_eq!(parker.wait(Instant::now()), Waited::TooLate);
        drop(parked);
        assert!(parkers.is_empty());
    }

    #[test]
    fn another_thread_is_woken() {
        let (parkers, parker) = (Parkers::default(), Arc::new(Parker::default()));
        let _parked = parkers.for_verdict(WaitId(7), &parker).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| parker.wait(far()));
            parkers.wake(&effects(&[], &[7]));
            assert_eq!(waiter.join().unwrap(), Waited::Woken);
        });
    }

    #[test]
    fn the_end_wakes_everybody_and_lets_nobody_in() {
        let (parkers, loads, verdict) =
            (Parkers::default(), Arc::new(Parker::default()), Arc::new(Parker::default()));
        let _one = parkers.for_loads(SessionId(1), &loads).unwrap();
        let _two = parkers.for_verdict(WaitId(1), &verdict).unwrap();
        parkers.end_loads();
        assert_eq!(loads.wait(far()), Waited::Woken);
        assert_eq!(verdict.wait(Instant::now()), Waited::TooLate, "verdicts are still awaited");
        assert!(parkers.for_loads(SessionId(2), &loads).is_none());
        assert!(parkers.for_verdict(WaitId(2), &verdict).is_some());
        parkers.end_all();
        assert_eq!(verdict.wait(far()), Waited::Woken);
        assert!(parkers.for_verdict(WaitId(3), &verdict).is_none());
        parkers.begin_again();
        assert!(!parkers.are_loads_over() && !parkers.are_over());
        assert!(parkers.for_verdict(WaitId(3), &verdict).is_some());
    }
}
