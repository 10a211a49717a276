//! Speeds learnt from answers: a worker's, and a host's links where the daemon has not measured them.

use super::ettft::Terms;
use super::facts::{LOWER_TIERS, Link, Speed, Way};

/// Weight of the newest sample.
const NEWEST: f64 = 1.0 / 16.0;
/// How far from its seed a speed may be learnt.
const FACTOR_MAX: f64 = 5.0;
/// Predictions shorter than this say nothing.
const SECONDS_MIN: f64 = 0.005;
/// Part of an answer's time that queue and loads may have if it is to tell how fast a worker computes, and that the
/// load at least has if it is to tell how fast a link is.
const ASIDE_MAX: f64 = 0.10;
const LOADED_MIN: f64 = 0.50;
/// Attention costs at most as much as the rest at so many tokens.
const ATTENTION_TOKENS_MIN: f64 = 8192.0;
/// What is known of earlier samples is worth less with each new one.
const FORGETTING: f64 = 1.0 - 1.0 / 64.0;
/// The seed counts as so many samples of as many tokens as a usual prompt has.
const SEED_SAMPLES: f64 = 2.0;
const SEED_TOKENS: f64 = 1024.0;

/// What answers told of a worker.
#[derive(Clone, Debug)]
pub struct SpeedFit {
    seed: Speed,
    speed: Speed,
    /// Sums of products of tokens `u`, pairs of tokens `v`, and seconds `y`.
    uu: f64,
    uv: f64,
    vv: f64,
    uy: f64,
    vy: f64,
}

impl SpeedFit {
    /// A worker that has not answered yet.
    #[must_use]
    pub const fn new(seed: Speed) -> Self {
        let uu = SEED_SAMPLES * SEED_TOKENS * SEED_TOKENS;
        Self { seed, speed: seed, uu, uv: 0.0, vv: 0.0, uy: uu * seed.alpha, vy: 0.0 }
    }

    /// What is believed now.
    #[must_use]
    pub const fn speed(&self) -> Speed {
        self.speed
    }

    /// The first byte of an answer came after `observed` seconds; `terms` were predicted.
    pub fn observe(&mut self, prompt_tokens: f64, terms: &Terms, observed: f64) {
        let is_sound = observed.is_finite() && observed > 0.0;
        if !is_sound || terms.ettft_seconds <= SECONDS_MIN {
            return;
        }
        let aside = ASIDE_MAX * terms.ettft_seconds;
        if terms.queue_seconds < aside && terms.load_seconds < aside {
            let seconds = observed - terms.queue_seconds - terms.load_seconds;
            self.compute(prompt_tokens, terms.uncached_tokens, seconds);
        }
        // One answer that was stuck is one answer.
        let ratio = (observed / terms.ettft_seconds).clamp(0.25, 4.0);
        let gamma = self.speed.gamma + NEWEST * (ratio - self.speed.gamma);
        self.speed.gamma = gamma.clamp(0.5, 2.0);
    }

    fn compute(&mut self, prompt: f64, uncached: f64, seconds: f64) {
        let (u, v) = (uncached, uncached * (prompt - uncached / 2.0));
        let expected = self.speed.prefill_seconds(prompt, uncached);
        let y = seconds.clamp(expected / FACTOR_MAX, expected * FACTOR_MAX);
        // Relative errors count, so that long prompts don't outweigh all others.
        let weight = (SEED_TOKENS / u.max(1.0)).powi(2);
        for (sum, product) in [
            (&mut self.uu, u * u),
            (&mut self.uv, u * v),
            (&mut self.vv, v * v),
            (&mut self.uy, u * y),
            (&mut self.vy, v * y),
        ] {
            *sum = *sum * FORGETTING + product * weight;
        }
        let alpha_of = |beta: f64| (self.uy - beta * self.uv) / self.uu;
        let determinant = self.uu * self.vv - self.uv * self.uv;
        // Prompts of one length don't tell the two apart.
        let is_apart = determinant > 1e-3 * self.uu * self.vv;
        let beta = if is_apart {
            (self.uu * self.vy - self.uv * self.uy) / determinant
        } else {
            self.speed.beta
        };
        let seed = self.seed.alpha;
        let beta = beta.clamp(0.0, seed / ATTENTION_TOKENS_MIN);
        self.speed.beta = beta;
        self.speed.alpha = alpha_of(beta).clamp(seed / FACTOR_MAX, seed * FACTOR_MAX);
    }
}

/// What answers told of the links of a host whose daemon does not measure them.
#[derive(Clone, Debug, Default)]
pub struct LinkFit {
    /// Per lower tier, the logarithm of what its speed is of the configured one.
    factors: [f64; LOWER_TIERS.len()],
}

impl LinkFit {
    /// `way` with the speeds that are believed now.
    #[must_use]
    pub fn applied(&self, mut way: Way) -> Way {
        for (link, factor) in way.tiers.iter_mut().zip(&self.factors) {
            link.bytes_per_second *= factor.exp();
        }
        way
    }

