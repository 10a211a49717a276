//! Defaults, and which source wins.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::*;
use super::{no_file, settings, start};

#[test]
fn defaults_are_those_of_existing_deployments() {
    let settings = settings(&[], &[], no_file);
    assert_eq!(settings.socket, PathBuf::from("/var/run/infera-kvd.sock"));
    assert_eq!(settings.admin_socket, PathBuf::from("/var/run/infera-kvd.admin.sock"));
    assert_eq!(settings.socket_mode, 0o700);
    assert_eq!((settings.socket_group, settings.metrics_listen), (None, None));
    assert!(settings.allow_uids.is_empty());
    let memory = settings.memory;
    assert_eq!((memory.arena_bytes, memory.budget_bytes), (8 << 30, 8 << 30));
    assert_eq!((memory.shared, memory.pin, memory.hugetlb), (true, true, false));
    assert_eq!(memory.numa, NumaPolicy::Interleave);
    assert_eq!(memory.size_source, Source::Default);
    let wanted = Limits {
        sessions_max: 1024,
        frame_bytes_max: 2 << 30,
        leases_max: 65_536,
        tickets_max: 4096,
        in_flight_bytes_max: 4 << 30,
        staging_bytes_max: 256 << 20,
        write_stall: Duration::from_secs(30),
    };
    assert_eq!(settings.limits, wanted);
    assert_eq!(settings.promise_window, Duration::from_secs(30));
    assert_eq!(settings.view_grace, Duration::from_secs(1));
    assert_eq!(settings.drain_deadline, Duration::from_secs(10));
    assert_eq!(settings.log, LogSettings { level: LogLevel::Info, format: LogFormat::Text });
    assert!(settings.report.remarks.is_empty(), "{:?}", settings.report.remarks);
}

#[test]
fn every_default_is_a_value_of_its_own_kind() {
    for option in table::all().filter(|option| !option.default.is_empty()) {
        assert!(option.kind.parse(option.default).is_some(), "--{}", option.name);
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<String> = table::all().flat_map(option::Opt::environment_names).collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
    flags::command().debug_assert();
}

fn file_with_size(_: &Path) -> io::Result<String> {
    Ok("max_bytes = \"3G\"\nlog-level = \"error\"\n".to_owned())
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let bytes = |flags: &[&str], variables: &[(&str, &str)]| {
        settings(flags, variables, file_with_size).memory.budget_bytes
    };
    let file = ("INFERA_KVD_CONFIG", "kvd.toml");
    let variable = ("INFERA_KVD_MAX_BYTES", "2G");
    assert_eq!(bytes(&["--max-bytes", "1G"], &[file, variable]), 1 << 30);
    assert_eq!(bytes(&[], &[file, variable]), 2 << 30);
    assert_eq!(bytes(&[], &[file]), 3 << 30);
    assert_eq!(bytes(&[], &[]), 8 << 30);
    let from_file = settings(&["--config", "kvd.toml"], &[], file_with_size);
    assert_eq!(from_file.log.level, LogLevel::Error);
    let source = Source::File { file: "kvd.toml".to_owned(), key: "max_bytes".to_owned() };
    assert_eq!(from_file.memory.size_source, source);
}

#[test]
fn an_empty_variable_is_not_set_and_aliases_come_second() {
    let memory = |variables: &[(&str, &str)]| settings(&[], variables, no_file).memory;
    let alias = ("INFERA_KVD_ARENA_HUGETLB", "1");
    let found = memory(&[("INFERA_KVD_MAX_BYTES", ""), alias]);
    assert_eq!(found.budget_bytes, 8 << 30);
    assert!(found.hugetlb);
    assert!(!memory(&[alias, ("INFERA_KVD_SHARED_ARENA_HUGETLB", "0")]).hugetlb);
}

#[test]
fn the_last_of_a_repeated_flag_wins_and_users_add_up() {
    let settings = settings(
        &["--max-bytes=1G", "--max-bytes", "2G", "--allow-uid", "0", "--allow-uid=7,8"],
        &[],
        no_file,
    );
    assert_eq!(settings.memory.budget_bytes, 2 << 30);
    assert_eq!(settings.allow_uids, [0, 7, 8]);
}

#[test]
fn pinning_is_switched_by_either_flag_and_the_last_counts() {
    let pin = |flags: &[&str]| settings(flags, &[], no_file).memory.pin;
    assert!(!pin(&["--no-shared-arena-pin"]));
    assert!(pin(&["--no-shared-arena-pin", "--shared-arena-pin"]));
    assert!(!pin(&["--shared-arena-pin", "--no-shared-arena-pin"]));
    assert!(!pin(&["--shared-arena-pin=off"]));
    let off = [("INFERA_KVD_SHARED_ARENA_PIN", "no")];
    assert!(!settings(&[], &off, no_file).memory.pin);
    assert!(settings(&["--shared-arena-pin"], &off, no_file).memory.pin);
}

#[test]
fn flags_may_stand_on_both_sides_of_the_subcommand() {
    let invocation =
        start(&["--max-bytes", "1G", "check-config", "--log-level=debug"], &[], no_file);
    let Ok(Invocation::CheckConfig(settings)) = invocation else {
        panic!("{invocation:?}");
    };
    assert_eq!(settings.memory.budget_bytes, 1 << 30);
    assert_eq!(settings.log.level, LogLevel::Debug);
}
