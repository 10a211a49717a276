//! Random draws. Every purpose has a stream of its own, so that one draw more here changes nothing there.

use fastrand::Rng;

/// A stream of random numbers.
#[derive(Debug)]
pub struct Draw(Rng);

/// What a stream is for.
#[derive(Clone, Copy, Debug)]
pub enum Purpose {
    /// True speeds of workers and links.
    Truth,
    /// Requests.
    Workload,
    /// Ties.
    Ties,
}

impl Draw {
    /// The stream of a purpose, in the run with this seed.
    #[must_use]
    pub fn new(seed: u64, purpose: Purpose) -> Self {
        Self(Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(purpose as u64)))
    }

    /// Between two numbers.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.0.f64()
    }

    /// Up to so many times more or less; as often more as less.
    pub fn factor(&mut self, most: f64) -> f64 {
        (self.between(-1.0, 1.0) * most.ln()).exp()
    }

    /// A waiting time with this mean, without memory.
    pub fn wait(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.0.f64()).ln()
    }

    /// A length between 1/4 and 4 times its median, short ones more often.
    pub fn length(&mut self, median: f64) -> u32 {
        let length = median * self.factor(4.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a length")]
        let length = length as u32;
        length.max(1)
    }

    /// One of `count`, the first ones more often: number n with weight 1/(n+1).
    pub fn popular(&mut self, count: u32) -> u32 {
        let top = f64::from(count + 1).ln();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below count")]
        let number = (self.between(0.0, top).exp() - 1.0) as u32;
        number.min(count.saturating_sub(1))
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0.u64(..)
    }
}
