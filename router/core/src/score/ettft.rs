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
    /// Whether blocks are computed elsewhere and come over the network.
    pub is_transferred: bool,
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
    /// Images of the request that it does not have.
    pub images_missing: u32,
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
    /// Bytes loaded from L2, L3, L4.
    pub loaded_bytes: [f64; 3],
    /// Tokens that are computed before ours.
    pub queued_tokens: f64,
    /// Waiting for those.
    pub queue_seconds: f64,
    /// Loading.
    pub load_seconds: f64,
    /// Computing.
    pub prefill_seconds: f64,
    /// Moving blocks from another worker.
    pub transfer_seconds: f64,
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

impl Terms {
    /// The terms of a target that takes the prompt, or all of a request.
    #[must_use]
    pub fn of(request: &Request, target: &Target<'_>) -> Self {
        let pricing = pricing(request, target);
        let credit = f64::from(target.held.device_credit);
        let sure = Pricing::segments(&pricing, &target.held);
        let sure_load = pricing.load_seconds(&sure);
        let sure_prefill = pricing.prefill_seconds(&sure);
        let sure_seconds = pricing.combined(sure_load, sure_prefill);
        if credit >= 1.0 || target.held.device_blocks == 0 {
            return Self::from(&sure, [sure_load, sure_prefill, sure_seconds], request, target);
        }
        // Half a doubt: half the time the device has nothing, and all has to come from elsewhere.
        let without = pricing.segments(&Held { device_blocks: 0, ..target.held });
        let load = pricing.load_seconds(&without);
        let prefill = pricing.prefill_seconds(&without);
        let seconds = pricing.combined(load, prefill);
        let blend = |sure: f64, without: f64| credit * sure + (1.0 - credit) * without;
        let seconds =
            [blend(sure_load, load), blend(sure_prefill, prefill), blend(sure_seconds, seconds)];
        Self::from(&sure.blended(&without, credit), seconds, request, target)
    }

    /// The terms of a target that only answers, after another one has computed the prompt: what counts is moving the
    /// blocks there, and what it has to do. What it has counts only where it need not be moved.
    #[must_use]
    pub fn of_decode(request: &Request, target: &Target<'_>) -> Self {
        let held = Held { device_blocks: 0, device_credit: 1.0, runs: &[] };
        let is_skipped = !request.is_transferred;
        let target = Target { held: if is_skipped { target.held } else { held }, ..*target };
        let mut terms = Self::of(request, &target);
        let ettft = terms.queue_seconds + terms.transfer_seconds;
        if request.is_transferred {
            terms.prefill_seconds = 0.0;
            terms.ettft_seconds = ettft;
            terms.score = terms.gamma * ettft + terms.crowd_seconds - terms.session_seconds;
        }
        terms
    }

    fn from(
        segments: &Segments,
        [load, prefill, seconds]: [f64; 3],
        request: &Request,
        target: &Target<'_>,
    ) -> Self {
        let Target { speed, way, .. } = target;
        let queue_seconds = target.load.queue_seconds(speed);
        let per_token = way.and_then(|way| Some((way.network, way.bytes_per_token?)));
        let moved = per_token.filter(|_| request.is_transferred);
        let transfer_seconds =
            moved.map_or(0.0, |(network, bytes)| network.seconds(bytes * request.prompt_tokens));
        let images = f64::from(target.images_missing) * IMAGE_BLOCKS * f64::from(target.block_size);
        let ettft_seconds = queue_seconds + seconds + transfer_seconds + images * speed.alpha;
        let bonus = SESSION_BONUS_SECONDS_MAX.min(SESSION_BONUS_SHARE * ettft_seconds);
        let session_seconds = if target.is_last_of_session { bonus } else { 0.0 };
        let crowd_seconds = target.load.crowd_seconds();
        let [l2, l3, l4] = segments.tiers;
        Self {
            device_tokens: segments.device_tokens,
            l2_tokens: l2.tokens,
            l3_tokens: l3.tokens,
            l4_tokens: l4.tokens,
            uncached_tokens: segments.uncached_tokens,
            loaded_bytes: [l2.bytes, l3.bytes, l4.bytes],
            queued_tokens: target.load.queued_tokens,
            queue_seconds,
            load_seconds: load,
            prefill_seconds: prefill,
            transfer_seconds,
            ettft_seconds,
            gamma: speed.gamma,
            crowd_seconds,
            session_seconds,
            is_prefetch_worth: l3.tokens > 0.0 && queue_seconds > PREFETCH_QUEUE_SECONDS,
            score: speed.gamma * ettft_seconds + crowd_seconds - session_seconds,
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
