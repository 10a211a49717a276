//! The operator's tool against the real daemon: what it prints and how it exits.

#![expect(clippy::unwrap_used, reason = "a case stops at the first surprise")]

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kvd_tests::figures::wait_warm;
use kvd_tests::{Daemon, Launch, binaries};
use serde_json::Value;

const SMALL: &[&str] = &["--max-bytes", "64M"];

fn kvdctl(daemon: &Daemon, line: &str) -> Output {
    kvdctl_fed(daemon, line, b"")
}

fn kvdctl_fed(daemon: &Daemon, line: &str, input: &[u8]) -> Output {
    let mut child = Command::new(binaries::path_of("kvdctl"))
        .args(line.split_whitespace())
        .env("INFERA_KVD_SOCKET", daemon.socket())
        .env_remove("INFERA_KVD_ADMIN_SOCKET")
        .current_dir(daemon.folder())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// What a command that must succeed prints.
fn printed(daemon: &Daemon, line: &str) -> String {
    let output = kvdctl(daemon, line);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{line}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

/// The exit code and the complaint of a command that must fail.
fn complaint(daemon: &Daemon, line: &str) -> (Option<i32>, String) {
    let output = kvdctl(daemon, line);
    assert!(output.stdout.is_empty(), "{line}");
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_block_goes_in_and_comes_out() {
    let daemon = Daemon::start(SMALL);
    let every_byte: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    let put = kvdctl_fed(&daemon, "put 00ff - --model m --retention long", &every_byte);
    assert_eq!(put.status.code(), Some(0));
    assert_eq!(kvdctl(&daemon, "get 00FF --model m").stdout, every_byte);
    assert_eq!(printed(&daemon, "get 00ff --model m -o out"), "");
    assert_eq!(std::fs::read(daemon.folder().join("out")).unwrap(), every_byte);
    assert_eq!(printed(&daemon, "put --text empty /dev/null --ttl 3600"), "");
    assert_eq!(printed(&daemon, "get --text empty"), "");
    let rows = printed(&daemon, "ls --json");
    let rows: Vec<Value> = rows.lines().map(|row| serde_json::from_str(row).unwrap()).collect();
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().any(|row| row["key"] == "00ff" && row["retention"] == "long"));
    assert!(printed(&daemon, "ls --model m --prefix 00").contains("70,000"));
    assert_eq!(printed(&daemon, "ls --model nobody"), "");
    assert_eq!(printed(&daemon, "clear --model m --yes"), "blocks cleared: 1\n");
    assert_eq!(printed(&daemon, "clear --everything -y"), "blocks cleared: 1\n");
}

#[test]
fn a_miss_is_explained() {
    let daemon = Daemon::start(SMALL);
    assert_eq!(kvdctl_fed(&daemon, "put aa - --model m", b"x").status.code(), Some(0));
    assert!(printed(&daemon, "why aa --model m").starts_with("present: 1 bytes, class short"));
    let elsewhere = printed(&daemon, "why aa --model other");
    assert!(elsewhere.starts_with("missing (other_namespace)"), "{elsewhere}");
    assert!(elsewhere.contains("model \"m\""), "{elsewhere}");
    let answer: Value = serde_json::from_str(&printed(&daemon, "why bb --json")).unwrap();
    assert_eq!(answer["reason"], "never_stored");
    let (code, words) = complaint(&daemon, "get aa --model other");
    assert_eq!((code, words.as_str()), (Some(1), "kvdctl: miss: other_namespace\n"));
}

#[test]
fn figures_have_a_form_for_people_and_two_for_scripts() {
    let daemon = Daemon::start(SMALL);
    assert_eq!(kvdctl_fed(&daemon, "put aa -", b"12345").status.code(), Some(0));
    let reference = printed(&daemon, "stat --reference");
    assert!(reference.starts_with("{\n  \"entries\": 1,\n  \"host_bytes\": 5,\n  \"spillover"));
    assert_eq!(reference.lines().count(), 11);
    let all: Value = serde_json::from_str(&printed(&daemon, "stat --json")).unwrap();
    assert_eq!(all["sets_total"], 1);
    let people = printed(&daemon, "stat");
    for part in ["BLOCKS\n", "REQUESTS\n", "arena_bytes", "sets_total", "figures are zero: --all"] {
        assert!(people.contains(part), "{part} in {people}");
    }
    assert!(!people.contains("misses_shed_total") && people.lines().count() < 30, "{people}");
    let figures = all.as_object().unwrap();
    let zeros = figures.values().filter(|value| **value == 0).count();
    assert!(zeros > 20 && people.contains(&format!("{zeros} figures are zero")), "{people}");
    let people = printed(&daemon, "stat --all");
    assert!(figures.keys().all(|name| people.contains(&format!("  {name} "))), "{people}");
    assert!(!people.contains("are zero"), "{people}");
}

#[test]
fn top_names_the_sessions() {
    let daemon = Daemon::start(SMALL);
    let mut options = kvd_client::Options::new(daemon.socket(), "engine-7");
    options.deadline = kvd_tests::PATIENCE;
    let client = kvd_client::Client::new(options);
    let retention = kvd_client::Retention::Short;
    let tickets = client.reserve(&[4096], retention, kvd_tests::PATIENCE).unwrap();
    let shown = printed(&daemon, "top --once");
    let row = shown.lines().find(|line| line.starts_with("engine-7")).expect("a row");
    assert!(row.contains(&std::process::id().to_string()), "{row}");
    assert!(shown.contains("kvd-") && shown.contains("arena 64.00 MiB"), "{shown}");
    drop(tickets);
    assert_eq!(complaint(&daemon, "top").0, Some(2), "no terminal here");
}

#[test]
fn a_measurement_leaves_nothing_behind() {
    let daemon = Daemon::start(SMALL);
    let shown = printed(&daemon, "bench --block-bytes 4K --blocks 100 --batch 7");
    for line in ["put", "locate", "get"] {
        assert!(shown.lines().any(|row| row.starts_with(line)), "{shown}");
    }
    assert_eq!(printed(&daemon, "ls"), "");
    assert_eq!(complaint(&daemon, "bench --block-bytes 1G").0, Some(1), "more than the arena");
    assert!(!shown.contains("--max-bytes"), "nothing was refused: {shown}");
}

#[test]
fn a_measurement_names_the_limit_that_it_met() {
    let daemon = Daemon::start(SMALL);
    wait_warm(&daemon);
    let shown = printed(&daemon, "bench --block-bytes 256K --blocks 120");
    let line = shown.lines().find(|line| line.starts_with("locate: ")).expect(&shown);
    for part in ["16.00 MiB of 64.00 MiB", "--promise-window", "--blocks", "--max-bytes"] {
        assert!(line.contains(part), "{part} in {line}");
    }
    assert_eq!(printed(&daemon, "ls"), "");
}

#[test]
fn the_wrong_one_of_two_sockets_is_recognised() {
    let daemon = Daemon::start(SMALL);
    let (engines, admin) = (daemon.socket().to_owned(), daemon.admin_socket());
    for command in ["top --once", "ls", "drain", "why 00"] {
        let line = format!("{command} --admin-socket {}", engines.display());
        let (code, said) = complaint(&daemon, &line);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("the socket that engines use, not the admin socket"), "{said}");
        assert!(said.contains("--admin-socket") && said.contains("--socket"), "{said}");
    }
    let line = format!("get 00 --socket {}", admin.display());
    let (code, said) = complaint(&daemon, &line);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("--socket names") && said.contains("--admin-socket"), "{said}");
    // The one that takes connections and says nothing is no daemon's.
    let mute = daemon.folder().join("mute.sock");
    let _listening = UnixListener::bind(&mute).unwrap();
    let (code, said) = complaint(&daemon, "ls --admin-socket mute.sock");
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("no answer") && said.contains("see --admin-socket"), "{said}");
}

