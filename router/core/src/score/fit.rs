//! Speeds learnt from answers: a worker's, by what was learnt of the others of its model, and a host's links where the
//! daemon has not measured them.

use super::ettft::Terms;
use super::facts::{LOWER_TIERS, Link, Speed, Way};

/// Weight of the newest sample.
const NEWEST: f64 = 1.0 / 16.0;
/// Bounds of gamma.
const GAMMA_MIN: f64 = 0.5;
const GAMMA_MAX: f64 = 2.0;
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
/// What is known of a worker's earlier samples is worth less with each new one.
const FORGETTING: f64 = 1.0 - 1.0 / 64.0;
/// The same for a model, which many workers answer for.
const MODEL_FORGETTING: f64 = 1.0 - 1.0 / 1024.0;
/// What stands in for a worker that has not answered counts as so many samples of as many tokens as a usual prompt has.
const PRIOR_SAMPLES: f64 = 8.0;
/// The same for the seed, which stands in for a model.
const SEED_SAMPLES: f64 = 2.0;
const PRIOR_TOKENS: f64 = 1024.0;
/// So many answers of a model as predicted are taken for granted before the first one.
const PRIOR_RATIOS: f64 = 16.0;

/// Sums over samples of products of tokens `u`, pairs of tokens `v`, and seconds `y`. Relative errors count, so that
/// long prompts don't outweigh all others: in each sample `u` is [`PRIOR_TOKENS`].
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    uu: f64,
    uv: f64,
    vv: f64,
    uy: f64,
    vy: f64,
}

impl Sums {
    fn of_sample(u: f64, v: f64, y: f64) -> Self {
        let weight = (PRIOR_TOKENS / u.max(1.0)).powi(2);
        Self { uu: u * u, uv: u * v, vv: v * v, uy: u * y, vy: v * y }.times(weight)
    }

    const fn times(self, factor: f64) -> Self {
        let Self { uu, uv, vv, uy, vy } = self;
        Self { uu: uu * factor, uv: uv * factor, vv: vv * factor, uy: uy * factor, vy: vy * factor }
    }

    const fn plus(self, other: Self) -> Self {
        let Self { uu, uv, vv, uy, vy } = self;
        Self {
            uu: uu + other.uu,
            uv: uv + other.uv,
            vv: vv + other.vv,
            uy: uy + other.uy,
            vy: vy + other.vy,
        }
    }

    /// How many samples that is.
    const fn samples(&self) -> f64 {
        self.uu / (PRIOR_TOKENS * PRIOR_TOKENS)
    }

    /// Alpha and beta that explain the samples best, not far from `seed`. `beta`, if prompts of one length don't tell the
    /// two apart.
    fn solve(&self, seed: &Speed, beta: f64) -> (f64, f64) {
        let determinant = self.uu * self.vv - self.uv * self.uv;
        let is_apart = determinant > 1e-3 * self.uu * self.vv;
        let beta =
            if is_apart { (self.uu * self.vy - self.uv * self.uy) / determinant } else { beta };
        let beta = beta.clamp(0.0, seed.alpha / ATTENTION_TOKENS_MIN);
        let alpha = (self.uy - beta * self.uv) / self.uu;
        (alpha.clamp(seed.alpha / FACTOR_MAX, seed.alpha * FACTOR_MAX), beta)
    }
}

/// What answers told of the workers of a model, all together: what a worker is held to be before it has answered, and less
/// so with each of its answers. Without it the first one that turns out to be faster than the seed would look better than
/// all that were not asked, and get everything until it has a queue.
#[derive(Clone, Debug)]
pub struct ModelFit {
    seed: Speed,
    speed: Speed,
    sums: Sums,
    /// Of ratios of observed to predicted times, and their number.
    ratios: (f64, f64),
}

impl ModelFit {
    /// A model nobody has answered for.
    #[must_use]
    pub fn new(seed: Speed) -> Self {
        let sums = Sums::of_sample(PRIOR_TOKENS, 0.0, PRIOR_TOKENS * seed.alpha);
        let ratios = (PRIOR_RATIOS * seed.gamma, PRIOR_RATIOS);
        Self { seed, speed: seed, sums: sums.times(SEED_SAMPLES), ratios }
    }

    fn compute(&mut self, sample: Sums) {
        self.sums = self.sums.times(MODEL_FORGETTING).plus(sample);
        (self.speed.alpha, self.speed.beta) = self.sums.solve(&self.seed, self.speed.beta);
    }

    fn correct(&mut self, ratio: f64) {
        let (sum, count) = self.ratios;
        let (sum, count) = (sum * MODEL_FORGETTING + ratio, count * MODEL_FORGETTING + 1.0);
        self.ratios = (sum, count);
        self.speed.gamma = (sum / count).clamp(GAMMA_MIN, GAMMA_MAX);
    }
}

/// What answers told of one worker.
#[derive(Clone, Debug)]
pub struct SpeedFit {
    sums: Sums,
    /// What the model's samples are still worth here, of [`PRIOR_SAMPLES`].
    prior: f64,
    /// Moving mean of ratios from 0 on, and the part of it that is the model's.
    ratio: f64,
    ratio_prior: f64,
}

impl Default for SpeedFit {
    fn default() -> Self {
        Self { sums: Sums::default(), prior: 1.0, ratio: 0.0, ratio_prior: 1.0 }
    }
}

impl SpeedFit {
    /// What is believed of it now.
    #[must_use]
    pub fn speed(&self, model: &ModelFit) -> Speed {
        let share = PRIOR_SAMPLES * self.prior / model.sums.samples();
        let sums = self.sums.plus(model.sums.times(share));
        let (alpha, beta) = sums.solve(&model.seed, model.speed.beta);
        let gamma = self.ratio + self.ratio_prior * model.speed.gamma;
        Speed { alpha, beta, gamma: gamma.clamp(GAMMA_MIN, GAMMA_MAX) }
    }

