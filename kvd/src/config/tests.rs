//! The configuration as a whole: precedence, all mistakes at once, every existing command line, the
//! documentation.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::*;

/// Groups and files of an invented host.
fn host(read_file: fn(&Path) -> io::Result<String>) -> Host {
    Host {
        read_file,
        group_id: |name| (name == "inference").then_some(4711),
    }
}

fn no_file(_: &Path) -> io::Result<String> {
    Err(io::Error::from(io::ErrorKind::NotFound))
}

fn start(
    flags: &[&str],
    variables: &[(&str, &str)],
    read_file: fn(&Path) -> io::Result<String>,
) -> Result<Invocation, Problems> {
    let arguments = std::iter::once("infera-kvd")
        .chain(flags.iter().copied())
        .map(OsString::from);
    let variables = variables
        .iter()
        .map(|(name, value)| (name.into(), value.into()));
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

#[test]
fn defaults_are_those_of_existing_deployments() {
    let settings = settings(&[], &[], no_file);
    assert_eq!(settings.socket, PathBuf::from("/var/run/infera-kvd.sock"));
    assert_eq!(
        settings.admin_socket,
        PathBuf::from("/var/run/infera-kvd.admin.sock")
    );
    assert_eq!(settings.socket_mode, 0o700);
    assert_eq!(
        (settings.socket_group, settings.metrics_listen),
        (None, None)
    );
    assert!(settings.allow_uids.is_empty());
    let memory = settings.memory;
    assert_eq!(
        (memory.arena_bytes, memory.budget_bytes),
        (8 << 30, 8 << 30)
    );
    assert_eq!(
        (memory.shared, memory.pin, memory.hugetlb),
        (true, true, false)
    );
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
    assert_eq!(
        settings.log,
        LogSettings {
            level: LogLevel::Info,
            format: LogFormat::Text
        }
    );
    assert!(
        settings.report.remarks.is_empty(),
        "{:?}",
        settings.report.remarks
    );
}

#[test]
fn every_default_is_a_value_of_its_own_kind() {
    for option in table::all().filter(|option| !option.default.is_empty()) {
        assert!(
            option.kind.parse(option.default).is_some(),
            "--{}",
            option.name
        );
    }
}

#[test]
fn names_are_unique() {
    let mut names: Vec<String> = table::all()
        .flat_map(option::Opt::environment_names)
        .collect();
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
        settings(flags, variables, file_with_size)
            .memory
            .budget_bytes
    };
    let file = ("INFERA_KVD_CONFIG", "kvd.toml");
    let variable = ("INFERA_KVD_MAX_BYTES", "2G");
    assert_eq!(bytes(&["--max-bytes", "1G"], &[file, variable]), 1 << 30);
    assert_eq!(bytes(&[], &[file, variable]), 2 << 30);
    assert_eq!(bytes(&[], &[file]), 3 << 30);
    assert_eq!(bytes(&[], &[]), 8 << 30);
    let from_file = settings(&["--config", "kvd.toml"], &[], file_with_size);
    assert_eq!(from_file.log.level, LogLevel::Error);
    let source = Source::File {
        file: "kvd.toml".to_owned(),
        key: "max_bytes".to_owned(),
    };
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
        &[
            "--max-bytes=1G",
            "--max-bytes",
            "2G",
            "--allow-uid",
            "0",
            "--allow-uid=7,8",
        ],
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
    let invocation = start(
        &["--max-bytes", "1G", "check-config", "--log-level=debug"],
        &[],
        no_file,
    );
    let Ok(Invocation::CheckConfig(settings)) = invocation else {
        panic!("{invocation:?}");
    };
    assert_eq!(settings.memory.budget_bytes, 1 << 30);
    assert_eq!(settings.log.level, LogLevel::Debug);
}

/// Every value-taking flag of an existing command line, with a value that is not the default.
const REFERENCE_VALUES: [(&str, &str); 17] = [
    ("--socket", "/run/x.sock"),
    ("--max-bytes", "1.5g"),
    ("--shared-arena-bytes", "512M"),
    ("--long-path", "/data/kv"),
    ("--long-bytes", "1T"),
    ("--long-backend", "mooncake"),
    ("--mooncake-config", "/etc/mooncake.yaml"),
    ("--lmcache-config", "/etc/lmcache.yaml"),
    ("--long-workers-per-shard", "4"),
    ("--tablespace-slot-bytes", "128K"),
    ("--tablespace-container-bytes", "2G"),
    ("--tablespace-pools", "64K*1,1M*4"),
    ("--tablespace-flush-interval-ms", "20"),
    ("--io-mode", "direct"),
    ("--log-level", "warning"),
    ("--config", "kvd.toml"),
    ("--long-paths", "/data/a,/data/b"),
];
const REFERENCE_SWITCHES: [&str; 6] = [
    "--shared-arena-pin",
    "--no-shared-arena-pin",
    "--shared-arena-hugetlb",
    "--use-tablespace",
    "--tablespace-buffered-io",
    "--tablespace-auto-detect-fs",
];

