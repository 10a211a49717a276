//! Where session threads stand still between two frames while a handover is under way, each with what a successor needs to
//! go on with its connection.
//!
//! A thread that waits for its peer is nudged until it comes here; one that is busy comes by itself. It waits until it is
//! told to go on, or that its connection is somebody else's now.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kvd_proto::ids::SessionId;

use crate::registry::{Facts, Registry};

/// Between two nudges: a thread may have heard one just before it began to wait.
const NUDGE_PAUSE: Duration = Duration::from_millis(2);

/// A connection between two frames.
#[derive(Debug)]
pub struct Parked {
    /// Who it is.
    pub facts: Arc<Facts>,
    /// Its socket.
    pub stream: Arc<UnixStream>,
    /// The store knows it.
    pub opened: bool,
    /// The peer speaks protocol 2.
    pub modern: bool,
    /// Hits so far.
    pub hits: u64,
    /// Received and not handled.
    pub inbox: Vec<u8>,
    /// Answered and not sent.
    pub outbox: Vec<u8>,
}

/// What a thread that stood still does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Serve on.
    GoOn,
    /// End, and touch nothing: a successor serves the connection.
    Leave,
}

/// The place.
#[derive(Debug, Default)]
pub struct Parking {
    called: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Calls so far that have been dismissed.
    round: u64,
    verdict: Option<Verdict>,
    parked: BTreeMap<SessionId, Parked>,
}

impl Parking {
    /// Whether threads are to come here. Costs next to nothing.
    #[must_use]
    pub fn is_called(&self) -> bool {
        self.called.load(Ordering::Relaxed)
    }

    /// Calls all threads, until [`Parking::dismiss`].
    pub fn call(&self) {
        let _state = self.lock();
        self.called.store(true, Ordering::Relaxed);
    }

    /// Stands still until everybody is dismissed. Whoever calls does that within a deadline.
    pub fn park(&self, parked: Parked) -> Verdict {
        let mut state = self.lock();
        if !self.is_called() {
            return Verdict::GoOn;
        }
        let round = state.round;
        state.parked.insert(parked.facts.id, parked);
        self.changed.notify_all();
        while state.round == round {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.verdict.unwrap_or(Verdict::GoOn)
    }

    /// Waits until all sessions stand still, at most until `deadline`; those that do not.
    pub fn gather(&self, registry: &Registry, deadline: Instant) -> BTreeSet<SessionId> {
        loop {
            let parked: BTreeSet<SessionId> = self.lock().parked.keys().copied().collect();
            let missing = registry.nudge_all_but(&parked);
            if missing.is_empty() || Instant::now() >= deadline {
                return missing;
            }
            let state = self.lock();
            // Woken by the next one that arrives.
            drop(self.changed.wait_timeout(state, NUDGE_PAUSE));
        }
    }

    /// Looks at those that stand still, in the order of their ids.
    pub fn with_parked<R>(&self, look: impl FnOnce(&BTreeMap<SessionId, Parked>) -> R) -> R {
        look(&self.lock().parked)
    }

    /// Ends the wait of all, and the call.
    pub fn dismiss(&self, verdict: Verdict) {
        let mut state = self.lock();
        self.called.store(false, Ordering::Relaxed);
        state.verdict = Some(verdict);
        state.round += 1;
        state.parked.clear();
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use kvd_shm::peer::PeerCredentials;

    use super::*;

    fn parked(id: u64) -> Parked {
        let (stream, _peer) = UnixStream::pair().unwrap();
        let credentials = PeerCredentials { pid: None, uid: 0, gid: 0 };
        Parked {
            facts: Arc::new(Facts::new(SessionId(id), credentials)),
            stream: Arc::new(stream),
            opened: true,
            modern: false,
            hits: 0,
            inbox: vec![1],
            outbox: Vec::new(),
        }
    }

    #[test]
    fn nobody_waits_without_a_call_and_all_hear_the_verdict() {
        let parking = Parking::default();
        assert_eq!(parking.park(parked(1)), Verdict::GoOn);
        for verdict in [Verdict::GoOn, Verdict::Leave] {
            parking.call();
            std::thread::scope(|scope| {
                let waiting: Vec<_> = (1..4)
                    .map(|id| {
                        scope.spawn({
                            let parking = &parking;
                            move || parking.park(parked(id))
                        })
                    })
                    .collect();
                while parking.with_parked(BTreeMap::len) < 3 {
                    std::thread::yield_now();
                }
                parking.with_parked(|all| assert!(all.values().all(|one| one.inbox == [1])));
                parking.dismiss(verdict);
                for thread in waiting {
                    assert_eq!(thread.join().unwrap(), verdict);
                }
            });
            assert!(!parking.is_called() && parking.with_parked(BTreeMap::is_empty));
        }
    }
}
