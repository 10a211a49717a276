//! A fetch that waits for what is on a device.
//!
//! What is in memory is found at once and nothing else happens. Keys that are being loaded are asked
//! for again whenever the brain says that it pays, until none is left or the time is over; then what
//! is missing is a miss. The store counts each key once, with its final answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kvd_proto::block_key::Namespace;
use kvd_proto::miss::MissReason;
use kvd_store::{Found, Held, Hit, Hold, Ids, Input, Keys};

use super::service::{SLICE_KEYS, Service};
use crate::parkers::Waited;

/// So long after a session was told last, it asks again for everything. What was loaded for it is
/// pinned, and counts as being loaded, until it asks: whoever leaves such blocks aside while it waits
/// for others may wait for itself, and others with it.
const QUIET: Duration = Duration::from_millis(10);

/// How many of the keys that were loading are asked for again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    /// The first ones: loads begin in the order of the keys, so most likely it was they that ended.
    Some,
    All,
}

/// What is to be fetched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fetching<'a> {
    pub(super) namespace: Namespace<'a>,
    pub(super) keys: Keys<'a>,
    /// The answer ends with the first miss.
    pub(super) prefix: bool,
    pub(super) hold: Hold,
    /// Longest wait for devices.
    pub(super) patience: Duration,
}

impl Service {
    /// Fetches; the answer is in `found` afterwards, one for each key or, with `prefix`, up to the
    /// first miss. It never holds [`Found::Loading`].
    pub(super) fn fetch(&mut self, fetching: &Fetching<'_>) {
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        let mut from = 0;
        while from < fetching.keys.len() {
            let to = fetching.keys.len().min(from + SLICE_KEYS);
            self.ask_for(fetching, fetching.keys.part(from..to));
            found.extend_from_slice(&self.effects.found);
            if fetching.prefix && matches!(found.last(), Some(Found::Miss(_))) {
                break;
            }
            from = to;
        }
        if found.contains(&Found::Loading) {
            self.await_loads(fetching, &mut found);
        }
        self.verify(fetching, &mut found);
        self.found = found;
    }

    fn ask_for(&mut self, fetching: &Fetching<'_>, keys: Keys<'_>) {
        self.apply(Input::Fetch {
            session: self.id(),
            namespace: fetching.namespace,
            keys,
            prefix: fetching.prefix,
            hold: fetching.hold,
        });
    }

    fn await_loads(&mut self, fetching: &Fetching<'_>, found: &mut Vec<Found>) {
        let deadline = Instant::now() + fetching.patience;
        let (brain, parker) = (Arc::clone(&self.daemon.brain), Arc::clone(&self.parker));
        // Known to the brain before the next question: a wake from now on finds this thread.
        let parked = brain.parkers.for_loads(self.id(), &parker);
        let keys = all(fetching.keys);
        let mut extent = Extent::Some;
        loop {
            self.ask_again(fetching, &keys, found, extent);
            if !found.contains(&Found::Loading) {
                return;
            }
            // One slice is asked for as a whole anyway.
            let is_long = keys.len() > SLICE_KEYS;
            let until = if is_long { deadline.min(Instant::now() + QUIET) } else { deadline };
            let is_woken = parked.is_some() && parker.wait(until) == Waited::Woken;
            extent = if is_woken { Extent::Some } else { Extent::All };
            let late = !is_woken && (parked.is_none() || Instant::now() >= deadline);
            if late || brain.parkers.are_loads_over() {
                self.give_up(fetching, found);
                return;
            }
        }
    }

    /// Asks again for keys that were loading, in their order, all or until some of a slice still are.
    fn ask_again(
        &mut self,
        fetching: &Fetching<'_>,
        keys: &[&[u8]],
        found: &mut Vec<Found>,
        extent: Extent,
    ) {
        let pending: Vec<usize> =
            (0..found.len()).filter(|at| found[*at] == Found::Loading).collect();
        for slice in pending.chunks(SLICE_KEYS) {
            let again: Vec<&[u8]> = slice.iter().map(|at| keys[*at]).collect();
            self.ask_for(fetching, Keys::slices(&again));
            for (at, answer) in slice.iter().zip(&self.effects.found) {
                found[*at] = *answer;
            }
            if fetching.prefix && self.make_way(found) {
                return self.ask_again(fetching, keys, found, extent);
            }
            let ended = fetching.prefix && slice.iter().any(|at| is_miss(&found[*at]));
            if ended {
                let left = found.iter().filter(|found| **found == Found::Loading).count();
                self.end_at_first_miss(found);
                if left > 0 && !found.contains(&Found::Loading) {
                    self.apply(Input::StopWaiting { session: self.id(), given_up: 0 });
                }
                return;
            }
            let is_waiting = slice.iter().any(|at| found[*at] == Found::Loading);
            if is_waiting && extent == Extent::Some {
                return;
            }
        }
    }

    /// The session may hold no more, but holds what is of use only behind a key that it could not have:
    /// that is given back and asked for in its turn. Whether there was any.
    fn make_way(&mut self, found: &mut [Found]) -> bool {
        let shed = Found::Miss(MissReason::Shed);
        let Some(at) = found.iter().position(|answer| *answer == shed) else {
            return false;
        };
        let mut is_way_made = false;
        for beyond in found[at + 1..].iter_mut().filter(|answer| matches!(answer, Found::Hit(_))) {
            self.let_go(beyond);
            *beyond = Found::Loading;
            is_way_made = true;
        }
        if is_way_made {
            found[at] = Found::Loading;
        }
        is_way_made
    }

    /// What is not there by now is a miss.
    fn give_up(&mut self, fetching: &Fetching<'_>, found: &mut Vec<Found>) {
        let mut given_up = 0;
        for answer in found.iter_mut().filter(|answer| **answer == Found::Loading) {
            *answer = Found::Miss(MissReason::Deadline);
            given_up += 1;
        }
        self.apply(Input::StopWaiting { session: self.id(), given_up });
        if fetching.prefix {
            self.end_at_first_miss(found);
        }
    }

    /// Cuts an answer behind its first miss, and gives back what was found behind that.
    pub(super) fn end_at_first_miss(&mut self, found: &mut Vec<Found>) {
        let Some(end) = found.iter().position(is_miss) else {
            return;
        };
        for beyond in found.drain(end + 1..) {
            self.let_go(&beyond);
        }
    }

    /// Gives back what pins a hit; hand-outs end by themselves.
    pub(super) fn let_go(&mut self, found: &Found) {
        if let Found::Hit(Hit { held: Held::Lease(lease), .. }) = found {
            self.apply(Input::Release { session: self.id(), leases: Ids::Slice(&[*lease]) });
        }
    }
}

fn is_miss(found: &Found) -> bool {
    matches!(found, Found::Miss(_))
}

/// The keys one by one.
pub(super) fn all(keys: Keys<'_>) -> Vec<&[u8]> {
    let mut list = Vec::with_capacity(keys.len());
    keys.each(|key| {
        list.push(key);
        true
    });
    list
}
