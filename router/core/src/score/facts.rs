//! Speeds, links and load: what a score is made of besides residency.

use kvd_proto::events::{CacheTier, LoadPolicy, Registration, TierFigures};

/// How fast a worker computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// Seconds for a token.
    pub alpha: f64,
    /// Seconds for a token and each token before it: attention.
    pub beta: f64,
    /// What observed times are of predicted ones, 0.5 to 2.
    pub gamma: f64,
}

impl Speed {
    /// A worker of which nothing is known but how many tokens a second it may compute.
    #[must_use]
    pub const fn of_tokens_per_second(tokens: f64) -> Self {
        Self { alpha: 1.0 / tokens.max(1.0), beta: 0.0, gamma: 1.0 }
    }

    /// Seconds to compute the last `uncached` of `prompt` tokens.
    #[must_use]
    pub fn prefill_seconds(&self, prompt: f64, uncached: f64) -> f64 {
        uncached * (self.alpha + self.beta * (prompt - uncached / 2.0))
    }
}

/// A guess, until answers tell.
impl Default for Speed {
    fn default() -> Self {
        Self::of_tokens_per_second(8000.0)
    }
}

/// One way that bytes take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Bytes a second, with nobody else on it.
    pub bytes_per_second: f64,
    /// Seconds until the first byte.
    pub latency: f64,
    /// Bytes that are to move before ours.
    pub queued_bytes: f64,
}

impl Link {
    /// An idle link of so many gigabytes a second.
    #[must_use]
    pub const fn of(gigabytes_per_second: f64, latency_milliseconds: f64) -> Self {
        Self {
            bytes_per_second: gigabytes_per_second * 1e9,
            latency: latency_milliseconds / 1e3,
            queued_bytes: 0.0,
        }
    }

    /// Seconds until so many bytes have moved.
    #[must_use]
    pub fn seconds(&self, bytes: f64) -> f64 {
        if bytes > 0.0 { (self.queued_bytes + bytes) / self.bytes_per_second } else { 0.0 }
    }
}

/// The tiers below a device, nearest first: indices into [`Way::tiers`].
pub const LOWER_TIERS: [CacheTier; 3] = [CacheTier::L2, CacheTier::L3, CacheTier::L4];

/// The place of a tier among [`LOWER_TIERS`]; nothing for the device.
#[must_use]
pub const fn lower_place(tier: CacheTier) -> Option<usize> {
    match tier {
        CacheTier::Device => None,
        CacheTier::L2 => Some(0),
        CacheTier::L3 => Some(1),
        CacheTier::L4 => Some(2),
    }
}

/// How blocks come from a host's tiers to its workers.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own that a daemon tells")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// Bytes of one token, over all ranks; nothing if neither the daemon nor the configuration says.
    pub bytes_per_token: Option<f64>,
    /// Out of L2, L3 and L4.
    pub tiers: [Link; 3],
    /// From the host's memory to devices.
    pub device: Link,
    /// Between workers, for blocks that one computes for another.
    pub network: Link,
    /// Whether a load moves through its tiers at once rather than one after the other.
    pub is_pipelined: bool,
    /// Whether engines compute while they load.
    pub overlaps: bool,
    /// Whether engines load only what is cheaper to load than to compute.
    pub is_cost_gated: bool,
    /// Whether the daemon takes hints to prefetch, so that reads from disk run while a request waits.
    pub prefetches: bool,
}

impl Default for Way {
    fn default() -> Self {
        Self {
            bytes_per_token: None,
            tiers: [Link::of(25.0, 0.2), Link::of(6.0, 0.5), Link::of(3.0, 2.0)],
            device: Link::of(25.0, 0.0),
            network: Link::of(25.0, 0.0),
            is_pipelined: false,
            overlaps: false,
            is_cost_gated: false,
            prefetches: false,
        }
    }
}

