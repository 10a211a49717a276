//! When a worker is left alone: a state machine without a clock; times are passed in, counted from any
//! one moment.
//!
//! Closed: `faults_max` faults in a row open it. Open: nothing is sent for the cooldown. Half-open, from
//! then on: one request is let through as a probe; its success closes the breaker, its fault opens
//! it for twice as long. Looking at a breaker changes nothing: only whoever sends claims the probe.

use std::time::Duration;

/// A probe that nobody has told the outcome of gives its place to another one after this long.
const PROBE_PATIENCE: Duration = Duration::from_secs(60);

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Faults in a row that open it; 0: it never opens.
    pub faults_max: u32,
    /// How long it stays open at first.
    pub cooldown: Duration,
    /// How long at most.
    pub cooldown_max: Duration,
}

/// What came of a request, as far as the worker's health goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// It answered.
    Success,
    /// It did not answer, or with a status of 500 or more.
    Fault,
    /// Nothing is learnt: the client left, the request was wrong, the worker is busy.
    Neutral,
}

/// What a breaker is at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Requests go through.
    Closed,
    /// One request may go through, or is on its way.
    HalfOpen,
    /// Nothing goes through.
    Open,
}

/// A request that was let through. It belongs to one breaker, and goes back by [`Breaker::settle`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a probe whose outcome is not told blocks the next one"]
pub struct Claim {
    /// The number of the probe; 0 is none.
    probe: u64,
}

/// The breaker of one worker.
#[derive(Debug)]
pub struct Breaker {
    limits: Limits,
    faults: u32,
    open: Option<Open>,
    probes: u64,
    trips: u64,
}

#[derive(Debug)]
struct Open {
    until: Duration,
    cooldown: Duration,
    /// The probe on its way, and since when.
    probe: Option<(u64, Duration)>,
}

