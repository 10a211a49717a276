//! What came of it.

use super::request::BLOCK_TOKENS;
use crate::percentile;

/// What a user bears: the first token after this, then so many a second.
const TTFT_SECONDS_MAX: f64 = 2.0;
const TOKENS_PER_SECOND_MIN: f64 = 30.0;

/// A request that was answered.
#[derive(Clone, Copy, Debug)]
pub struct Answered {
    /// When it came.
    pub arrival: f64,
    /// Seconds to the first token.
    pub ttft: f64,
    /// Tokens a second from then on.
    pub tokens_per_second: f64,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Blocks of it that were on the device, in memory, on disk.
    pub blocks: [usize; 3],
}

/// All requests.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    answered: Vec<Answered>,
    /// Whether all were answered, and everything that was said was understood.
    pub is_whole: bool,
}

/// Figures of the requests that came in a while.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Requests.
    pub requests: f64,
    /// Mean seconds to the first token.
    pub mean: f64,
    /// The middle one.
    pub median: f64,
    /// All but one of a hundred have less.
    pub p99: f64,
    /// Share of the requests that were borne.
    pub good_share: f64,
    /// Of those, how many in a second.
    pub goodput: f64,
    /// Shares of the prompts' tokens that were on the device, in memory, on disk.
    pub tiers: [f64; 3],
}

impl Outcome {
    /// Notes a request.
    pub fn add(&mut self, answered: &Answered) {
        self.answered.push(*answered);
    }

    /// All of them, as they ended.
    #[must_use]
    pub fn answered(&self) -> &[Answered] {
        &self.answered
    }

    /// The figures of those that came between two times.
    #[must_use]
    pub fn figures(&self, [from, to]: [f64; 2]) -> Figures {
        let counted = || self.answered.iter().filter(|one| (from..to).contains(&one.arrival));
        let mut times: Vec<f64> = counted().map(|one| one.ttft).collect();
        let is_good = |one: &&Answered| {
            one.ttft <= TTFT_SECONDS_MAX && one.tokens_per_second >= TOKENS_PER_SECOND_MIN
        };
        let good = counted().filter(is_good).count() as f64;
        let requests = times.len() as f64;
        let tokens: f64 = counted().map(|one| f64::from(one.prompt_tokens)).sum();
        let tier = |tier: usize| {
            let blocks: usize = counted().map(|one| one.blocks[tier]).sum();
            blocks as f64 * f64::from(BLOCK_TOKENS) / tokens
        };
        Figures {
            requests,
            mean: times.iter().sum::<f64>() / requests,
            median: percentile::median(&mut times),
            p99: percentile::of(&mut times, 0.99),
            good_share: good / requests,
            goodput: good / (to - from),
            tiers: [0, 1, 2].map(tier),
        }
    }
}

impl Figures {
    /// Both together, to be divided by their number.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.zipped(other, |left, right| left + right)
    }

    /// Divided by a number.
    #[must_use]
    pub fn over(&self, number: f64) -> Self {
        self.zipped(self, |one, _| one / number)
    }

    fn zipped(&self, other: &Self, with: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            requests: with(self.requests, other.requests),
            mean: with(self.mean, other.mean),
            median: with(self.median, other.median),
            p99: with(self.p99, other.p99),
            good_share: with(self.good_share, other.good_share),
            goodput: with(self.goodput, other.goodput),
            tiers: [0, 1, 2].map(|tier| with(self.tiers[tier], other.tiers[tier])),
        }
    }
}
