//! A worker: one prompt is computed at a time, in the order in which they came; loads run meanwhile; answers are written
//! side by side.

use core::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use foldhash::fast::FixedState;

use super::agenda::Seconds;
use super::lru::Lru;
use super::truth::{DEVICE_BLOCKS, WorkerTruth};

/// A worker.
#[derive(Debug)]
pub struct Worker {
    /// Its speed.
    pub truth: WorkerTruth,
    /// Blocks on its device.
    pub device: Lru,
    /// Blocks of its device that are taken and have no name yet.
    pub reserved: usize,
    /// Requests that wait.
    pub waiting: VecDeque<usize>,
    /// Requests that wait, and are loaded.
    pub ready: VecDeque<usize>,
    /// The request whose prompt is being computed, and until when.
    pub prefill: Option<(usize, f64)>,
    /// Requests that are loading.
    pub loading: u32,
    /// Answers that are being written.
    pub answers: Answers,
    /// Blocks of prompts that came and are not computed, and how often.
    coming: HashMap<u64, u32, FixedState>,
    /// Seconds that the prompts take that wait, as they looked when they came.
    pub backlog: f64,
    /// Requests that came and are not over, and what each takes.
    pub tenants: BTreeMap<usize, Tenant>,
}

/// What a request takes of a worker.
#[derive(Clone, Copy, Debug)]
pub struct Tenant {
    /// Blocks of the device that nobody else holds.
    pub blocks: usize,
    /// Whether it has them.
    pub is_admitted: bool,
    /// Tokens of its answer.
    pub output_tokens: u32,
}

impl Worker {
    /// An idle worker.
    #[must_use]
    pub fn new(truth: WorkerTruth) -> Self {
        Self {
            truth,
            device: Lru::default(),
            reserved: 0,
            waiting: VecDeque::new(),
            ready: VecDeque::new(),
            prefill: None,
            loading: 0,
            answers: Answers::default(),
            coming: HashMap::default(),
            backlog: 0.0,
            tenants: BTreeMap::new(),
        }
    }

    /// Whether nothing is left of any request.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_free = self.reserved == 0 && self.device.held() == 0 && self.coming.is_empty();
        is_free && self.tenants.is_empty() && self.backlog.abs() < 1e-3
    }

    /// Blocks of its device that a request can have.
    #[must_use]
    pub fn room(&self) -> usize {
        DEVICE_BLOCKS.saturating_sub(self.device.held() + self.reserved)
    }

    /// Share of its device that requests hold.
    #[must_use]
    pub fn memory_used(&self) -> f64 {
        1.0 - self.room() as f64 / DEVICE_BLOCKS as f64
    }

    /// Takes blocks for a request; those that had to go.
    pub fn reserve(&mut self, blocks: usize) -> Vec<u64> {
        self.reserved += blocks;
        let over = (self.device.len() + self.reserved).saturating_sub(DEVICE_BLOCKS);
        (0..over).map_while(|_| self.device.evict()).collect()
    }

    /// A prompt comes, or was computed.
    pub fn expect_blocks(&mut self, names: &[u64], is_coming: bool) {
        for name in names {
            if is_coming {
                *self.coming.entry(*name).or_insert(0) += 1;
            } else if let Some(count) = self.coming.get_mut(name) {
                *count -= 1;
                if *count == 0 {
                    self.coming.remove(name);
                }
            }
        }
    }

    /// Blocks that it will have, from the first one on, when all prompts are computed that have come.
    #[must_use]
    pub fn prefix_to_come(&self, names: &[u64]) -> usize {
        let has = |name: &&u64| self.device.contains(**name) || self.coming.contains_key(*name);
        names.iter().take_while(has).count()
    }

    /// Seconds until another request can have so many blocks of the device, behind all that came before it.
    #[must_use]
    pub fn room_seconds(&self, blocks: usize, now: f64) -> f64 {
        let waiting = self.tenants.values().filter(|tenant| !tenant.is_admitted);
        let wanted = blocks + waiting.map(|tenant| tenant.blocks).sum::<usize>();
        let mut missing = wanted.saturating_sub(self.room());
        if missing == 0 {
            return 0.0;
        }
        let busy = self.busy_seconds(now);
        let rate = WorkerTruth::tokens_per_second(self.answers.count() + 1, false);
        let mut ends: BTreeMap<usize, f64> = self.answers.ends_in(now).collect();
        let mut leaving: Vec<(Seconds, usize)> = self
            .tenants
            .iter()
            .map(|(number, tenant)| {
                let computed = busy + f64::from(tenant.output_tokens) / rate;
                (Seconds(ends.remove(number).unwrap_or(computed)), tenant.blocks)
            })
            .collect();
        leaving.sort_unstable();
        for (Seconds(end), blocks) in &leaving {
            missing = missing.saturating_sub(*blocks);
            if missing == 0 {
                return *end;
            }
        }
        leaving.last().map_or(0.0, |(Seconds(end), _)| *end)
    }

    /// Seconds until it has nothing to compute.
    #[must_use]
    pub fn busy_seconds(&self, now: f64) -> f64 {
        self.backlog + self.prefill.map_or(0.0, |(_, end)| (end - now).max(0.0))
    }
}

/// Answers: all get their next token at the same time.
#[derive(Debug, Default)]
pub struct Answers {
    /// By the tokens that will have been written when they are over.
    ends: BinaryHeap<Reverse<(Seconds, usize)>>,
    /// Tokens written so far, for an answer that is there from the beginning.
    written: f64,
    /// When that was so.
    at: f64,
    /// Tokens a second since then.
    rate: f64,
    /// Changes whenever the next end does.
    pub version: u64,
}

impl Answers {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u32 {
        u32::try_from(self.ends.len()).unwrap_or(u32::MAX)
    }

    /// The requests, and the seconds until each is over if nothing else comes.
    fn ends_in(&self, now: f64) -> impl Iterator<Item = (usize, f64)> {
        let written = self.written + (now - self.at) * self.rate;
        self.ends.iter().map(move |Reverse((Seconds(end), request))| {
            (*request, ((end - written) / self.rate).max(0.0))
        })
    }

    fn advance(&mut self, now: f64) {
        self.written += (now - self.at) * self.rate;
        self.at = now;
    }

    /// Another one begins.
    pub fn begin(&mut self, request: usize, tokens: u32, now: f64) {
        self.advance(now);
        self.ends.push(Reverse((Seconds(self.written + f64::from(tokens)), request)));
    }

    /// The one that is over now.
    pub fn end(&mut self, now: f64) -> Option<usize> {
        self.advance(now);
        self.ends.pop().map(|Reverse((_, request))| request)
    }

    /// From now on they are written at another speed; when the next one ends.
    pub fn go_on(&mut self, is_beside_prefill: bool, now: f64) -> Option<f64> {
        self.advance(now);
        self.rate = WorkerTruth::tokens_per_second(self.count(), is_beside_prefill);
        self.version += 1;
        let Reverse((Seconds(end), _)) = self.ends.peek()?;
        Some(now + ((end - self.written) / self.rate).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_slow_each_other_down_and_end_in_order() {
        let mut answers = Answers::default();
        answers.begin(1, 100, 0.0);
        let alone = answers.go_on(false, 0.0).unwrap();
        answers.begin(2, 10, 0.0);
        let beside = answers.go_on(true, 0.0).unwrap();
        assert!(beside > alone / 10.0);
        assert_eq!(answers.end(beside), Some(2));
        let last = answers.go_on(false, beside).unwrap();
        assert!(last > alone);
        assert_eq!((answers.end(last), answers.go_on(false, last)), (Some(1), None));
    }
}
