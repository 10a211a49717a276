//! Which tokens of a prompt come from where, and how far loading pays.
//!
//! A prompt is cut once: before the cut it is on the device or loaded, behind it computed. An engine that loads all it
//! can has its cut where the first block is that nobody has. One that loads only what pays has it where the price is
//! least. The price of a load, over the chunks of one run, is made of pieces that are bent downwards or straight, so its
//! least value stands at an end of a piece; only those are looked at, not every chunk.

use crate::index::Run;
use crate::index::query::Held;

use super::facts::{LOWER_TIERS, Speed, Way, lower_place};

/// What comes from one tier.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Portion {
    /// Tokens, as far as they are believed to be there.
    pub tokens: f64,
    /// Bytes that move for them: whole chunks.
    pub bytes: f64,
}

/// Where the tokens of a prompt come from.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Segments {
    /// On the device already.
    pub device_tokens: f64,
    /// Loaded from L2, L3 and L4.
    pub tiers: [Portion; LOWER_TIERS.len()],
    /// To be computed, at least 1.
    pub uncached_tokens: f64,
}

impl Segments {
    /// Nothing is there.
    #[must_use]
    pub const fn none(prompt: f64) -> Self {
        let nothing = Portion { tokens: 0.0, bytes: 0.0 };
        Self {
            device_tokens: 0.0,
            tiers: [nothing; LOWER_TIERS.len()],
            uncached_tokens: prompt.max(1.0),
        }
    }

    fn with(mut self, prompt: f64, place: usize, more: Portion) -> Self {
        if let Some(portion) = self.tiers.get_mut(place) {
            portion.tokens += more.tokens;
            portion.bytes += more.bytes;
        }
        let loaded: f64 = self.tiers.iter().map(|portion| portion.tokens).sum();
        self.uncached_tokens = (prompt - self.device_tokens - loaded).max(1.0);
        self
    }

    /// This in so much of all cases, `other` in the rest.
    #[must_use]
    pub fn blended(&self, other: &Self, share: f64) -> Self {
        let blend = |left: f64, right: f64| share * left + (1.0 - share) * right;
        let mut tiers = self.tiers;
        for (portion, other) in tiers.iter_mut().zip(&other.tiers) {
            portion.tokens = blend(portion.tokens, other.tokens);
            portion.bytes = blend(portion.bytes, other.bytes);
        }
        Self {
            device_tokens: blend(self.device_tokens, other.device_tokens),
            tiers,
            uncached_tokens: blend(self.uncached_tokens, other.uncached_tokens),
        }
    }
}

/// Loads and computes a prompt on one target.
#[derive(Clone, Copy, Debug)]
pub struct Pricing<'a> {
    /// Tokens of the prompt.
    pub prompt: f64,
    /// Tokens of a block.
    pub block_size: f64,
    /// The worker's speed.
    pub speed: &'a Speed,
    /// The way from its host's tiers; nothing if there are none.
    pub way: Option<&'a Way>,
    /// Seconds before the request is begun, in which the disk may already be read.
    pub queue_seconds: f64,
}

/// Queues this short are not worth a hint to prefetch.
pub const PREFETCH_QUEUE_SECONDS: f64 = 0.020;
/// What loading costs an engine that computes meanwhile.
const OVERLAP_COST: f64 = 0.02;

/// Seconds on each stage of a load: out of L2, L3, L4, to the device.
type Stages = [f64; 4];