impl Breaker {
    /// A closed one.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, faults: 0, open: None, probes: 0, trips: 0 }
    }

    /// How often it has opened.
    #[must_use]
    pub fn trips(&self) -> u64 {
        self.trips
    }

    /// What it is at `now`.
    #[must_use]
    pub fn state(&self, now: Duration) -> State {
        match &self.open {
            None => State::Closed,
            Some(open) if now < open.until => State::Open,
            Some(_) => State::HalfOpen,
        }
    }

    /// Whether a request sent at `now` would go through.
    #[must_use]
    pub fn admits(&self, now: Duration) -> bool {
        let Some(open) = &self.open else { return true };
        let is_probed = open.probe.is_some_and(|(_, since)| now < since + PROBE_PATIENCE);
        now >= open.until && !is_probed
    }

    /// Says that a request is being sent at `now`, whether the breaker admits it or not: if every
    /// worker's breaker is open, some worker is asked all the same.
    pub fn claim(&mut self, now: Duration) -> Claim {
        if self.open.is_none() || !self.admits(now) {
            return Claim { probe: 0 };
        }
        self.probes += 1;
        if let Some(open) = &mut self.open {
            open.probe = Some((self.probes, now));
        }
        Claim { probe: self.probes }
    }

    /// Takes the outcome of a request. A breaker that is open listens to its probe alone: what was
    /// sent before it opened says nothing new.
    pub fn settle(&mut self, claim: Claim, outcome: Outcome, now: Duration) {
        let Some(open) = &mut self.open else {
            match outcome {
                Outcome::Success => self.faults = 0,
                Outcome::Neutral => {}
                Outcome::Fault => self.count_fault(now),
            }
            return;
        };
        if open.probe.is_none_or(|(probe, _)| probe != claim.probe) {
            return;
        }
        open.probe = None;
        match outcome {
            Outcome::Neutral => {}
            Outcome::Success => {
                self.open = None;
                self.faults = 0;
            }
            Outcome::Fault => {
                open.cooldown = open.cooldown.saturating_mul(2).min(self.limits.cooldown_max);
                open.until = now + open.cooldown;
                self.trips += 1;
            }
        }
    }

    fn count_fault(&mut self, now: Duration) {
        self.faults = self.faults.saturating_add(1);
        if self.limits.faults_max > 0 && self.faults >= self.limits.faults_max {
            let cooldown = self.limits.cooldown;
            self.open = Some(Open { until: now + cooldown, cooldown, probe: None });
            self.trips += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Outcome::{Fault, Neutral, Success};
    use super::*;

    const LIMITS: Limits = Limits {
        faults_max: 3,
        cooldown: Duration::from_secs(5),
        cooldown_max: Duration::from_secs(60),
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn sent(breaker: &mut Breaker, outcome: Outcome, seconds: u64) {
        let claim = breaker.claim(at(seconds));
        breaker.settle(claim, outcome, at(seconds));
    }

    fn tripped() -> Breaker {
        let mut breaker = Breaker::new(LIMITS);
        (0..3).for_each(|_| sent(&mut breaker, Fault, 0));
        assert_eq!((breaker.state(at(0)), breaker.trips()), (State::Open, 1));
        breaker
    }

    #[test]
    fn only_faults_in_a_row_open_it() {
        let mut breaker = Breaker::new(LIMITS);
        for outcome in [Fault, Fault, Success, Fault, Neutral, Fault] {
            sent(&mut breaker, outcome, 0);
            assert_eq!(breaker.state(at(0)), State::Closed);
        }
        sent(&mut breaker, Fault, 0);
        assert_eq!(breaker.state(at(0)), State::Open);
        assert!(!breaker.admits(at(4)) && breaker.admits(at(5)));
    }

    #[test]
    fn a_threshold_of_zero_never_opens_it() {
        let mut breaker = Breaker::new(Limits { faults_max: 0, ..LIMITS });
        (0..100).for_each(|_| sent(&mut breaker, Fault, 0));
        assert_eq!((breaker.state(at(0)), breaker.trips()), (State::Closed, 0));
    }

    #[test]
    fn one_probe_at_a_time_and_looking_claims_nothing() {
        let mut breaker = tripped();
        assert!(breaker.admits(at(5)) && breaker.admits(at(5)));
        assert_eq!(breaker.state(at(5)), State::HalfOpen);
        let probe = breaker.claim(at(5));
        assert!(!breaker.admits(at(64)), "it is on its way");
        assert!(breaker.admits(at(65)), "it is given up");
        let next = breaker.claim(at(65));
        breaker.settle(probe, Success, at(66));
        assert_eq!(breaker.state(at(66)), State::HalfOpen, "too late to say anything");
        breaker.settle(next, Success, at(66));
        assert_eq!(breaker.state(at(66)), State::Closed);
    }

    #[test]
    fn the_cooldown_doubles_up_to_its_bound() {
        let mut breaker = tripped();
        let mut now = 0;
        for cooldown in [5, 10, 20, 40, 60, 60] {
            assert!(!breaker.admits(at(now + cooldown - 1)), "{cooldown}");
            now += cooldown;
            assert!(breaker.admits(at(now)), "{cooldown}");
            sent(&mut breaker, Fault, now);
        }
        assert_eq!(breaker.trips(), 7);
        sent(&mut breaker, Success, now + 60);
        (0..3).for_each(|_| sent(&mut breaker, Fault, now + 60));
        assert!(breaker.admits(at(now + 65)), "it begins anew");
    }

    #[test]
    fn a_probe_that_says_nothing_frees_its_place() {
        let mut breaker = tripped();
        sent(&mut breaker, Neutral, 5);
        assert!(breaker.admits(at(5)));
        assert_eq!(breaker.state(at(5)), State::HalfOpen);
    }

    #[test]
    fn what_was_sent_before_or_in_spite_of_it_changes_nothing() {
        let mut breaker = Breaker::new(LIMITS);
        let early = breaker.claim(at(0));
        (0..3).for_each(|_| sent(&mut breaker, Fault, 0));
        breaker.settle(early, Success, at(1));
        assert_eq!(breaker.state(at(1)), State::Open);
        let forced = breaker.claim(at(1));
        breaker.settle(forced, Fault, at(2));
        assert_eq!((breaker.trips(), breaker.admits(at(5))), (1, true));
    }
}
