//! The suite `router`: what the router's decisions must reach, without a network, and what it costs on the way.
//!
//! | file | bar |
//! |---|---|
//! | [`pick`] | who of 64 targets holds what of 2 048 blocks, alone and while events come in |
//! | [`choice`] | which of them has the shortest expected time to the first token: a whole pick |
//! | [`ingest`] | events a second on one thread, from their bytes to the index |
//! | [`relay::first_token`] | what the router adds to the time to the first token |
//! | [`relay::streams`] | many streams of events at once, beside nginx |
//!
//! [`hosts`] sets the stage for the first three.

pub mod choice;
pub mod hosts;
pub mod ingest;
pub mod pick;
pub mod relay;

use crate::report::Report;
use crate::suite::{self, Effort, Part};

const PARTS: &[(&str, Part)] = &[
    ("picks", pick::run),
    ("choices", choice::run),
    ("events", ingest::run),
    ("first token", relay::first_token::run),
    ("streams", relay::streams::run),
];

/// Runs the parts whose name contains `only`.
///
/// # Errors
/// The first part that cannot be measured.
pub fn run(effort: Effort, only: &str) -> anyhow::Result<Report> {
    suite::run(PARTS, effort, only)
}
