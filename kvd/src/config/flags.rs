//! The command line: a clap command built from the option table, and its reading. Mistakes are
//! collected, not fatal: an unknown flag is noted, taken out, and the rest is read on.

use std::ffi::OsString;

use clap::builder::ValueParser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, ArgMatches, Command};

use super::given::Given;
use super::option::{Group, Opt};
use super::problem::{Source, nearest};
use super::table;

/// What the command line asks the process to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Task {
    Serve,
    CheckConfig,
    Doctor { json: bool },
}

/// Outcome of reading the command line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Task(Task),
    /// Help or version text.
    Print(String),
}

const CHECK_CONFIG: &str = "check-config";
const DOCTOR: &str = "doctor";
const JSON: &str = "json";
const NO_PIN: &str = "no-shared-arena-pin";

const ABOUT: &str = "KV-cache daemon: one pinned arena per host, shared by all inference engines.";
const AFTER_HELP: &str = "\
Every option can also be set by an environment variable (INFERA_KVD_ and the option's name in
capitals, like INFERA_KVD_MAX_BYTES=8G) and by a key of the --config file (max_bytes = \"8G\").
Order: flag, environment, file, default.

  SIZE   bytes, or a number with K, M, G or T (powers of 1024): 65536, 64K, 1.5G
  TIME   a number with ms, s, m or h: 500ms, 30s
  BOOL   true or false, also 1/0, yes/no, on/off

Exit codes: 0 after a drain, 1 runtime failure or a check that failed, 2 bad usage or configuration.";

/// The clap command, for help texts and reading.
#[must_use]
pub(super) fn command() -> Command {
    let mut command = Command::new("infera-kvd")
        .version(env!("CARGO_PKG_VERSION"))
        .about(ABOUT)
        .after_help(AFTER_HELP)
        .args_override_self(true)
        .disable_help_subcommand(true)
        .subcommand(
            Command::new(CHECK_CONFIG)
                .about("Check all options, print those in force and where they come from, and end")
                .args_override_self(true),
        )
        .subcommand(
            Command::new(DOCTOR)
                .about(
                    "Look at this host as a start with the same options would, and say what to do",
                )
                .args_override_self(true)
                .arg(
                    Arg::new(JSON)
                        .long(JSON)
                        .help("Print the findings as JSON.")
                        .action(ArgAction::SetTrue),
                ),
        );
    for group in Group::ALL {
        for option in table::all().filter(|option| option.flag && option.group == group) {
            command = command.arg(argument(option));
            if option.name == table::SHARED_ARENA_PIN.name {
                command = command.arg(no_pin());
            }
        }
    }
    command
}

fn argument(option: &'static Opt) -> Arg {
    let arg = Arg::new(option.name)
        .long(option.name)
        .help(help(option))
        .help_heading(option.group.heading())
        .value_parser(ValueParser::os_string())
        .global(true)
        .allow_negative_numbers(true)
        .action(if option.kind.accumulates() { ArgAction::Append } else { ArgAction::Set });
    match option.kind.placeholder() {
        Some(placeholder) => arg.value_name(placeholder),
        None => arg
            .value_name("BOOL")
            .num_args(0..=1)
            .require_equals(true)
            .default_missing_value("true"),
    }
}

fn no_pin() -> Arg {
    Arg::new(NO_PIN)
        .long(NO_PIN)
        .help("Leave the arena's pages unlocked.")
        .help_heading(Group::Memory.heading())
        .action(ArgAction::SetTrue)
        .global(true)
        .overrides_with(table::SHARED_ARENA_PIN.name)
}

fn help(option: &Opt) -> String {
    let mut text = option.help.to_owned();
    if !option.default.is_empty() {
        text.push_str(&format!(" [default: {}]", option.default));
    }
    if !option.aliases.is_empty() {
        text.push_str(&format!(" [also: {}]", option.aliases.join(", ")));
    }
    text
}

/// Reads the command line; the first argument is the program's name.
pub(super) fn read(arguments: impl IntoIterator<Item = OsString>, given: &mut Given) -> Parsed {
    let mut arguments: Vec<OsString> = arguments.into_iter().collect();
    loop {
        let refused = match command().try_get_matches_from(&arguments) {
            Ok(matches) => return Parsed::Task(take(&matches, given)),
            Err(refused) => refused,
        };
        if matches!(refused.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
            return Parsed::Print(refused.render().to_string());
        }
        if !take_out(&refused, &mut arguments, given) {
            let text = refused.to_string();
            let message = text.trim().trim_start_matches("error: ").to_owned();
            given.problem(Source::Flag("command line".to_owned()), message);
            return Parsed::Task(Task::Serve);
        }
    }
}

fn take(matches: &ArgMatches, given: &mut Given) -> Task {
    let (task, matches) = match matches.subcommand() {
        Some((CHECK_CONFIG, inner)) => (Task::CheckConfig, inner),
        Some((DOCTOR, inner)) => (Task::Doctor { json: inner.get_flag(JSON) }, inner),
        _ => (Task::Serve, matches),
    };
    for option in table::all().filter(|option| option.flag) {
        let source = Source::Flag(format!("--{}", option.name));
        let Some(texts) = matches.get_many::<OsString>(option.name) else {
            continue;
        };
        let texts: Option<Vec<&str>> = texts.map(|text| text.to_str()).collect();
        match texts {
            Some(texts) => given.offer(option, texts.join(","), source),
            None => given.problem(source, "the value is not valid UTF-8"),
        }
    }
    if matches.get_flag(NO_PIN) {
        let source = Source::Flag(format!("--{NO_PIN}"));
        given.offer(&table::SHARED_ARENA_PIN, "false".to_owned(), source);
    }
    task
}

/// Notes the mistake that clap stumbled over and removes its argument, so that the next round gets
/// further. `false` if the argument cannot be found.
fn take_out(refused: &clap::Error, arguments: &mut Vec<OsString>, given: &mut Given) -> bool {
    let named = [ContextKind::InvalidArg, ContextKind::InvalidSubcommand];
    let Some(name) = named.into_iter().find_map(|kind| match refused.get(kind) {
        Some(ContextValue::String(text)) => text.split([' ', '=', '[']).next().map(str::to_owned),
        _ => None,
    }) else {
        return false;
    };
    let at = |argument: &OsString| {
        argument.to_str().is_some_and(|text| text.split('=').next() == Some(name.as_str()))
    };
    match refused.kind() {
        ErrorKind::UnknownArgument | ErrorKind::InvalidSubcommand => {
            let Some(index) = arguments.iter().skip(1).position(at).map(|index| index + 1) else {
                return false;
            };
            let removed = arguments.remove(index);
            let has_own_value = removed.to_str().is_none_or(|text| text.contains('='));
            let takes_next = name.starts_with("--") && !has_own_value;
            if takes_next && arguments.get(index).is_some_and(is_value) {
                arguments.remove(index);
            }
            let before = index.checked_sub(1).and_then(|index| arguments.get(index));
            let problem = match before.and_then(switch) {
                Some(switch) if !name.starts_with('-') => {
                    format!(
                        "not known; a value of --{switch} stands after =, like --{switch}=false"
                    )
                }
                _ => unknown(&name),
            };
            let source = if name.starts_with('-') { Source::Flag } else { Source::Argument };
            given.problem(source(name), problem);
            true
        }
        ErrorKind::InvalidValue | ErrorKind::TooManyValues | ErrorKind::NoEquals => {
            let bare = |index: &usize| {
                at(&arguments[*index])
                    && arguments.get(index + 1).is_none_or(|next| !is_value(next))
            };
            let Some(index) = (1..arguments.len()).find(bare) else {
                return false;
            };
            arguments.remove(index);
            let kind = table::all().find(|option| name.trim_start_matches('-') == option.name);
            let problem = match kind {
                Some(option) => format!("no value given; expected {}", option.kind.allowed()),
                None => "takes no value".to_owned(),
            };
            given.problem(Source::Flag(name), problem);
            true
        }
        _ => false,
    }
}

fn is_value(argument: &OsString) -> bool {
    argument
        .to_str()
        .is_none_or(|text| !text.starts_with('-') && ![CHECK_CONFIG, DOCTOR].contains(&text))
}

/// The switch that this argument turns on.
fn switch(argument: &OsString) -> Option<&'static str> {
    let name = argument.to_str()?.strip_prefix("--")?;
    let is_switch = |option: &&Opt| option.kind.placeholder().is_none() && option.name == name;
    table::all().find(is_switch).map(|option| option.name)
}

fn unknown(name: &str) -> String {
    let flags = table::all().filter(|option| option.flag).map(|option| option.name);
    match nearest(name.trim_start_matches('-'), flags.chain([NO_PIN, CHECK_CONFIG, DOCTOR])) {
        Some(command @ (CHECK_CONFIG | DOCTOR)) => format!("not known; did you mean {command}?"),
        Some(flag) => format!("not known; did you mean --{flag}?"),
        None if name.starts_with('-') => "not known; --help lists all flags".to_owned(),
        None => {
            format!(
                "not known; the commands are {CHECK_CONFIG} and {DOCTOR}, --help lists all flags"
            )
        }
    }
}
