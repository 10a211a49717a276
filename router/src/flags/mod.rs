//! The command line, as the launcher sends it and people write it: what can be set (`table`), who said
//! what (`given`), and the checked [`Settings`] (`settings`). Nothing else of the router reads
//! arguments or environment, and only `Settings` can start one. A flag wins over its environment
//! variable; a start with mistakes lists all of them.

mod etcd_options;
mod given;
mod option;
mod settings;
mod table;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use hyper::header::HeaderName;
use kvd_etcd::Access;
use router_core::score::{Speed, Way};
use router_tls::Trust;

use crate::breaker;
use crate::retention::Retention;

/// Everything the router needs to know, checked. Plain data.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Address or name to listen on, and the port.
    pub listen: (String, u16),
    /// Largest request body in bytes.
    pub body_bytes_max: usize,
    /// Where workers are found.
    pub discovery: Discovery,
    /// Whose certificates workers may have.
    pub trust: Trust,
    /// Which worker gets a request.
    pub policy: Policy,
    /// Whether requests are explained.
    pub is_admin_enabled: bool,
    /// Where the daemon of this host listens, for hints.
    pub kvd_socket: Option<PathBuf>,
    /// Headers of clients that workers don't see.
    pub drop_headers: Vec<HeaderName>,
    /// What a request that says nothing of retention gets.
    pub default_retention: Retention,
    /// Further workers that are tried.
    pub retries_max: u32,
    /// When a worker is left alone.
    pub breaker: breaker::Limits,
    /// When a worker is given up, and when that it is silent is reported.
    pub patience: Patience,
    /// How long requests are accepted after SIGTERM.
    pub shutdown_delay: Duration,
    /// How long answers in flight may take after that.
    pub drain_timeout: Duration,
    /// What to log once at start.
    pub remarks: Vec<String>,
}

/// How long an answer may be silent. `None`: for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// It is given up.
    pub idle: Option<Duration>,
    /// It is reported, before its first byte.
    pub admission_warn: Option<Duration>,
    /// It is reported, after its first byte.
    pub stall_warn: Option<Duration>,
}

/// Where workers are found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discovery {
    /// Whoever registers below `prefix`.
    Etcd {
        /// Where etcd is, and how one gets in.
        access: Access,
        /// Ends with a slash.
        prefix: String,
    },
    /// These, for ever.
    Fixed(Vec<FixedWorker>),
}

/// A worker named on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedWorker {
    /// `http://HOST:PORT`, or `https`.
    pub url: String,
    /// The model it is for; empty: any.
    pub model: String,
}

/// How a worker is chosen without knowing what is cached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SimplePolicy {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest requests in flight.
    LeastLoad,
}

/// How a worker is chosen.
#[derive(Debug, Clone)]
pub enum Policy {
    /// Without knowing what is cached.
    Simple(SimplePolicy),
    /// The one that is expected to answer first, by what is cached where.
    KvAware(Box<CacheSettings>),
}

/// What a choice by cache needs to know.
#[derive(Debug, Clone)]
pub struct CacheSettings {
    /// What is compared.
    pub score: Score,
    /// Whether the last worker of a session is favoured.
    pub has_session_bonus: bool,
    /// What vLLM's names of blocks begin with, if somebody said.
    pub vllm_hash_seed: Option<String>,
    /// Where tokenizers are: the one for all models, and those for one.
    pub tokenizers: (Option<PathBuf>, BTreeMap<String, PathBuf>),
    /// Variables of chat templates that workers set by default.
    pub template_kwargs: router_tokens::Map,
    /// Whether engines encode chats in their own code.
    pub has_native_encoder: bool,
    /// Weight of a block to compute, for the reference's score.
    pub overlap_weight: f64,
    /// Prefix of the daemons' keys, ends with a slash.
    pub kvd_prefix: String,
    /// Files with the key and the token that daemons want to see.
    pub kvd_keys: Option<PathBuf>,
    /// See above.
    pub kvd_token: Option<PathBuf>,
    /// Of a worker that has not answered yet.
    pub speed: Speed,
    /// From the tiers of a host that has not told.
    pub way: Way,
    /// Memory for the index.
    pub index_bytes_max: u64,
}

/// What is compared by a choice by cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Score {
    /// Expected times to the first token.
    Ettft,
    /// Blocks to compute and blocks under way.
    Reference,
}

/// What the command line asks for.
#[derive(Debug)]
pub enum Invocation {
    /// Run the router.
    Serve(Box<Settings>),
    /// `--help` or `--version`: print this and end with 0.
    Print(String),
}

/// All mistakes of one start, in one text.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Wrong(String);

/// Reads a command line (the first argument is the program's name) and an environment.
///
/// # Errors
/// All mistakes together; the process should print them and end with code 2.
pub fn load(
    arguments: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Invocation, Wrong> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    let variables: Vec<(OsString, OsString)> = variables.into_iter().collect();
    let unread = given::unread(&variables);
    match given::read(arguments, variables) {
        Ok(given) => {
            let mut settings = settings::check(given)?;
            settings.remarks.extend(unread);
            Ok(Invocation::Serve(Box::new(settings)))
        }
        Err(said) if matches!(said.kind(), DisplayHelp | DisplayVersion) => {
            Ok(Invocation::Print(said.render().to_string()))
        }
        Err(said) => {
            let text = said.render().to_string();
            Err(Wrong(text.trim_start_matches("error: ").trim_end().to_owned()))
        }
    }
}