#[test]
fn every_reference_flag_is_accepted_in_both_forms() {
    let empty: fn(&Path) -> io::Result<String> = |_| Ok(String::new());
    for (flag, value) in REFERENCE_VALUES {
        settings(&[flag, value], &[], empty);
        settings(&[&format!("{flag}={value}")], &[], empty);
    }
    for switch in REFERENCE_SWITCHES {
        settings(&[switch], &[], empty);
    }
    let all: Vec<&str> = REFERENCE_VALUES
        .iter()
        .filter(|(flag, _)| *flag != "--long-paths")
        .flat_map(|(flag, value)| [*flag, *value])
        .chain(REFERENCE_SWITCHES)
        .collect();
    let settings = settings(&all, &[], empty);
    assert_eq!(settings.memory.arena_bytes, 512 << 20);
    assert_eq!(settings.log.level, LogLevel::Warning);
}

#[test]
fn options_without_effect_are_named_once() {
    let variables = [
        ("INFERA_KVD_LONG_FSYNC", "1"),
        ("INFERA_L4_REMOTE_URL", "redis://x"),
    ];
    let settings = settings(
        &["--long-path", "/data", "--long-bytes=1T"],
        &variables,
        no_file,
    );
    let [remark] = settings.report.remarks.as_slice() else {
        panic!("{:?}", settings.report.remarks);
    };
    for name in [
        "--long-path",
        "--long-bytes",
        "INFERA_KVD_LONG_FSYNC",
        "INFERA_L4_REMOTE_URL",
    ] {
        assert!(remark.contains(name), "{name} is missing in: {remark}");
    }
}

#[test]
fn foreign_variables_are_no_mistake_but_a_near_miss_is_pointed_out() {
    let variables = [
        ("INFERA_KVD_SERVICE_HOST", "10.0.0.1"),
        ("INFERA_KVD_PORT", "tcp://10.0.0.1:80"),
        ("INFERA_KVD_MAX_BYTE", "1G"),
        ("INFERA_KVD_ARENA_PREFAULT", "0"),
    ];
    let settings = settings(&[], &variables, no_file);
    let [remark] = settings.report.remarks.as_slice() else {
        panic!("{:?}", settings.report.remarks);
    };
    assert!(
        remark.contains("did you mean INFERA_KVD_MAX_BYTES?"),
        "{remark}"
    );
}

fn file_with_mistakes(_: &Path) -> io::Result<String> {
    Ok(
        "max_byte = 5\nsocket_mode = 432\nleases-max = [1]\nview_grace = 3\n\
        write_stall = \"1s\"\nwrite-stall = \"2s\"\n"
            .to_owned(),
    )
}

#[test]
fn all_problems_of_all_sources_are_reported_at_once() {
    let found = problems(
        &[
            "--max-bytes",
            "lots",
            "--sokcet",
            "/x",
            "--config=kvd.toml",
            "--tickets-max",
            "--numa=all",
        ],
        &[
            ("INFERA_KVD_PROMISE_WINDOW", "30"),
            ("INFERA_KVD_SOCKET_GROUP", "nobody-knows"),
        ],
        file_with_mistakes,
    );
    for wanted in [
        "flag --sokcet: not known; did you mean --socket?",
        "flag --tickets-max: no value given; expected a whole number",
        "flag --max-bytes: \"lots\" is not allowed; expected a size from 1 to 1024T",
        "flag --numa: \"all\" is not allowed; expected interleave or bind:NODE",
        "environment INFERA_KVD_PROMISE_WINDOW: \"30\" is not allowed; expected a time from 0s to 1h",
        "environment INFERA_KVD_SOCKET_GROUP: there is no group \"nobody-knows\"",
        "kvd.toml: max_byte: not known; did you mean max_bytes?",
        "kvd.toml: socket_mode: write the permissions as a text",
        "kvd.toml: leases-max: a TOML array is not allowed",
        "kvd.toml: view_grace: \"3\" is not allowed; expected a time",
        "the same option as",
    ] {
        assert!(
            found.iter().any(|line| line.contains(wanted)),
            "{wanted:?} is not in {found:#?}"
        );
    }
    assert_eq!(found.len(), 11, "{found:#?}");
}

