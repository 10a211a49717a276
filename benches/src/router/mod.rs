//! The suite `router`: what the router's decisions must reach, without a network.
//!
//! | file | bar |
//! |---|---|
//! | [`pick`] | who of 64 targets holds what of 2 048 blocks, alone and while events come in |
//! | [`ingest`] | events a second on one thread, from their bytes to the index |
//!
//! [`hosts`] sets the stage.

pub mod hosts;
pub mod ingest;
pub mod pick;

use crate::report::Report;
use crate::suite::{self, Effort, Part};

const PARTS: &[(&str, Part)] = &[("picks", pick::run), ("events", ingest::run)];

/// Runs the parts whose name contains `only`.
///
/// # Errors
/// The first part that cannot be measured.
pub fn run(effort: Effort, only: &str) -> anyhow::Result<Report> {
    suite::run(PARTS, effort, only)
}
