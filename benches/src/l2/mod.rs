//! The suite `l2`: what the arena must reach. One file for each bar.
//!
//! | file | bar |
//! |---|---|
//! | [`get`] | a hit's round trip against a bare ping-pong |
//! | [`batch`] | 64 hits at once against the same |
//! | [`read`] | fetching and copying out cold blocks against the fastest copy |
//! | [`mod@write`] | reserving, copying in and committing against the same |
//! | [`inline`] | values through the socket against a bare transfer |
//! | [`many_clients`] | eight client processes: look-ups a second, and fairness |
//! | [`growth`] | calls at a million rows against ten thousand |
//! | [`memory`] | memory beyond the arena |
//! | [`mixed_sizes`] | waste and refusals with values of very different sizes |
//!
//! [`round_trip`], [`cold`] and [`crowd`] set the stage for more than one of them.

pub mod batch;
pub mod cold;
pub mod crowd;
pub mod get;
pub mod growth;
pub mod inline;
pub mod many_clients;
pub mod memory;
pub mod mixed_sizes;
pub mod read;
pub mod round_trip;
pub mod write;

use crate::report::Report;
use crate::suite::{self, Effort, Part};

const PARTS: &[(&str, Part)] = &[
    ("round trips of one hit", get::run),
    ("round trips of 64 hits", batch::run),
    ("copies of cold blocks", cold::run),
    ("values through the socket", inline::run),
    ("eight client processes", many_clients::run),
    ("ten thousand and a million rows", crowd::run),
    ("mixed sizes", mixed_sizes::run),
];

/// Runs every part whose name contains `only`.
///
/// # Errors
/// The first part that cannot be measured. A bar that is short is not an error.
pub fn run(effort: Effort, only: &str) -> anyhow::Result<Report> {
    suite::run(PARTS, effort, only)
}
