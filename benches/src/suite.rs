//! What all suites share: how much is measured, and running one part after the other.

use std::io::Write as _;
use std::time::Instant;

use anyhow::Context as _;

use crate::report::Report;

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Less of everything: on two cores under a minute for `l2`, under three for `l3`.
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

/// A part of a suite: measures and reports.
pub type Part = fn(Effort, &mut Report) -> anyhow::Result<()>;

/// Runs every part whose name contains `only`.
///
/// # Errors
/// The first part that cannot be measured. A bar that is short is not an error.
pub fn run(parts: &[(&str, Part)], effort: Effort, only: &str) -> anyhow::Result<Report> {
    let mut report = Report::default();
    for (what, part) in parts.iter().filter(|(what, _)| what.contains(only)) {
        let begun = Instant::now();
        part(effort, &mut report).with_context(|| format!("measuring {what}"))?;
        // Progress is worth nothing if nobody can see it.
        drop(writeln!(std::io::stderr(), "{what}: {:.1} s", begun.elapsed().as_secs_f64()));
    }
    Ok(report)
}