    /// The first byte of an answer came after `observed` seconds; `terms` were predicted with `way`. Says something if
    /// most of that was a load, and most of the load was from one tier.
    pub fn observe(&mut self, way: &Way, terms: &Terms, observed: f64) {
        let is_load = terms.load_seconds > LOADED_MIN * terms.ettft_seconds
            && terms.ettft_seconds > SECONDS_MIN;
        if !observed.is_finite() || !is_load || way.overlaps {
            return;
        }
        let stage = |(link, bytes): (&Link, &f64)| link.seconds(*bytes);
        let seconds: Vec<f64> = way.tiers.iter().zip(&terms.loaded_bytes).map(stage).collect();
        let slowest = seconds.iter().copied().fold(0.0, f64::max);
        let rest = observed - terms.queue_seconds - terms.prefill_seconds - terms.load_seconds;
        for (factor, seconds) in self.factors.iter_mut().zip(seconds) {
            // The stage that took longest explains what the load took more or less.
            if seconds > 0.0 && seconds >= slowest && seconds > LOADED_MIN * terms.load_seconds {
                let real = (seconds + rest).clamp(seconds / FACTOR_MAX, seconds * FACTOR_MAX);
                let limit = FACTOR_MAX.ln();
                *factor = (*factor + 2.0 * NEWEST * (seconds / real).ln()).clamp(-limit, limit);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::float_cmp, reason = "sums of small whole numbers, and what stays as it was")]

    use super::*;

    fn predicted(speed: &Speed, prompt: f64, uncached: f64, queue: f64) -> Terms {
        let prefill = speed.prefill_seconds(prompt, uncached);
        Terms {
            uncached_tokens: uncached,
            queue_seconds: queue,
            prefill_seconds: prefill,
            ettft_seconds: queue + prefill,
            ..Terms::default()
        }
    }

    #[test]
    fn a_worker_is_learnt_from_prompts_of_many_lengths() {
        let truth = Speed { alpha: 1.0 / 5000.0, beta: 2e-9, gamma: 1.0 };
        let mut fit = SpeedFit::new(Speed::default());
        for round in 0..400_u32 {
            let prompt = 500.0 + f64::from(round * 7919 % 30_000);
            let uncached = prompt * f64::from(1 + round % 4) / 4.0;
            let terms = predicted(&fit.speed(), prompt, uncached, 0.0);
            fit.observe(prompt, &terms, truth.prefill_seconds(prompt, uncached));
        }
        let Speed { alpha, beta, gamma } = fit.speed();
        assert!((alpha / truth.alpha - 1.0).abs() < 0.05, "{alpha}");
        assert!((beta / truth.beta - 1.0).abs() < 0.3, "{beta}");
        assert!((gamma - 1.0).abs() < 0.1, "{gamma}");
    }

    #[test]
    fn nothing_is_learnt_beyond_five_times_the_seed() {
        let seed = Speed::default();
        for (factor, bound) in [(100.0, 5.0), (0.01, 0.2)] {
            let mut fit = SpeedFit::new(seed);
            for _ in 0..1000 {
                let terms = predicted(&fit.speed(), 4096.0, 4096.0, 0.0);
                fit.observe(4096.0, &terms, factor * 4096.0 * seed.alpha);
            }
            assert!((fit.speed().alpha / seed.alpha / bound - 1.0).abs() < 0.01);
            assert!((0.5..=2.0).contains(&fit.speed().gamma));
        }
    }

    #[test]
    fn answers_that_waited_tell_no_speed_but_a_correction() {
        let mut fit = SpeedFit::new(Speed::default());
        let terms = predicted(&fit.speed(), 4096.0, 4096.0, 1.0);
        for _ in 0..100 {
            fit.observe(4096.0, &terms, 1.5 * terms.ettft_seconds);
        }
        assert_eq!(fit.speed().alpha, Speed::default().alpha);
        assert!((fit.speed().gamma - 1.5).abs() < 0.01);
    }

    #[test]
    fn what_is_no_time_is_not_believed() {
        let mut fit = SpeedFit::new(Speed::default());
        let terms = predicted(&fit.speed(), 4096.0, 4096.0, 0.0);
        for observed in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            fit.observe(4096.0, &terms, observed);
            LinkFit::default().observe(&Way::default(), &terms, observed);
        }
        assert_eq!(fit.speed(), Speed::default());
    }

    #[test]
    fn a_slow_disk_is_learnt_and_nothing_else() {
        let mut fit = LinkFit::default();
        let base = Way { bytes_per_token: Some(1e5), is_pipelined: true, ..Way::default() };
        for _ in 0..200 {
            let way = fit.applied(base);
            let [_, link, _] = way.tiers;
            let load = link.seconds(3e9);
            let terms = Terms {
                loaded_bytes: [0.0, 3e9, 0.0],
                load_seconds: load,
                prefill_seconds: 0.05,
                ettft_seconds: load + 0.05,
                ..Terms::default()
            };
            fit.observe(&way, &terms, 3e9 / 2e9 + 0.05);
        }
        let [l2, l3, l4] = fit.applied(base).tiers;
        assert!((l3.bytes_per_second / 2e9 - 1.0).abs() < 0.05);
        assert_eq!([l2, l4], [base.tiers[0], base.tiers[2]]);
    }
}