impl Way {
    /// This way, as far as a daemon says another one.
    #[must_use]
    pub fn told_by(mut self, registration: &Registration) -> Self {
        self.is_pipelined = registration.pipelined;
        self.overlaps = registration.load_overlap;
        self.is_cost_gated = registration.load_policy == LoadPolicy::CostGated;
        self.prefetches = registration.prefetch_url.is_some();
        let told = registration.bytes_per_token.filter(|bytes| *bytes > 0);
        self.bytes_per_token = told.map(|bytes| bytes as f64).or(self.bytes_per_token);
        self
    }

    /// This way with what a daemon measured; figures that make no sense are left out.
    #[must_use]
    pub fn measured(mut self, figures: &[TierFigures]) -> Self {
        for figures in figures {
            let place = lower_place(figures.tier).and_then(|place| self.tiers.get_mut(place));
            let Some(link) = place else { continue };
            let is_sound = |value: &f64| value.is_finite() && *value > 0.0;
            if let Some(speed) = figures.read_bw.filter(is_sound) {
                link.bytes_per_second = speed;
            }
            if let Some(latency) = figures.read_lat_us.filter(is_sound) {
                link.latency = latency / 1e6;
            }
            link.queued_bytes = figures.queue_bytes as f64;
        }
        self
    }
}

/// What a target has to do besides.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// What has to be computed before ours, as that many tokens at the beginning of a prompt.
    pub queued_tokens: f64,
    /// Requests that are being answered.
    pub decodes: f64,
    /// Most requests that it answers at once; 0 if nobody said.
    pub decodes_max: f64,
    /// Share of its memory for blocks that is in use, 0 to 1.
    pub memory_used: f64,
}

impl Load {
    /// Seconds before ours is begun: decoding slows the queue down.
    #[must_use]
    pub fn queue_seconds(&self, speed: &Speed) -> f64 {
        self.queued_tokens * self.token_seconds(speed)
    }

    /// Tokens that are computed in so many seconds.
    #[must_use]
    pub fn tokens_in(&self, seconds: f64, speed: &Speed) -> f64 {
        seconds / self.token_seconds(speed)
    }

    fn token_seconds(&self, speed: &Speed) -> f64 {
        let is_known = self.decodes_max > 0.0;
        let share = if is_known { (self.decodes / self.decodes_max).min(1.0) } else { 0.0 };
        speed.alpha * (1.0 + share)
    }

    /// Seconds that a full memory and many answers are held to cost.
    #[must_use]
    pub fn crowd_seconds(&self) -> f64 {
        0.5 * (self.memory_used - 0.85).max(0.0) / 0.15 + 0.001 * self.decodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_told_stays_as_it_was() {
        let way = Way { bytes_per_token: Some(7.0), ..Way::default() };
        assert_eq!(way.told_by(&Registration::default()).bytes_per_token, Some(7.0));
        let told = Registration {
            bytes_per_token: Some(9),
            load_policy: LoadPolicy::CostGated,
            pipelined: true,
            ..Registration::default()
        };
        let way = way.told_by(&told);
        assert_eq!(way.bytes_per_token, Some(9.0));
        assert!(way.is_cost_gated && way.is_pipelined && !way.overlaps && !way.prefetches);
    }

    #[test]
    fn figures_that_make_no_sense_are_left_out() {
        let of = |read_bw, read_lat_us| TierFigures {
            tier: CacheTier::L3,
            bytes: 0,
            used: 0,
            read_bw,
            read_lat_us,
            queue_bytes: 5,
        };
        let bad = Way::default().measured(&[of(Some(f64::NAN), Some(-1.0)), of(Some(0.0), None)]);
        let [_, link, _] = bad.tiers;
        assert_eq!(link, Link { queued_bytes: 5.0, ..Link::of(6.0, 0.5) });
        let [_, link, _] = Way::default().measured(&[of(Some(1e9), Some(100.0))]).tiers;
        assert_eq!(link, Link { queued_bytes: 5.0, ..Link::of(1.0, 0.1) });
    }

    #[test]
    fn a_crowd_costs_from_85_percent_on() {
        let load = |memory_used| Load { memory_used, ..Load::default() }.crowd_seconds();
        assert!(load(0.85) < 1e-12 && (load(1.0) - 0.5).abs() < 1e-9);
    }
}