#[test]
fn the_listing_counts_and_indents() {
    let refused = start(&["--max-bytes=0"], &[], no_file)
        .unwrap_err()
        .to_string();
    assert!(
        refused.starts_with("1 configuration problem:\n  flag --max-bytes: \"0\""),
        "{refused}"
    );
}

#[test]
fn a_missing_value_is_named_wherever_it_stands() {
    for flags in [&["--socket"][..], &["--socket", "--numa", "bind:0"]] {
        let found = problems(flags, &[], no_file);
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(
            found[0].starts_with("flag --socket: no value given"),
            "{found:#?}"
        );
    }
    let found = problems(&["--max-bytes="], &[], no_file);
    assert!(found[0].starts_with("flag --max-bytes: "), "{found:#?}");
}

#[test]
fn stray_words_and_short_flags_are_named() {
    let found = problems(&["serve", "-x", "--max-bytes", "-5"], &[], no_file);
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found[0].starts_with("flag serve: not known"), "{found:#?}");
    assert!(found[1].starts_with("flag -x: not known"), "{found:#?}");
    assert!(
        found[2].starts_with("flag --max-bytes: \"-5\" is not allowed"),
        "{found:#?}"
    );
}

#[test]
fn text_that_is_not_utf_8_is_a_problem_of_its_source() {
    let broken = OsString::from_vec(vec![b'/', 0xFF]);
    let arguments = ["infera-kvd".into(), "--socket".into(), broken.clone()];
    let variables = [(OsString::from("INFERA_KVD_ADMIN_SOCKET"), broken)];
    let Err(Problems(found)) = load(arguments, variables, host(no_file)) else {
        panic!("accepted");
    };
    let sources: Vec<String> = found
        .iter()
        .map(|problem| problem.source.to_string())
        .collect();
    assert_eq!(
        sources,
        ["flag --socket", "environment INFERA_KVD_ADMIN_SOCKET"]
    );
}

#[test]
fn an_unreadable_or_broken_file_is_a_problem_of_who_named_it() {
    let found = problems(&["--config", "gone.toml"], &[], no_file);
    assert!(
        found[0].starts_with("flag --config: cannot read gone.toml"),
        "{found:#?}"
    );
    let broken: fn(&Path) -> io::Result<String> = |_| Ok("max_bytes = \n".to_owned());
    let found = problems(&[], &[("INFERA_KVD_CONFIG", "kvd.toml")], broken);
    assert!(
        found[0].starts_with("environment INFERA_KVD_CONFIG: kvd.toml is not TOML"),
        "{found:#?}"
    );
    assert!(found[0].contains("line 1"), "{found:#?}");
}

#[test]
fn a_file_may_use_toml_types() {
    let typed: fn(&Path) -> io::Result<String> = |_| {
        Ok(
            "max_bytes = 1048576\nshared_arena_pin = false\nallow_uid = [0, 1000]\n\
            socket_mode = \"0660\"\nsocket_group = \"inference\"\nlong_paths = [\"/a\", \"/b\"]\n"
                .to_owned(),
        )
    };
    let settings = settings(&["--config=kvd.toml"], &[], typed);
    assert_eq!(settings.memory.budget_bytes, 1 << 20);
    assert!(!settings.memory.pin);
    assert_eq!(settings.allow_uids, [0, 1000]);
    assert_eq!(settings.socket_mode, 0o660);
    assert_eq!(settings.socket_group, Some(4711));
}

#[test]
fn groups_may_be_numbers() {
    assert_eq!(
        settings(&["--socket-group=12"], &[], no_file).socket_group,
        Some(12)
    );
}

#[test]
fn the_two_sockets_must_differ_and_fit() {
    let found = problems(&["--socket=/x", "--admin-socket=/x"], &[], no_file);
    assert!(
        found[0].starts_with("flag --admin-socket: /x is the engines' socket"),
        "{found:#?}"
    );
    let long = format!("--socket=/{}", "x".repeat(100));
    let found = problems(&[&long], &[], no_file);
    assert!(
        found[0].contains("set --admin-socket or a shorter --socket"),
        "{found:#?}"
    );
    settings(&[&long, "--admin-socket=/y"], &[], no_file);
    let plain = settings(&["--socket=/run/kvd"], &[], no_file);
    assert_eq!(plain.admin_socket, PathBuf::from("/run/kvd.admin.sock"));
}

