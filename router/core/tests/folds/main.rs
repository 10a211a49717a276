//! Folds of events against oracles: what an engine said, what a daemon holds, and what becomes of lost messages.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

mod engine;
mod host;
mod identity;
mod parts;
mod recovery;
mod spelling;

use proptest::prelude::ProptestConfig;

/// So many cases, and no file beside the source: a case that failed belongs into a test of its own.
fn cases(count: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(count) }
}
