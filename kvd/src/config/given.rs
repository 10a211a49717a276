//! Who said what: for each option the text of the strongest source that named it, and the mistakes
//! met on the way.

use std::collections::BTreeMap;

use kvd_etcd::Password;

use super::option::Opt;
use super::problem::{Problem, Source};

/// A text and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) source: Source,
}

/// The texts in force. Sources are read strongest first: who comes later does not replace.
#[derive(Debug, Default)]
pub(super) struct Given {
    said: BTreeMap<&'static str, Said>,
    /// The password for etcd, which is never an option: options are shown.
    pub(super) etcd_password: Option<Password>,
    /// Mistakes so far.
    pub(super) problems: Vec<Problem>,
    /// Remarks that do not prevent a start.
    pub(super) remarks: Vec<String>,
    /// Known names outside the option table that this version does not act on.
    pub(super) without_effect: Vec<Source>,
}

impl Given {
    /// Takes a text unless a stronger source has named the option already.
    pub(super) fn offer(&mut self, option: &'static Opt, text: String, source: Source) {
        self.said.entry(option.name).or_insert(Said { text, source });
    }

    /// Takes a text in place of what a source that elsewhere is stronger said.
    pub(super) fn overrule(&mut self, option: &'static Opt, text: String, source: Source) {
        self.said.insert(option.name, Said { text, source });
    }

    /// The text in force, if anybody named the option.
    #[must_use]
    pub(super) fn get(&self, name: &str) -> Option<&Said> {
        self.said.get(name)
    }

    /// Notes a mistake.
    pub(super) fn problem(&mut self, source: Source, message: impl Into<String>) {
        self.problems.push(Problem { source, message: message.into() });
    }
}