    /// The first byte of an answer came after `observed` seconds; `terms` were predicted. It is a worker of `model`.
    pub fn observe(
        &mut self,
        model: &mut ModelFit,
        prompt_tokens: f64,
        terms: &Terms,
        observed: f64,
    ) {
        let is_sound = observed.is_finite() && observed > 0.0;
        if !is_sound || terms.ettft_seconds <= SECONDS_MIN {
            return;
        }
        let aside = ASIDE_MAX * terms.ettft_seconds;
        if terms.queue_seconds < aside && terms.load_seconds < aside {
            let seconds = observed - terms.queue_seconds - terms.load_seconds;
            let (u, prompt) = (terms.uncached_tokens, prompt_tokens);
            let expected = self.speed(model).prefill_seconds(prompt, u);
            let y = seconds.clamp(expected / FACTOR_MAX, expected * FACTOR_MAX);
            let sample = Sums::of_sample(u, u * (prompt - u / 2.0), y);
            self.sums = self.sums.times(FORGETTING).plus(sample);
            self.prior *= FORGETTING;
            model.compute(sample);
        }
        // One answer that was stuck is one answer.
        let ratio = (observed / terms.ettft_seconds).clamp(0.25, 4.0);
        self.ratio += NEWEST * (ratio - self.ratio);
        self.ratio_prior *= 1.0 - NEWEST;
        model.correct(ratio);
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

    fn new() -> (SpeedFit, ModelFit) {
        (SpeedFit::default(), ModelFit::new(Speed::default()))
    }

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
        let (mut fit, mut model) = new();
        for round in 0..400_u32 {
            let prompt = 500.0 + f64::from(round * 7919 % 30_000);
            let uncached = prompt * f64::from(1 + round % 4) / 4.0;
            let terms = predicted(&fit.speed(&model), prompt, uncached, 0.0);
            fit.observe(&mut model, prompt, &terms, truth.prefill_seconds(prompt, uncached));
        }
        let Speed { alpha, beta, gamma } = fit.speed(&model);
        assert!((alpha / truth.alpha - 1.0).abs() < 0.05, "{alpha}");
        assert!((beta / truth.beta - 1.0).abs() < 0.3, "{beta}");
        assert!((gamma - 1.0).abs() < 0.1, "{gamma}");
    }

    #[test]
    fn nothing_is_learnt_beyond_five_times_the_seed() {
        let seed = Speed::default();
        for (factor, bound) in [(100.0, 5.0), (0.01, 0.2)] {
            let (mut fit, mut model) = new();
            for _ in 0..1000 {
                let terms = predicted(&fit.speed(&model), 4096.0, 4096.0, 0.0);
                fit.observe(&mut model, 4096.0, &terms, factor * 4096.0 * seed.alpha);
            }
            assert!((fit.speed(&model).alpha / seed.alpha / bound - 1.0).abs() < 0.01);
            assert!((0.5..=2.0).contains(&fit.speed(&model).gamma));
        }
    }

    #[test]
    fn a_worker_that_has_not_answered_is_like_the_others_of_its_model() {
        let truth = Speed { alpha: 1.0 / 20_000.0, beta: 1e-9, gamma: 1.0 };
        let (mut fit, mut model) = new();
        for round in 0..200_u32 {
            let prompt = 500.0 + f64::from(round * 7919 % 30_000);
            let terms = predicted(&fit.speed(&model), prompt, prompt, 0.0);
            fit.observe(&mut model, prompt, &terms, truth.prefill_seconds(prompt, prompt));
        }
        let unknown = SpeedFit::default().speed(&model);
        assert!((unknown.alpha / truth.alpha - 1.0).abs() < 0.1, "{unknown:?}");
        assert!((unknown.beta / truth.beta - 1.0).abs() < 0.4, "{unknown:?}");
        // Its own answers count for more than those of the others before long.
        let mut slow = SpeedFit::default();
        for _ in 0..64 {
            let terms = predicted(&slow.speed(&model), 4096.0, 4096.0, 0.0);
            let observed = 2.0 * truth.prefill_seconds(4096.0, 4096.0);
            slow.observe(&mut model, 4096.0, &terms, observed);
        }
        let seconds = |fit: &SpeedFit| fit.speed(&model).prefill_seconds(4096.0, 4096.0);
        let ratio = seconds(&slow) / truth.prefill_seconds(4096.0, 4096.0);
        assert!((1.7..2.1).contains(&ratio), "{ratio}");
    }

    #[test]
    fn answers_that_waited_tell_no_speed_but_a_correction() {
        let (mut fit, mut model) = new();
        let terms = predicted(&fit.speed(&model), 4096.0, 4096.0, 1.0);
        for _ in 0..100 {
            fit.observe(&mut model, 4096.0, &terms, 1.5 * terms.ettft_seconds);
        }
        assert_eq!(fit.speed(&model).alpha, Speed::default().alpha);
        assert!((fit.speed(&model).gamma - 1.5).abs() < 0.01);
    }

    #[test]
    fn what_is_no_time_is_not_believed() {
        let (mut fit, mut model) = new();
        let terms = predicted(&fit.speed(&model), 4096.0, 4096.0, 0.0);
        for observed in [f64::NAN, f64::INFINITY, 0.0, -1.0] {
            fit.observe(&mut model, 4096.0, &terms, observed);
            LinkFit::default().observe(&Way::default(), &terms, observed);
        }
        assert_eq!(fit.speed(&model), Speed::default());
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
