//! The sum of all outcomes, and the table at the end.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use comfy_table::{Table, presets};
use indicatif::{HumanBytes, HumanCount};

use super::outcome::Outcome;
use crate::figures::Figures;
use crate::percentile;

/// So many troubles are told one by one; the others are only counted.
const TOLD_MAX: usize = 10;

/// Everything that a replay found out.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    engines: usize,
    requests: usize,
    answered: u64,
    took: Duration,
    sum: Outcome,
    wrong_blocks: u64,
    fetches_us: Vec<f64>,
    troubles: Vec<String>,
    evictions: Vec<(String, u64)>,
    misses: Vec<(String, u64)>,
}

impl Summary {
    /// The summary of a replay that has not begun.
    #[must_use]
    pub fn new(engines: usize, requests: usize) -> Self {
        Self { engines, requests, ..Self::default() }
    }

    /// Adds one request.
    pub fn add(&mut self, request: usize, outcome: Outcome) {
        let sum = &mut self.sum;
        sum.blocks += outcome.blocks;
        sum.hits += outcome.hits;
        sum.tokens += outcome.tokens;
        sum.hit_tokens += outcome.hit_tokens;
        sum.in_place_bytes += outcome.in_place_bytes;
        sum.copied_bytes += outcome.copied_bytes;
        sum.broken_promises += outcome.broken_promises;
        sum.stored += outcome.stored;
        sum.stored_bytes += outcome.stored_bytes;
        sum.commits_us.extend(outcome.commits_us);
        for (reason, count) in outcome.declined {
            *sum.declined.entry(reason).or_default() += count;
        }
        self.wrong_blocks += outcome.wrong.len() as u64;
        self.fetches_us.push(outcome.fetch_us);
        self.answered += u64::from(outcome.trouble.is_none());
        let told = outcome.wrong.into_iter().chain(outcome.trouble);
        self.troubles.extend(told.map(|trouble| format!("request {request}: {trouble}")));
    }

    /// Adds how long it took and what the daemon counted meanwhile, if it is still there to tell.
    pub fn finish(&mut self, took: Duration, before: &Figures, after: anyhow::Result<Figures>) {
        self.took = took;
        match after {
            Ok(after) => {
                self.evictions = after.since(before, "evictions_", "_total");
                self.misses = after.since(before, "misses_", "_total");
            }
            Err(error) => self.troubles.push(format!("{error:#}")),
        }
    }

    /// Whether every byte was right, every request answered and every promise kept.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.wrong_blocks == 0
            && self.sum.broken_promises == 0
            && self.troubles.is_empty()
            && self.answered == self.requests as u64
    }

    /// Share of the blocks that were there.
    #[must_use]
    pub fn block_hit_rate(&self) -> f64 {
        share(self.sum.hits, self.sum.blocks)
    }

    /// Bytes that engines got without a copy by the daemon.
    #[must_use]
    pub const fn served_bytes(&self) -> u64 {
        self.sum.in_place_bytes + self.sum.copied_bytes
    }

    fn rows(&self) -> Vec<(&'static str, String)> {
        let sum = &self.sum;
        let seconds = self.took.as_secs_f64();
        vec![
            (
                "requests",
                format!("{} in {seconds:.1} s by {} engine processes", self.requests, self.engines),
            ),
            ("requests answered", HumanCount(self.answered).to_string()),
            ("block hit rate", rate(sum.hits, sum.blocks)),
            ("prefix token hit rate", rate(sum.hit_tokens, sum.tokens)),
            ("served zero-copy", HumanBytes(self.served_bytes()).to_string()),
            ("  of it read in place", HumanBytes(sum.in_place_bytes).to_string()),
            ("  of it copied by the engine", HumanBytes(sum.copied_bytes).to_string()),
            (
                "stored",
                format!("{} in {} blocks", HumanBytes(sum.stored_bytes), HumanCount(sum.stored)),
            ),
            ("declined", listed(&sum.declined)),
            ("fetch of a prompt, p50 / p99", quantiles(&self.fetches_us)),
            ("commit of a prompt, p50 / p99", quantiles(&sum.commits_us)),
            ("evictions by class", listed(&pairs(&self.evictions))),
            ("misses by reason", listed(&pairs(&self.misses))),
            ("wrong blocks", self.wrong_blocks.to_string()),
            ("broken promises", sum.broken_promises.to_string()),
        ]
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        for (name, value) in self.rows() {
            table.add_row([name, &value]);
        }
        write!(out, "{table}")?;
        for trouble in self.troubles.iter().take(TOLD_MAX) {
            write!(out, "\n{trouble}")?;
        }
        let untold = self.troubles.len().saturating_sub(TOLD_MAX);
        if untold > 0 {
            write!(out, "\n… and {untold} more")?;
        }
        Ok(())
    }
}

fn pairs(figures: &[(String, u64)]) -> BTreeMap<String, u64> {
    figures.iter().cloned().collect()
}

fn listed(counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    let one = |(name, count): (&String, &u64)| {
        format!("{} {}", HumanCount(*count), name.replace('_', " "))
    };
    counts.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn quantiles(samples_us: &[f64]) -> String {
    let mut samples = samples_us.to_vec();
    let [middle, high] = [0.5, 0.99].map(|share| percentile::of(&mut samples, share));
    format!("{middle:.0} µs / {high:.0} µs")
}

fn rate(part: u64, whole: u64) -> String {
    format!("{:.1} %  ({} of {})", 100.0 * share(part, whole), HumanCount(part), HumanCount(whole))
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered() -> Outcome {
        Outcome { blocks: 4, hits: 3, tokens: 2000, hit_tokens: 1536, ..Outcome::default() }
    }

    #[test]
    fn all_answered_and_all_right_is_right() {
        let mut summary = Summary::new(1, 2);
        summary.add(0, answered());
        assert!(!summary.is_right(), "one request is missing");
        summary.add(1, answered());
        assert!(summary.is_right());
        assert!((summary.block_hit_rate() - 0.75).abs() < 1e-9);
    }

    #[test]
    fn one_wrong_block_one_trouble_or_one_broken_promise_is_not() {
        let bad = [
            Outcome { wrong: vec!["block".to_owned()], ..answered() },
            Outcome { trouble: Some("gone".to_owned()), ..answered() },
            Outcome { broken_promises: 1, ..answered() },
        ];
        for outcome in bad {
            let mut summary = Summary::new(1, 1);
            summary.add(0, outcome);
            assert!(!summary.is_right(), "{summary}");
        }
    }
}
