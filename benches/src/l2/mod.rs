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

use std::io::Write as _;
use std::time::Instant;

use anyhow::Context as _;

use crate::report::Report;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Less of everything: under 50 s in all on two cores.
    pub quick: bool,
}

impl Effort {
    /// `thorough`, or `quick` if that is asked for.
    #[must_use]
    pub const fn of(self, thorough: usize, quick: usize) -> usize {
        if self.quick { quick } else { thorough }
    }

    /// Interleaved pairs of ours and the floor, of which the median counts.
    #[must_use]
    pub const fn pairs(self) -> usize {
        9
    }
}

/// A part of the suite: measures and reports.
type Part = fn(Effort, &mut Report) -> anyhow::Result<()>;

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
    let mut report = Report::default();
    for (what, part) in PARTS.iter().filter(|(what, _)| what.contains(only)) {
        let begun = Instant::now();
        part(effort, &mut report).with_context(|| format!("measuring {what}"))?;
        // Progress is worth nothing if nobody can see it.
        drop(writeln!(std::io::stderr(), "{what}: {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(report)
}
