//! One kind of call, many times: how long each took, and what was not granted.

use std::time::Duration;

use kvd_client::{MissReason, Refusal};

use super::reason::Reason;
use crate::text;

#[derive(Debug)]
pub(crate) struct Lap {
    pub(crate) name: &'static str,
    /// Blocks that were refused or not there, by reason.
    pub(crate) failed: Vec<(Reason, u64)>,
    /// Blocks with other bytes than were stored.
    pub(crate) wrong: u64,
    blocks: u64,
    calls: Vec<Duration>,
}

impl Lap {
    pub(crate) fn new(name: &'static str) -> Self {
        Self { name, failed: Vec::new(), wrong: 0, blocks: 0, calls: Vec::new() }
    }

    pub(crate) fn add(&mut self, blocks: usize, took: Duration) {
        self.blocks += blocks as u64;
        self.calls.push(took);
    }

    pub(crate) fn refuse(&mut self, refusal: Refusal) {
        self.fail(Reason::Refused(refusal));
    }

    pub(crate) fn miss(&mut self, reason: MissReason) {
        self.fail(Reason::Missed(reason));
    }

    fn fail(&mut self, reason: Reason) {
        match self.failed.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, blocks)) => *blocks += 1,
            None => self.failed.push((reason, 1)),
        }
    }

    pub(crate) fn failed_blocks(&self) -> u64 {
        self.failed.iter().map(|(_, blocks)| blocks).sum()
    }

    /// Blocks dealt with, per second of call time.
    pub(crate) fn blocks_per_second(&self) -> u64 {
        let total_us = self.calls.iter().sum::<Duration>().as_micros().max(1);
        u64::try_from(u128::from(self.blocks) * 1_000_000 / total_us).unwrap_or(u64::MAX)
    }

    /// The time that `percent` of the calls did not exceed.
    pub(crate) fn quantile(&self, percent: usize) -> String {
        let mut calls = self.calls.clone();
        calls.sort_unstable();
        let rank = (calls.len() * percent).div_ceil(100).max(1) - 1;
        calls.get(rank).map_or_else(String::new, |took| text::span_of_call(*took))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_lap() {
        let mut lap = Lap::new("put");
        assert_eq!((lap.blocks_per_second(), lap.quantile(50)), (0, String::new()));
        for took_ms in (1..=100).rev() {
            lap.add(2, Duration::from_millis(took_ms));
        }
        assert_eq!(lap.quantile(50), "50.0 ms");
        assert_eq!(lap.quantile(99), "99.0 ms");
        assert_eq!(lap.blocks_per_second(), 39, "200 blocks in 5.05 s");
        lap.refuse(Refusal::ArenaFull);
        lap.refuse(Refusal::ArenaFull);
        lap.miss(MissReason::Shed);
        assert_eq!((lap.failed.len(), lap.failed_blocks()), (2, 3));
    }
}
