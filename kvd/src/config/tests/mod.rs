//! The configuration as a whole, on an invented host.

mod disk;
mod precedence;
mod problems;
mod reference;
mod sample;
mod settings;
mod texts;

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::*;

/// Groups and files of an invented host.
fn host(read_file: fn(&Path) -> io::Result<String>) -> Host {
    Host { read_file, group_id: |name| (name == "inference").then_some(4711) }
}

fn no_file(_: &Path) -> io::Result<String> {
    Err(io::Error::from(io::ErrorKind::NotFound))
}

fn start(
    flags: &[&str],
    variables: &[(&str, &str)],
    read_file: fn(&Path) -> io::Result<String>,
) -> Result<Invocation, Problems> {
    let arguments = std::iter::once("infera-kvd").chain(flags.iter().copied()).map(OsString::from);
    let variables = variables.iter().map(|(name, value)| (name.into(), value.into()));
    load(arguments, variables, host(read_file))
}

fn settings(
    flags: &[&str],
    variables: &[(&str, &str)],
    read_file: fn(&Path) -> io::Result<String>,
) -> Settings {
    match start(flags, variables, read_file) {
        Ok(Invocation::Serve(settings) | Invocation::CheckConfig(settings)) => *settings,
        other => panic!("no settings: {other:?}"),
    }
}

fn problems(
    flags: &[&str],
    variables: &[(&str, &str)],
    read_file: fn(&Path) -> io::Result<String>,
) -> Vec<String> {
    match start(flags, variables, read_file) {
        Err(Problems(problems)) => problems.iter().map(ToString::to_string).collect(),
        Ok(other) => panic!("no problem: {other:?}"),
    }
}
