//! The trace: one JSON object a line, as published with Mooncake.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

/// Tokens of the prompt that one block covers.
pub const TOKENS_PER_BLOCK: u64 = 512;

/// One request, as far as a cache is concerned.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Request {
    /// Tokens of the prompt.
    pub input_length: u64,
    /// A number for each block of the prompt. Numbers are chained by prefix: the same number means the same block
    /// after the same beginning.
    pub hash_ids: Vec<u64>,
}

impl Request {
    /// Tokens that the first `blocks` blocks cover; the last block of a prompt is seldom full.
    #[must_use]
    pub fn tokens_of(&self, blocks: usize) -> u64 {
        self.input_length.min(TOKENS_PER_BLOCK.saturating_mul(blocks as u64))
    }
}

/// Reads a whole trace.
///
/// # Errors
/// If the file cannot be read, or a line is not a request.
pub fn load(path: &Path) -> anyhow::Result<Vec<Request>> {
    let file = File::open(path).with_context(|| format!("opening the trace {}", path.display()))?;
    let mut requests = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let line = line.with_context(|| format!("reading {}", path.display()))?;
        let request = serde_json::from_str(&line)
            .with_context(|| format!("{}:{}", path.display(), index + 1))?;
        requests.push(request);
    }
    Ok(requests)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_request_and_other_fields_do_not_matter() {
        let line =
            r#"{"timestamp": 3, "input_length": 1300, "output_length": 5, "hash_ids": [0, 7, 9]}"#;
        let request: Request = serde_json::from_str(line).unwrap();
        assert_eq!(request.hash_ids, [0, 7, 9]);
        assert_eq!([0, 1, 2, 3].map(|blocks| request.tokens_of(blocks)), [0, 512, 1024, 1300]);
    }
}
