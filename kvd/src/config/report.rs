//! What is in force and who said so, for `check-config` and for the log.

use std::fmt;
use std::path::Path;

use super::option::Opt;
use super::problem::Source;
use super::{Limits, Memory};

/// One option in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    /// Option name without dashes.
    name: &'static str,
    /// The text in force; empty: not set.
    text: String,
    /// Who said it.
    source: Source,
}

impl Row {
    pub(super) fn new(option: &'static Opt, text: &str, source: Source) -> Self {
        Self { name: option.name, text: text.to_owned(), source }
    }
}

/// Who said what, what follows from it, and remarks that do not prevent a start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// All active options, and those of the lower tiers that somebody set.
    pub(super) rows: Vec<Row>,
    /// Sizes and paths that were worked out from the options, in words.
    pub(super) derived: Vec<String>,
    /// To be logged once as warnings.
    pub(super) remarks: Vec<String>,
}

impl Report {
    /// What to log once as warnings at start.
    pub fn remarks(&self) -> impl Iterator<Item = &str> {
        self.remarks.iter().map(String::as_str)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name_width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
        let text_width = self.rows.iter().map(|row| row.text.len()).max().unwrap_or(0);
        for row in &self.rows {
            let text = if row.text.is_empty() { "-" } else { &row.text };
            writeln!(out, "{:name_width$}  {text:text_width$}  {}", row.name, row.source)?;
        }
        writeln!(out)?;
        for line in &self.derived {
            writeln!(out, "{line}")?;
        }
        for remark in &self.remarks {
            writeln!(out, "warning: {remark}")?;
        }
        Ok(())
    }
}

/// What follows from the options: the arena, the caps that depend on it, the admin socket.
pub(super) fn derived(memory: &Memory, limits: &Limits, admin_socket: &Path) -> Vec<String> {
    let sharing = if memory.shared { "shared with clients" } else { "private" };
    vec![
        format!("arena: {} bytes, {sharing}", memory.arena_bytes),
        format!("payload: at most {} bytes", memory.budget_bytes),
        format!("one session: at most {} arena bytes in flight", limits.in_flight_bytes_max),
        format!("admin socket: {}", admin_socket.display()),
    ]
}
