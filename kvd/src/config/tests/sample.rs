//! The file that is installed with the units: `kvd/systemd/kvd.toml`.

use std::ffi::OsString;
use std::io;
use std::path::Path;

use super::super::*;

const SAMPLE: &str = include_str!("../../../systemd/kvd.toml");

/// What the sample shows although it is no default.
const EXAMPLES: [&str; 4] = ["allow_uid", "metrics_listen", "long_paths", "events_listen"];

fn as_installed(_: &Path) -> io::Result<String> {
    Ok(SAMPLE.to_owned())
}

fn with_every_line(_: &Path) -> io::Result<String> {
    let lines = SAMPLE.lines().map(|line| match line.strip_prefix('#') {
        Some(option) if option.starts_with(|first: char| first.is_ascii_lowercase()) => option,
        _ => line,
    });
    let lines = lines.filter(|line| !EXAMPLES.iter().any(|name| line.starts_with(name)));
    Ok(lines.collect::<Vec<_>>().join("\n"))
}

fn checked(read_file: fn(&Path) -> io::Result<String>, flags: &[&str]) -> Settings {
    let host = Host { read_file, group_id: |name| (name == "infera-kv").then_some(990) };
    let line = ["infera-kvd", "check-config"].iter().chain(flags).map(OsString::from);
    match load(line, std::iter::empty(), host) {
        Ok(Invocation::CheckConfig(settings)) => *settings,
        other => panic!("not accepted: {other:?}"),
    }
}

#[test]
fn it_says_who_may_connect_and_changes_nothing_else() {
    let sample = checked(as_installed, &["--config=kvd.toml"]);
    assert_eq!(sample.report.remarks().count(), 0);
    let said =
        ["--socket=/run/infera-kvd/kvd.sock", "--socket-mode=0660", "--socket-group=infera-kv"];
    let plain = checked(super::no_file, &said);
    assert_eq!(Settings { report: plain.report.clone(), ..sample }, plain);
}

#[test]
fn the_lines_that_are_off_show_the_defaults() {
    let installed = checked(as_installed, &["--config=kvd.toml"]);
    let full = checked(with_every_line, &["--config=kvd.toml"]);
    let option_lines = with_every_line(Path::new("")).map(|text| text.matches(" = ").count());
    assert!(option_lines.unwrap() > 25, "the marks were not removed");
    let but_for_sources = |settings: Settings| {
        let report = installed.report.clone();
        let memory = Memory { size_source: Source::Default, ..settings.memory };
        Settings { report, memory, ..settings }
    };
    assert_eq!(but_for_sources(full), installed);
}
