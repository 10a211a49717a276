//! The shared trace: conversations of people, at the times at which they came.
//!
//! Larger fleets get several copies of it, each of other people: other blocks, moved in time.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::super::draw::{Draw, Purpose};
use super::super::request::{Chain, Request};
use super::Workload;

#[derive(Debug, Deserialize)]
struct Line {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    hash_ids: Vec<u64>,
}

/// How much of the trace, how often, how fast.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Requests from the beginning of the trace.
    pub requests: usize,
    /// Copies of them.
    pub copies: u32,
    /// Times as fast as they came.
    pub speed: f64,
}

/// The trace.
#[derive(Debug)]
pub struct Conversations {
    requests: Vec<Request>,
    counted: [f64; 2],
}

/// The first fifth fills the caches.
const WARM_SHARE: f64 = 0.2;

impl Conversations {
    /// Reads a trace.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn load(path: &Path, shape: Shape, seed: u64) -> anyhow::Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        let mut lines = Vec::new();
        for line in BufReader::new(file).lines().take(shape.requests) {
            let line: Line = serde_json::from_str(&line?).context("reading the trace")?;
            lines.push(line);
        }
        let mut draw = Draw::new(seed, Purpose::Workload);
        let mut requests = Vec::new();
        for _ in 0..shape.copies {
            let (salt, shift) = (draw.bits(), draw.between(0.0, 10.0));
            for line in &lines {
                let contents = line.hash_ids.iter().map(|id| (id + 1).wrapping_mul(salt | 1));
                let chain = Chain::new(contents);
                requests.push(Request {
                    arrival: (line.timestamp / 1e3 + shift) / shape.speed,
                    session: 0,
                    prompt_tokens: line.input_length,
                    output_tokens: line.output_length.max(1),
                    chain,
                });
            }
        }
        requests.sort_by(|left, right| left.arrival.total_cmp(&right.arrival));
        let end = requests.last().map_or(0.0, |last| last.arrival);
        Ok(Self { requests, counted: [WARM_SHARE * end, end] })
    }
}

impl Workload for Conversations {
    fn first(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.requests)
    }

    fn counted(&self) -> [f64; 2] {
        self.counted
    }

    fn after(&mut self, _answered: &Request, _now: f64) -> Option<Request> {
        None
    }
}
