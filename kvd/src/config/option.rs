//! What an option is: its names, its unit, what it allows, its default and its help. The options
//! themselves are the rows of [`super::table`]; flags, environment, file, `--help` and
//! `docs/configuration.md` all follow it.

use super::value::Kind;

/// The heading under which `--help` and the documentation list an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Sockets, who may connect, the configuration file.
    Access,
    /// The arena and its pages.
    Memory,
    /// What one session may hold and how many sessions there may be.
    Limits,
    /// Windows and deadlines.
    Timing,
    /// Blocks on disk.
    Disk,
    /// What is published for routers.
    Events,
    /// Log lines.
    Logging,
    /// Accepted from existing command lines, without effect.
    Accepted,
}

impl Group {
    /// All groups in the order of `--help`.
    pub(super) const ALL: [Self; 8] = [
        Self::Access,
        Self::Memory,
        Self::Limits,
        Self::Timing,
        Self::Disk,
        Self::Events,
        Self::Logging,
        Self::Accepted,
    ];

    /// The heading as shown to people.
    #[must_use]
    pub(super) const fn heading(self) -> &'static str {
        match self {
            Self::Access => "Sockets and access",
            Self::Memory => "Memory",
            Self::Limits => "Limits",
            Self::Timing => "Windows and deadlines",
            Self::Disk => "Disk tier",
            Self::Events => "Events",
            Self::Logging => "Logging",
            Self::Accepted => "Accepted without effect",
        }
    }
}

/// One option. The environment name is derived from `name` unless `environment` lists others that
/// are read as well.
#[derive(Debug)]
pub(super) struct Opt {
    /// Flag name without the dashes; the file key is the same with `_` or `-`.
    pub(super) name: &'static str,
    /// Whether there is a command line flag. Some reference settings exist in the environment only.
    pub(super) flag: bool,
    /// Further environment names, tried after the derived one.
    pub(super) aliases: &'static [&'static str],
    /// What a value looks like and what is allowed.
    pub(super) kind: Kind,
    /// The default as one would write it; empty when there is none.
    pub(super) default: &'static str,
    /// Heading in `--help`.
    pub(super) group: Group,
    /// One or two sentences for `--help` and the documentation.
    pub(super) help: &'static str,
}

impl Opt {
    /// The environment name that belongs to this option: `INFERA_KVD_` and the name in capitals.
    #[must_use]
    pub(super) fn environment_name(&self) -> String {
        format!("INFERA_KVD_{}", self.name.to_ascii_uppercase().replace('-', "_"))
    }

    /// Every environment name of this option, in order of precedence.
    pub(super) fn environment_names(&self) -> impl Iterator<Item = String> + '_ {
        std::iter::once(self.environment_name())
            .chain(self.aliases.iter().map(|name| (*name).to_owned()))
    }
}