impl Pricing<'_> {
    /// The segments of what a target has, if the first blocks are on the device as it says.
    #[must_use]
    pub fn segments(&self, held: &Held<'_>) -> Segments {
        let mut device = Segments::none(self.prompt);
        device.device_tokens = self.tokens(held.device_blocks);
        device.uncached_tokens = (self.prompt - device.device_tokens).max(1.0);
        let Some(way) = self.way else {
            return device;
        };
        let (mut whole, mut best) = (device, device);
        let mut least = self.seconds(way, &best);
        for run in held.below().filter(|run| run.start < run.end) {
            let Some(piece) = self.piece(way, &run, &whole) else {
                break;
            };
            if way.is_cost_gated {
                self.cheapest(way, &piece, &mut best, &mut least);
            }
            whole = piece.upto(piece.chunks);
        }
        if way.is_cost_gated { best } else { whole }
    }

    /// Seconds of loading, without what is computed.
    #[must_use]
    pub fn load_seconds(&self, segments: &Segments) -> f64 {
        self.way.map_or(0.0, |way| self.load(way, segments))
    }

    /// Seconds of computing.
    #[must_use]
    pub fn prefill_seconds(&self, segments: &Segments) -> f64 {
        self.speed.prefill_seconds(self.prompt, segments.uncached_tokens)
    }

    /// Seconds of both: one after the other, or at once.
    #[must_use]
    pub fn combined(&self, load: f64, prefill: f64) -> f64 {
        if self.way.is_some_and(|way| way.overlaps) {
            load.max(prefill) + OVERLAP_COST * load
        } else {
            load + prefill
        }
    }

    fn tokens(&self, blocks: u32) -> f64 {
        (f64::from(blocks) * self.block_size).min(self.prompt)
    }

    fn seconds(&self, way: &Way, segments: &Segments) -> f64 {
        self.combined(self.load(way, segments), self.prefill_seconds(segments))
    }

    fn load(&self, way: &Way, segments: &Segments) -> f64 {
        let mut latency = 0.0_f64;
        for (link, portion) in way.tiers.iter().zip(&segments.tiers) {
            if portion.bytes > 0.0 {
                latency = if way.is_pipelined {
                    latency.max(link.latency)
                } else {
                    latency + link.latency
                };
            }
        }
        let [l2, l3, l4, device] = self.stages(way, segments);
        let memory = l2.max(device);
        latency + if way.is_pipelined { memory.max(l3).max(l4) } else { memory + l3 + l4 }
    }

    fn stages(&self, way: &Way, segments: &Segments) -> Stages {
        let [l2, l3, l4] = &way.tiers;
        let [from_l2, from_l3, from_l4] = segments.tiers.map(|portion| portion.bytes);
        let is_hinted = way.prefetches && self.queue_seconds > PREFETCH_QUEUE_SECONDS;
        let ahead = if is_hinted { self.queue_seconds } else { 0.0 };
        [
            l2.seconds(from_l2),
            (l3.seconds(from_l3) - ahead).max(0.0),
            l4.seconds(from_l4),
            way.device.seconds(from_l2 + from_l3 + from_l4),
        ]
    }

    /// A run behind what is loaded already; nothing if nobody knows how many bytes that is.
    fn piece(&self, way: &Way, run: &Run, before: &Segments) -> Option<Piece> {
        let chunk_blocks = run.chunk_blocks.max(1);
        let chunk_tokens = f64::from(chunk_blocks) * self.block_size;
        let of_chunk = (run.chunk_bytes > 0).then_some(run.chunk_bytes as f64);
        let chunk_bytes = way.bytes_per_token.map(|bytes| bytes * chunk_tokens).or(of_chunk)?;
        let first_chunk = run.start / chunk_blocks;
        Some(Piece {
            before: *before,
            prompt: self.prompt,
            place: lower_place(run.tier)?,
            chunks: run.end.div_ceil(chunk_blocks) - first_chunk,
            first_tokens: self.tokens(run.start) - self.tokens(first_chunk * chunk_blocks),
            tokens_max: self.tokens(run.end) - self.tokens(run.start),
            chunk_tokens,
            chunk_bytes,
            credit: f64::from(run.credit),
        })
    }

    /// Tries the cuts of a run that may be the cheapest.
    fn cheapest(&self, way: &Way, piece: &Piece, best: &mut Segments, least: &mut f64) {
        let mut look = |chunks: u32| {
            if (1..=piece.chunks).contains(&chunks) {
                let segments = piece.upto(chunks);
                let seconds = self.seconds(way, &segments);
                // A longer load has to be worth it.
                if seconds < *least {
                    (*best, *least) = (segments, seconds);
                }
            }
        };
        look(1);
        // The last chunk may be a short one.
        look(piece.chunks - 1);
        look(piece.chunks);
        for chunks in self.bends(way, piece) {
            look(chunks);
            look(chunks.saturating_add(1));
        }
        if way.overlaps {
            let chunks = self.balance(way, piece);
            look(chunks.saturating_sub(1));
            look(chunks);
        }
    }

    /// Numbers of chunks at or behind which another stage of the load becomes the slowest: where the lines of two stages
    /// cross, or one leaves zero. Stages that nothing flows through are flat.
    fn bends(&self, way: &Way, piece: &Piece) -> impl Iterator<Item = u32> + use<> {
        let at_most = f64::from(piece.chunks);
        let bytes = piece.chunk_bytes * piece.credit;
        // The line of the growing tier, not cut off at zero.
        let ahead =
            if piece.place == 1 && way.prefetches && self.queue_seconds > PREFETCH_QUEUE_SECONDS {
                self.queue_seconds
            } else {
                0.0
            };
        let flat = self.stages(way, &piece.before);
        let total: f64 = piece.before.tiers.iter().map(|portion| portion.bytes).sum();
        let mut lines = flat.map(|seconds| (seconds, 0.0));
        if let (Some(line), Some(link), Some(portion)) = (
            lines.get_mut(piece.place),
            way.tiers.get(piece.place),
            piece.before.tiers.get(piece.place),
        ) {
            let speed = link.bytes_per_second;
            *line = ((link.queued_bytes + portion.bytes) / speed - ahead, bytes / speed);
        }
        let [l2, l3, l4, device] = &mut lines;
        *device = (
            (way.device.queued_bytes + total) / way.device.bytes_per_second,
            bytes / way.device.bytes_per_second,
        );
        let (l2, l3, l4, device) = (*l2, *l3, *l4, *device);
        let zero = (0.0, 0.0);
        let pairs =
            [(l2, l3), (l2, l4), (l3, l4), (l2, device), (l3, device), (l4, device), (l3, zero)];
        pairs.into_iter().filter_map(move |((left, left_slope), (right, right_slope))| {
            let crossing = ((right - left) / (left_slope - right_slope)).floor();
            let is_inside = crossing.is_finite() && (0.0..=at_most).contains(&crossing);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "looked at"
            )]
            is_inside.then_some(crossing as u32)
        })
    }

    /// The fewest chunks with which loading takes as long as computing the rest.
    fn balance(&self, way: &Way, piece: &Piece) -> u32 {
        let (mut low, mut high) = (1, piece.chunks);
        while low < high {
            let middle = u32::midpoint(low, high);
            let segments = piece.upto(middle);
            if self.load(way, &segments) < self.prefill_seconds(&segments) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// A run, by the number of its chunks that are loaded.
#[derive(Debug)]
struct Piece {
    before: Segments,
    prompt: f64,
    /// Among the lower tiers.
    place: usize,
    chunks: u32,
    /// Tokens of the first chunk that are there already.
    first_tokens: f64,
    tokens_max: f64,
    chunk_tokens: f64,
    chunk_bytes: f64,
    credit: f64,
}

impl Piece {
    fn upto(&self, chunks: u32) -> Segments {
        let chunks = f64::from(chunks);
        let tokens = (chunks * self.chunk_tokens - self.first_tokens).min(self.tokens_max);
        let more = Portion {
            tokens: tokens * self.credit,
            bytes: chunks * self.chunk_bytes * self.credit,
        };
        self.before.with(self.prompt, self.place, more)
    }
}
