//! What was found, as people and as scripts read it.

use std::fmt;

use serde::Serialize;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// The daemon starts and does without something.
    Warn,
    /// The daemon does not start, or not with what was asked for.
    Fail,
}

impl Verdict {
    const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warn => "warn",
            Self::Fail => "FAIL",
        }
    }
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    pub verdict: Verdict,
    /// What was looked at.
    pub what: &'static str,
    /// What was found there.
    pub found: String,
    /// What to do; empty if there is nothing to do.
    pub advice: String,
}

impl Finding {
    pub(super) fn ok(what: &'static str, found: impl Into<String>) -> Self {
        Self { verdict: Verdict::Ok, what, found: found.into(), advice: String::new() }
    }

    pub(super) fn warn(
        what: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Warn, what, found: found.into(), advice: advice.into() }
    }

    pub(super) fn fail(
        what: &'static str,
        found: impl Into<String>,
        advice: impl Into<String>,
    ) -> Self {
        Self { verdict: Verdict::Fail, what, found: found.into(), advice: advice.into() }
    }
}

/// All checks, in the order in which they are shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report(pub Vec<Finding>);

/// The same for scripts.
#[derive(Serialize)]
struct Counted<'a> {
    failed: usize,
    warned: usize,
    findings: &'a [Finding],
}

impl Report {
    /// Whether anything failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.count(Verdict::Fail) > 0
    }

    /// The findings as one JSON object.
    #[must_use]
    pub fn as_json(&self) -> String {
        let counted = Counted {
            failed: self.count(Verdict::Fail),
            warned: self.count(Verdict::Warn),
            findings: &self.0,
        };
        // Plain texts and numbers always serialize.
        serde_json::to_string_pretty(&counted).unwrap_or_default()
    }

    fn count(&self, verdict: Verdict) -> usize {
        self.0.iter().filter(|finding| finding.verdict == verdict).count()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.0.iter().map(|finding| finding.what.len()).max().unwrap_or(0);
        for finding in &self.0 {
            let (word, what) = (finding.verdict.word(), finding.what);
            write!(out, "{word:4}  {what:width$}  {}", finding.found)?;
            match finding.advice.as_str() {
                "" => writeln!(out)?,
                advice => writeln!(out, "  -> {advice}")?,
            }
        }
        let (failed, warned) = (self.count(Verdict::Fail), self.count(Verdict::Warn));
        let plural = if warned == 1 { "" } else { "s" };
        writeln!(out, "{} checks, {warned} warning{plural}, {failed} failed", self.0.len())
    }
}
