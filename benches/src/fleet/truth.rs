//! What the machines really are. The router believes in other numbers.

use super::draw::Draw;

/// A model of 32 B parameters in bf16, one GPU a worker.
pub const BYTES_PER_TOKEN: f64 = 262_144.0;
/// What the router believes of every worker at first.
pub const BELIEVED_TOKENS_PER_SECOND: f64 = 7540.0;
/// Gigabytes a second that the router believes in: from host memory to devices, and from disk.
pub const BELIEVED_GIGABYTES: (f64, f64) = (50.0, 7.0);
/// How late events come.
pub const EVENTS_LATE_SECONDS: f64 = 0.5;
/// How far from what is believed workers are, and links.
const WORKER_SHARE: f64 = 0.3;
const LINK_FACTOR: f64 = 3.0;

/// Blocks of a device, of a host's memory and of its disks, for each worker: 40 GB, 75 GB, 1 TB.
pub const DEVICE_BLOCKS: usize = 298;
/// See [`DEVICE_BLOCKS`].
pub const L2_BLOCKS_PER_WORKER: usize = 560;
/// See [`DEVICE_BLOCKS`].
pub const L3_BLOCKS_PER_WORKER: usize = 7450;

/// Most answers that a worker writes at once.
pub const DECODES_MAX: u32 = 64;
/// Seconds of a token: alone, and for each answer beside it.
const TOKEN_SECONDS: f64 = 0.011;
const TOKEN_SECONDS_BESIDE: f64 = 0.000_15;
/// How much slower answers are written while a prompt is computed, and prompts computed while all answers are written.
const DECODE_BESIDE_PREFILL: f64 = 0.4;
const PREFILL_BESIDE_DECODES: f64 = 0.3;

/// A worker's real speed.
#[derive(Clone, Copy, Debug)]
pub struct WorkerTruth {
    alpha: f64,
    beta: f64,
}

impl WorkerTruth {
    /// Draws one.
    pub fn draw(draw: &mut Draw) -> Self {
        let alpha =
            draw.between(1.0 - WORKER_SHARE, 1.0 + WORKER_SHARE) / BELIEVED_TOKENS_PER_SECOND;
        // Attention doubles the price of a token at 60 000 tokens before it.
        Self { alpha, beta: alpha / 60_000.0 }
    }

    /// Seconds to compute the last `uncached` tokens of a prompt, beside so many answers.
    #[must_use]
    pub fn prefill_seconds(&self, prompt: f64, uncached: f64, decodes: u32) -> f64 {
        let share = f64::from(decodes.min(DECODES_MAX)) / f64::from(DECODES_MAX);
        let alone = uncached * (self.alpha + self.beta * (prompt - uncached / 2.0));
        alone * (1.0 + PREFILL_BESIDE_DECODES * share)
    }

    /// Tokens that each of so many answers gets in a second.
    #[must_use]
    pub fn tokens_per_second(decodes: u32, is_beside_prefill: bool) -> f64 {
        let alone = 1.0 / (TOKEN_SECONDS + TOKEN_SECONDS_BESIDE * f64::from(decodes));
        if is_beside_prefill { alone * DECODE_BESIDE_PREFILL } else { alone }
    }
}

/// The real speeds of a host's links, in bytes a second.
#[derive(Clone, Copy, Debug)]
pub struct HostTruth {
    /// From memory to devices.
    pub memory: f64,
    /// From disk.
    pub disk: f64,
}

impl HostTruth {
    /// Draws one.
    pub fn draw(draw: &mut Draw) -> Self {
        let (memory, disk) = BELIEVED_GIGABYTES;
        Self {
            memory: memory * 1e9 * draw.factor(LINK_FACTOR),
            disk: disk * 1e9 * draw.factor(LINK_FACTOR),
        }
    }
}
