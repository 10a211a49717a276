//! The expected time to the first token of a request on a target, term by term.

use serde::Serialize;

use crate::index::query::Held;

use super::facts::{Load, Speed, Way};
use super::segments::{PREFETCH_QUEUE_SECONDS, Pricing, Segments};

/// What a score needs to know of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Request {
    /// Tokens of the prompt; 0 if they are not known.
    pub prompt_tokens: f64,
    /// Images in it.
    pub images: u32,
}

/// What a score needs to know of a target.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// Which part of the prompt it has.
    pub held: Held<'a>,
    /// Tokens of its blocks.
    pub block_size: u32,
    /// The way from its host's tiers; nothing if it is not known which host that is.
    pub way: Option<&'a Way>,
    /// How fast it computes.
    pub speed: Speed,
    /// What it has to do.
    pub load: Load,
    /// Images of the request that it has seen.
    pub images_held: u32,
    /// Whether the session's last request went there and that counts.
    pub is_last_of_session: bool,
}

/// An image stands for so many blocks.
pub const IMAGE_BLOCKS: f64 = 48.0;
const SESSION_BONUS_SECONDS_MAX: f64 = 0.050;
const SESSION_BONUS_SHARE: f64 = 0.10;

/// All terms of one target's score. Seconds and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Terms {
    /// Tokens on the device.
    pub device_tokens: f64,
    /// Tokens loaded from host memory.
    pub l2_tokens: f64,
    /// Tokens loaded from disk.
    pub l3_tokens: f64,
    /// Tokens loaded from a pool.
    pub l4_tokens: f64,
    /// Tokens computed.
    pub uncached_tokens: f64,
    /// What computing those and images amounts to, as tokens at the beginning of a prompt.
    pub work_tokens: f64,
    /// Bytes loaded from L2, L3, L4.
    pub loaded_bytes: [f64; 3],
    /// What is computed before ours, in the same measure.
    pub queued_tokens: f64,
    /// Waiting for those.
    pub queue_seconds: f64,
    /// Loading.
    pub load_seconds: f64,
    /// Computing.
    pub prefill_seconds: f64,
    /// Moving blocks from another worker.
    pub transfer_seconds: f64,
    /// Computing images that it has not seen.
    pub images_seconds: f64,
    /// The sum, as far as terms don't overlap.
    pub ettft_seconds: f64,
    /// What observed times are of predicted ones.
    pub gamma: f64,
    /// For full memory and many answers.
    pub crowd_seconds: f64,
    /// For being where the session was.
    pub session_seconds: f64,
    /// Whether the disk is worth a hint to read ahead.
    pub is_prefetch_worth: bool,
    /// What is compared: the least wins.
    pub score: f64,
}

/// What becomes of a prompt on a target: where its tokens come from, and what that takes.
struct Plan {
    segments: Segments,
    load: f64,
    prefill: f64,
    combined: f64,
    transfer: f64,
}

impl Terms {
    /// The terms of a target that takes the prompt, or all of a request.
    #[must_use]
    pub fn of(request: &Request, target: &Target<'_>) -> Self {
        let pricing = pricing(request, target);
        let sure = Plan::of(&pricing, &target.held);
        let credit = f64::from(target.held.device_credit);
        let plan = if credit >= 1.0 || target.held.device_blocks == 0 {
            sure
        } else {
            // As often as it is doubted the device has nothing, and all has to come from elsewhere.
            let without = Plan::of(&pricing, &Held { device_blocks: 0, ..target.held });
            sure.blended(&without, credit)
        };
        Self::from(&plan, request, target)
    }

    /// The terms of a target that only answers, after another one has computed the prompt: moving the blocks there, and
    /// what it has to do. What it has of the prompt does not count. Where nothing is moved, [`Terms::of`] holds.
    #[must_use]
    pub fn of_decode(request: &Request, target: &Target<'_>) -> Self {
        let bytes_per_token = target.way.and_then(|way| way.bytes_per_token);
        let moved = target.way.zip(bytes_per_token);
        let transfer =
            moved.map_or(0.0, |(way, bytes)| way.network.seconds(bytes * request.prompt_tokens));
        let segments = Segments { uncached_tokens: 0.0, ..Segments::none(0.0) };
        let plan = Plan { segments, load: 0.0, prefill: 0.0, combined: 0.0, transfer };
        Self::from(&plan, request, target)
    }

    fn from(plan: &Plan, request: &Request, target: &Target<'_>) -> Self {
        let Target { speed, block_size, .. } = target;
        let queue_seconds = target.load.queue_seconds(speed);
        let images = f64::from(request.images.saturating_sub(target.images_held));
        let images_seconds = images * IMAGE_BLOCKS * f64::from(*block_size) * speed.alpha;
        let ettft_seconds = queue_seconds + plan.combined + plan.transfer + images_seconds;
        let bonus = SESSION_BONUS_SECONDS_MAX.min(SESSION_BONUS_SHARE * ettft_seconds);
        let session_seconds = if target.is_last_of_session { bonus } else { 0.0 };
        let crowd_seconds = target.load.crowd_seconds();
        let [l2, l3, l4] = plan.segments.tiers;
        Self {
            device_tokens: plan.segments.device_tokens,
            l2_tokens: l2.tokens,
            l3_tokens: l3.tokens,
            l4_tokens: l4.tokens,
            uncached_tokens: plan.segments.uncached_tokens,
            work_tokens: (plan.prefill + images_seconds) / speed.alpha,
            loaded_bytes: [l2.bytes, l3.bytes, l4.bytes],
            queued_tokens: target.load.queued_tokens,
            queue_seconds,
            load_seconds: plan.load,
            prefill_seconds: plan.prefill,
            transfer_seconds: plan.transfer,
            images_seconds,
            ettft_seconds,
            gamma: speed.gamma,
            crowd_seconds,
            session_seconds,
            is_prefetch_worth: l3.tokens > 0.0 && queue_seconds > PREFETCH_QUEUE_SECONDS,
            score: speed.gamma * ettft_seconds + crowd_seconds - session_seconds,
        }
    }
}

impl Plan {
    fn of(pricing: &Pricing<'_>, held: &Held<'_>) -> Self {
        let segments = pricing.segments(held);
        let (load, prefill) = (pricing.load_seconds(&segments), pricing.prefill_seconds(&segments));
        let combined = pricing.combined(load, prefill);
        Self { segments, load, prefill, combined, transfer: 0.0 }
    }

    /// This in so much of all cases, `other` in the rest.
    fn blended(&self, other: &Self, share: f64) -> Self {
        let blend = |left: f64, right: f64| share * left + (1.0 - share) * right;
        Self {
            segments: self.segments.blended(&other.segments, share),
            load: blend(self.load, other.load),
            prefill: blend(self.prefill, other.prefill),
            combined: blend(self.combined, other.combined),
            transfer: blend(self.transfer, other.transfer),
        }
    }
}

fn pricing<'a>(request: &Request, target: &'a Target<'_>) -> Pricing<'a> {
    Pricing {
        prompt: request.prompt_tokens,
        block_size: f64::from(target.block_size),
        speed: &target.speed,
        way: target.way,
        queue_seconds: target.load.queue_seconds(&target.speed),
    }
}
