//! What is wrong with a configuration: every mistake names where it was made, what was found and
//! what is allowed.

use std::fmt;

/// Where a value came from, in order of precedence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A command line flag, with its dashes.
    Flag(String),
    /// A word of the command line that belongs to no flag.
    Argument(String),
    /// An environment variable.
    Environment(String),
    /// A key of the configuration file.
    File { file: String, key: String },
    /// Nobody said anything.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(flag) => write!(out, "flag {flag}"),
            Self::Argument(word) => write!(out, "argument {word}"),
            Self::Environment(name) => write!(out, "environment {name}"),
            Self::File { file, key } => write!(out, "{file}: {key}"),
            Self::Default => out.write_str("default"),
        }
    }
}

/// One mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Who said it; for combinations, the option that would have to change.
    pub source: Source,
    /// What is wrong and what is allowed.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.source, self.message)
    }
}

/// All mistakes of one start, in the order in which the sources are read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.listing())]
pub struct Problems(pub Vec<Problem>);

impl Problems {
    fn listing(&self) -> String {
        let count = self.0.len();
        let mut text =
            format!("{count} configuration problem{}:", if count == 1 { "" } else { "s" });
        for problem in &self.0 {
            text.push_str("\n  ");
            text.push_str(&problem.to_string());
        }
        text
    }
}

/// The known name that a misspelt one most likely means.
pub(super) fn nearest<'a>(word: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let limit = (word.len() / 3).clamp(1, 3);
    known
        .map(|name| (distance(word, name), name))
        .filter(|(steps, _)| *steps <= limit)
        .min_by_key(|(steps, _)| *steps)
        .map(|(_, name)| name)
}

/// Levenshtein distance in bytes; names are short.
fn distance(left: &str, right: &str) -> usize {
    let mut previous: Vec<usize> = (0..=right.len()).collect();
    for (row, a) in left.bytes().enumerate() {
        let mut diagonal = row;
        previous[0] = row + 1;
        for (column, b) in right.bytes().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = previous[column + 1];
            previous[column + 1] = replaced.min(diagonal + 1).min(previous[column] + 1);
        }
    }
    previous[right.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_single_changes() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("socket", "socket"), 0);
        assert_eq!(distance("sokcet", "socket"), 2);
        assert_eq!(distance("max-byte", "max-bytes"), 1);
    }

    #[test]
    fn only_a_near_name_is_suggested() {
        let known = ["max-bytes", "socket", "numa"];
        assert_eq!(nearest("max-byte", known.into_iter()), Some("max-bytes"));
        assert_eq!(nearest("soket", known.into_iter()), Some("socket"));
        assert_eq!(nearest("colour", known.into_iter()), None);
    }
}
