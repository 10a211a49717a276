//! What an engine tells the parent about one request: a line of JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What became of one request.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Outcome {
    /// Blocks of the prompt.
    pub blocks: u64,
    /// How many of them, from the beginning, were there.
    pub hits: u64,
    /// Tokens of the prompt.
    pub tokens: u64,
    /// Tokens that the hits cover.
    pub hit_tokens: u64,
    /// Bytes that were checked where they lie.
    pub in_place_bytes: u64,
    /// Bytes that were copied out and checked then.
    pub copied_bytes: u64,
    /// Blocks that hold other bytes than they should, described.
    pub wrong: Vec<String>,
    /// Blocks that were reported present and then could not be fetched.
    pub broken_promises: u64,
    /// Blocks stored.
    pub stored: u64,
    /// Bytes stored.
    pub stored_bytes: u64,
    /// Blocks that the daemon declined to store, by its reason.
    pub declined: BTreeMap<String, u64>,
    /// Time of the fetch, all blocks of the prompt at once, in microseconds.
    pub fetch_us: f64,
    /// Times of the commits, in microseconds.
    pub commits_us: Vec<f64>,
    /// What kept the request from being answered, if anything did.
    pub trouble: Option<String>,
}
