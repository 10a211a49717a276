//! Reading the command line and the environment: for each option the text of the strongest source
//! that named it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

use clap::builder::StringValueParser;
use clap::{Arg, ArgAction, Command};

use super::option::{Group, Kind, Opt, SEPARATOR};
use super::table;

const ABOUT: &str =
    "Router for LLM inference engines: one OpenAI endpoint in front of many workers.";
const AFTER_HELP: &str = "\
Examples:
  infera-router --worker http://10.0.0.1:8000 --worker http://10.0.0.2:8000
  infera-router --etcd-endpoint etcd:2379 --router-policy kv-aware \\
      --kv-tokenizer-path /models/qwen

The first serves two engines that are named; the second whatever infera-register and
infera-kvd --etcd-endpoint tell of in etcd, by what is cached where.

Clients use it as they would use one engine: POST /v1/chat/completions, /v1/completions,
/v1/embeddings, /v1/responses, /tokenize, GET /v1/models.
Operators: GET /health, /live, /ready, /metrics, /v1/workers; docs/router.md has the others.

A flag wins over its environment variable; where there is no [env: ...] there is none. In a
variable commas separate what a flag would repeat. RUST_LOG sets what is logged: warn, info
(default), infera_router=debug. SIGTERM drains, a second one exits at once.

Exit codes: 0 after a drain, 1 runtime failure, 2 bad usage or configuration.";

/// Of the variables' names, but for some that the launcher knows.
const PREFIX: &str = "INFERA_ROUTER_";
/// Read by the unit of systemd.
const OF_UNIT: &str = "INFERA_ROUTER_ARGUMENTS";

/// Where a value came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    Flag(&'static str),
    Environment(&'static str),
}

impl fmt::Display for Source {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag(name) => write!(out, "--{name}"),
            Self::Environment(name) => out.write_str(name),
        }
    }
}

/// A text and who said it.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) text: String,
    pub(super) source: Source,
}

/// The texts in force, by the names of their options.
pub(super) type Given = BTreeMap<&'static str, Said>;

fn command() -> Command {
    let command = Command::new("infera-router")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(AFTER_HELP)
        .args_override_self(true);
    let in_order = Group::ALL
        .into_iter()
        .flat_map(|group| table::all().filter(move |option| option.flag && option.group == group));
    in_order.fold(command, |command, option| command.arg(argument(option)))
}

fn argument(option: &'static Opt) -> Arg {
    let is_repeated = matches!(option.kind, Kind::Texts);
    let mut help = option.help.to_owned();
    if let Kind::Word(words) = option.kind {
        help.push_str(&format!(" [{}]", words.join(", ")));
    }
    if !option.default.is_empty() {
        help.push_str(&format!(" [default: {}]", option.default));
    }
    if let Some(name) = option.environment {
        help.push_str(&format!(" [env: {name}]"));
    }
    Arg::new(option.name)
        .long(option.name)
        .value_name(option.kind.placeholder())
        .help(help)
        .help_heading(option.group.heading())
        .allow_negative_numbers(true)
        .value_parser(StringValueParser::new())
        .action(if is_repeated { ArgAction::Append } else { ArgAction::Set })
}

/// A line for each variable with our prefix that is not read. Names that orchestrators make of services are left alone.
pub(super) fn unread(variables: &[(OsString, OsString)]) -> Vec<String> {
    let line = |(name, value): &(OsString, OsString)| {
        let (name, value) = (name.to_str()?, value.to_string_lossy());
        let rest = name.strip_prefix(PREFIX)?;
        let is_of_service = rest.contains("SERVICE_") || rest.contains("PORT_");
        let is_of_service = is_of_service || (rest.ends_with("PORT") && value.contains("://"));
        let is_read = table::all().any(|option| option.environment == Some(name));
        if value.is_empty() || is_of_service || is_read || name == OF_UNIT {
            return None;
        }
        let flag = rest.to_ascii_lowercase().replace('_', "-");
        let option = table::all().find(|option| option.flag && option.name == flag);
        Some(match option.map(|option| option.environment) {
            Some(Some(other)) => format!("{name} is not read: the variable is {other}"),
            Some(None) => format!("{name} is not read: say it by --{flag}"),
            None => format!("{name} is not read: --help lists the variables"),
        })
    };
    variables.iter().filter_map(line).collect()
}

/// Reads both sources; the first argument is the program's name. An empty variable counts as not set.
///
/// # Errors
/// What clap says of a command line that is wrong, or that asks for help.
pub(super) fn read(
    arguments: impl IntoIterator<Item = OsString>,
    variables: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<Given, clap::Error> {
    let matches = command().try_get_matches_from(arguments)?;
    let variables: BTreeMap<OsString, OsString> = variables.into_iter().collect();
    let mut given = Given::new();
    for option in table::all() {
        let texts = option.flag.then(|| matches.get_many::<String>(option.name)).flatten();
        let from_flag = texts.map(|texts| {
            let texts: Vec<&str> = texts.map(String::as_str).collect();
            Said { text: texts.join(&SEPARATOR.to_string()), source: Source::Flag(option.name) }
        });
        let said = from_flag.or_else(|| {
            let name = option.environment?;
            let text = variables.get(std::ffi::OsStr::new(name))?.to_string_lossy().into_owned();
            let text = match option.kind {
                Kind::Texts => text.replace(',', &SEPARATOR.to_string()),
                _ => text,
            };
            (!text.is_empty()).then_some(Said { text, source: Source::Environment(name) })
        });
        if let Some(said) = said {
            given.insert(option.name, said);
        }
    }
    Ok(given)
}
