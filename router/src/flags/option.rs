//! What an option is: its names, what it allows, its default and its help. The options themselves are
//! the rows of [`super::table`]; command line, environment, `--help` and `docs/router.md` follow it.

use std::time::Duration;

/// The heading under which `--help` lists an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Where requests come in.
    Listening,
    /// Where workers are found.
    Discovery,
    /// Which worker gets a request.
    Routing,
    /// What workers have cached, and what a request costs there.
    Cache,
    /// Retries, breaker, time limits.
    Faults,
    /// The end of the process.
    Ending,
    /// Accepted from existing command lines, without effect.
    Accepted,
}

impl Group {
    /// All groups in the order of `--help`.
    pub(super) const ALL: [Self; 7] = [
        Self::Listening,
        Self::Discovery,
        Self::Routing,
        Self::Cache,
        Self::Faults,
        Self::Ending,
        Self::Accepted,
    ];

    /// The heading as shown to people.
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Self::Listening => "Listening",
            Self::Discovery => "Finding workers",
            Self::Routing => "Choosing a worker",
            Self::Cache => "Choosing by cache (kv-aware)",
            Self::Faults => "Faults and time limits",
            Self::Ending => "Ending",
            Self::Accepted => "Accepted without effect",
        }
    }
}

/// What a value looks like and what is allowed.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind {
    /// Any text that is not empty.
    Text,
    /// A TCP port.
    Port,
    /// A whole number in this range.
    Count { min: u64, max: u64 },
    /// Seconds, with or without a fraction, up to this many.
    Seconds { max: f64 },
    /// A finite number that is not negative.
    Factor,
    /// One of these words.
    Word(&'static [&'static str]),
    /// `true` or `false`.
    Switch,
    /// Texts; the option may be repeated.
    Texts,
}

/// A parsed value. Which variant a kind yields is fixed; `Absent` stands for an empty default.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Absent,
    Text(String),
    Port(u16),
    Count(u64),
    Seconds(Duration),
    Factor(f64),
    Switch(bool),
    Texts(Vec<String>),
}

/// Between the texts of an option that may be repeated; no argument can hold it.
pub(super) const SEPARATOR: char = '\0';

impl Kind {
    /// The placeholder shown after a flag in `--help`.
    pub(super) const fn placeholder(self) -> &'static str {
        match self {
            Self::Text | Self::Texts => "TEXT",
            Self::Port => "PORT",
            Self::Count { .. } => "COUNT",
            Self::Seconds { .. } => "SECONDS",
            Self::Factor => "NUMBER",
            Self::Word(_) => "WORD",
            Self::Switch => "BOOL",
        }
    }

    /// What is allowed, for people.
    pub(super) fn allowed(self) -> String {
        match self {
            Self::Text | Self::Texts => "a text that is not empty".to_owned(),
            Self::Port => "a port from 0 to 65535".to_owned(),
            Self::Count { min, max } => format!("a whole number from {min} to {max}"),
            Self::Seconds { max } => format!("seconds from 0 to {max}, like 5 or 0.5"),
            Self::Factor => "a number that is not negative".to_owned(),
            Self::Word(words) => format!("one of {}", words.join(", ")),
            Self::Switch => "true or false".to_owned(),
        }
    }

    /// The value that `text` stands for, if it is allowed. An empty text is an absent value.
    pub(super) fn parse(self, text: &str) -> Option<Value> {
        if text.is_empty() {
            return Some(Value::Absent);
        }
        match self {
            Self::Text => Some(Value::Text(text.to_owned())),
            Self::Texts => Some(Value::Texts(text.split(SEPARATOR).map(str::to_owned).collect())),
            Self::Port => text.parse().ok().map(Value::Port),
            Self::Count { min, max } => {
                let count = text.parse().ok()?;
                (min..=max).contains(&count).then_some(Value::Count(count))
            }
            Self::Seconds { max } => {
                let seconds: f64 = text.parse().ok()?;
                (0.0..=max).contains(&seconds).then_some(())?;
                Duration::try_from_secs_f64(seconds).ok().map(Value::Seconds)
            }
            Self::Factor => {
                let factor: f64 = text.parse().ok()?;
                (factor.is_finite() && factor >= 0.0).then_some(Value::Factor(factor))
            }
            Self::Word(words) => words.contains(&text).then(|| Value::Text(text.to_owned())),
            Self::Switch => match text.to_ascii_lowercase().as_str() {
                "true" | "1" | "yes" | "on" => Some(Value::Switch(true)),
                "false" | "0" | "no" | "off" => Some(Value::Switch(false)),
                _ => None,
            },
        }
    }
}

/// Why an option does nothing in this version.
#[derive(Debug, Clone, Copy)]
pub(super) struct Idle {
    /// For the log line at start.
    pub(super) reason: &'static str,
    /// Values that ask for what happens anyway.
    pub(super) unless: &'static [&'static str],
}

/// One option.
#[derive(Debug)]
pub(super) struct Opt {
    /// Flag name without the dashes.
    pub(super) name: &'static str,
    /// Its environment variable. The flag wins over it.
    pub(super) environment: Option<&'static str>,
    /// Whether there is a command line flag; a few settings exist in the environment only.
    pub(super) flag: bool,
    /// What a value looks like and what is allowed.
    pub(super) kind: Kind,
    /// The default as one would write it; empty when there is none.
    pub(super) default: &'static str,
    /// Heading in `--help`.
    pub(super) group: Group,
    /// One or two sentences for `--help` and the documentation.
    pub(super) help: &'static str,
    /// Set if the option has no effect.
    pub(super) idle: Option<Idle>,
}