#[test]
fn one_and_several_disk_folders_exclude_each_other() {
    let found = problems(
        &["--long-path=/a"],
        &[("INFERA_KVD_LONG_PATHS", "/b,/c")],
        no_file,
    );
    let wanted =
        "environment INFERA_KVD_LONG_PATHS: excludes flag --long-path; keep one of the two";
    assert_eq!(found, [wanted]);
}

#[test]
fn memory_beyond_the_arena_is_pointed_out_only_when_asked_for() {
    let remarks = |flags: &[&str]| settings(flags, &[], no_file).report.remarks;
    assert!(remarks(&["--shared-arena-bytes=2G"]).is_empty());
    let both = remarks(&["--shared-arena-bytes=2G", "--max-bytes=4G"]);
    assert!(
        both[0].contains("memory beyond the arena's 2147483648 bytes is not used"),
        "{both:?}"
    );
    assert!(remarks(&["--shared-arena-bytes=0", "--max-bytes=4G"]).is_empty());
}

#[test]
fn tiny_sizes_work() {
    let tiny = settings(
        &["--max-bytes=10", "--shared-arena-bytes=64K"],
        &[],
        no_file,
    );
    assert_eq!(
        (tiny.memory.arena_bytes, tiny.memory.budget_bytes),
        (65_536, 65_536)
    );
    let private = settings(&["--max-bytes=10", "--shared-arena-bytes=0"], &[], no_file);
    assert_eq!(private.memory.budget_bytes, 10);
    assert!(!private.memory.shared);
}

#[test]
fn help_teaches_and_version_tells() {
    let Ok(Invocation::Print(help)) = start(&["--help"], &[], no_file) else {
        panic!("no help");
    };
    for option in table::all().filter(|option| option.flag) {
        assert!(
            help.contains(&format!("--{}", option.name)),
            "--{} is not in the help",
            option.name
        );
    }
    for group in option::Group::ALL {
        assert!(help.contains(group.heading()), "{}", group.heading());
    }
    for fact in [
        "[default: 8G]",
        "--shared-arena-pin[=<BOOL>]",
        "--socket <PATH>",
        "powers of 1024",
    ] {
        assert!(help.contains(fact), "{fact} is not in:\n{help}");
    }
    let Ok(Invocation::Print(version)) = start(&["--version"], &[], no_file) else {
        panic!("no version");
    };
    assert_eq!(
        version.trim(),
        format!("infera-kvd {}", env!("CARGO_PKG_VERSION"))
    );
}

#[test]
fn the_description_names_values_and_sources() {
    let settings = settings(
        &["--shared-arena-bytes=1G"],
        &[("INFERA_KVD_NUMA", "bind:1")],
        no_file,
    );
    let text = settings.report.to_string();
    let line = |name: &str| {
        let found = text.lines().find(|line| line.starts_with(name));
        found
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .unwrap_or_default()
    };
    assert_eq!(
        line("shared-arena-bytes"),
        "shared-arena-bytes 1G flag --shared-arena-bytes"
    );
    assert_eq!(line("numa"), "numa bind:1 environment INFERA_KVD_NUMA");
    assert_eq!(line("view-grace"), "view-grace 1s default");
    assert!(
        text.contains("arena: 1073741824 bytes, shared with clients"),
        "{text}"
    );
    assert!(!text.contains("long-bytes"), "{text}");
}

/// The table of `docs/configuration.md` as the code has it.
fn documented() -> String {
    let mut text = String::new();
    for group in option::Group::ALL {
        text.push_str(&format!("\n### {}\n\n", group.heading()));
        text.push_str("| flag | environment | file key | default | value | meaning |\n|---|---|---|---|---|---|\n");
        for option in table::all().filter(|option| option.group == group) {
            let flag = if option.flag {
                format!("`--{}`", option.name)
            } else {
                "–".to_owned()
            };
            let names: Vec<String> = option
                .environment_names()
                .map(|name| format!("`{name}`"))
                .collect();
            let default = match option.default {
                "" => "–".to_owned(),
                default => format!("`{default}`"),
            };
            text.push_str(&format!(
                "| {flag} | {} | {} | {default} | {} | {} |\n",
                names.join(", "),
                if option.name == "config" {
                    "–".to_owned()
                } else {
                    format!("`{}`", option.name.replace('-', "_"))
                },
                option.kind.allowed(),
                option.help,
            ));
        }
    }
    text
}

#[test]
fn the_documentation_has_the_same_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let table = documented();
    assert!(
        page.contains(&table),
        "docs/configuration.md does not contain the option table; it should read:\n{table}"
    );
}