/// Runs a copy of kvdctl, which every user can reach in the daemon's folder, as nobody.
fn as_nobody(daemon: &Daemon, line: &str) -> (Option<i32>, String) {
    let copy = daemon.folder().join("kvdctl");
    if !copy.try_exists().unwrap() {
        std::fs::copy(binaries::path_of("kvdctl"), &copy).unwrap();
    }
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
    let output = Command::new("setpriv")
        .args(nobody)
        .arg(copy)
        .args(line.split_whitespace())
        .env("INFERA_KVD_SOCKET", daemon.socket())
        .env_remove("INFERA_KVD_ADMIN_SOCKET")
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn who_may_not_connect_is_told_who_may() {
    let daemon = Launch::new()
        .args(SMALL)
        .args(["--socket-mode", "0770", "--socket-group", "4000000001"])
        .start();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    open(daemon.folder(), 0o755);
    let (code, said) = as_nobody(&daemon, "stat");
    assert_eq!(code, Some(3), "{said}");
    let denied = format!("permission denied: {} belongs to user root", daemon.socket().display());
    assert!(said.contains(&denied) && said.contains("mode 0770"), "{said}");
    assert!(said.contains("hint: join group 4000000001") && !said.contains("no daemon"), "{said}");
    let (code, said) = as_nobody(&daemon, "top --once");
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("kvd.admin.sock belongs to") && said.contains("run this as user root"),
        "{said}"
    );
    // Who may not even pass the folder is told of the folder.
    let inner = daemon.folder().join("closed");
    std::fs::create_dir(&inner).unwrap();
    open(&inner, 0o700);
    let (code, said) = as_nobody(&daemon, &format!("stat --socket {}/kvd.sock", inner.display()));
    assert_eq!(code, Some(3), "{said}");
    let denied = format!("permission denied: {} belongs to user root", inner.display());
    assert!(said.contains(&denied), "{said}");
}

#[test]
fn exit_codes_tell_wrong_usage_from_failure() {
    let daemon = Daemon::start(SMALL);
    for line in ["get xyz", "clear --model m", "put 00 - --retention forever", "frobnicate"] {
        assert_eq!(complaint(&daemon, line).0, Some(2), "{line}");
    }
    assert_eq!(complaint(&daemon, "put 00 /no/such/file").0, Some(1));
    for command in ["stat", "get 00", "clear --everything --yes", "ls", "why 00", "top --once"] {
        let line = format!("{command} --socket nobody.sock");
        let (code, words) = complaint(&daemon, &line);
        assert_eq!(code, Some(1), "{line}");
        assert!(words.contains("nobody"), "{words}");
    }
    assert!(printed(&daemon, "--help").contains("Usage: kvdctl"));
}
