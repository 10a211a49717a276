//! The operator's tool and the disk tier: a planned restart, a look at the device without a daemon, a repair.

#![expect(clippy::unwrap_used, reason = "a case stops at the first surprise")]

use std::fs::Permissions;
use std::io::Write;
use std::os::unix::fs::{FileExt, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kvd_tests::figures::wait_warm;
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, binaries};
use serde_json::Value;
use tempfile::TempDir;

/// Runs kvdctl; `daemon` is none where none is needed.
fn kvdctl(daemon: Option<&Daemon>, words: &[&str], input: &[u8]) -> Output {
    let nowhere = Path::new("/nonexistent.sock");
    let mut child = Command::new(binaries::path_of("kvdctl"))
        .args(words)
        .env("INFERA_KVD_SOCKET", daemon.map_or(nowhere, Daemon::socket))
        .env_remove("INFERA_KVD_ADMIN_SOCKET")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

/// What a command prints, and its exit code.
fn outcome(daemon: Option<&Daemon>, words: &[&str]) -> (Option<i32>, String) {
    let output = kvdctl(daemon, words, b"");
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap() + &said)
}

/// The answer of a command that must succeed.
fn json(daemon: Option<&Daemon>, words: &[&str]) -> Value {
    let (code, said) = outcome(daemon, words);
    assert_eq!(code, Some(0), "{words:?}: {said}");
    serde_json::from_str(&said).unwrap()
}

/// A daemon that knows already what is on the device.
fn start(disk: &TempDir) -> Daemon {
    let path = disk.path().to_str().unwrap();
    let daemon = Daemon::start(&["--max-bytes", "64M", "--long-path", path, "--long-bytes", "64M"]);
    until_true("the device is read", || {
        daemon.admin_json("/v1/stats")["devices"][0]["health"] == "ok"
    });
    daemon
}

fn block(number: u8) -> Vec<u8> {
    (0..=255).cycle().skip(number.into()).take(300_000).collect()
}

/// Stores blocks 0 to 9 of class short: only a drain brings them to disk.
fn store_ten(daemon: &Daemon) {
    for number in 0..10 {
        let key = format!("{number:02}");
        let put = kvdctl(Some(daemon), &["put", &key, "-", "--retention", "short"], &block(number));
        assert_eq!(put.status.code(), Some(0));
    }
}

#[test]
fn a_drained_daemon_comes_back_with_everything() {
    let disk = tempfile::tempdir().unwrap();
    let daemon = start(&disk);
    store_ten(&daemon);
    let drained = json(Some(&daemon), &["drain", "--deadline", "60s", "--json"]);
    assert_eq!(drained["state"], "done");
    assert_eq!(drained["durable"], true);
    let (code, said) = outcome(Some(&daemon), &["drain"]);
    assert_eq!(code, Some(0));
    assert!(said.starts_with("all written"), "{said}");
    let (_, rows) = outcome(Some(&daemon), &["ls", "--tier", "l3", "--json"]);
    assert_eq!(rows.lines().count(), 10, "{rows}");
    assert!(outcome(Some(&daemon), &["why", "03"]).1.contains("also on device 0"));
    assert!(outcome(Some(&daemon), &["stat"]).1.contains(disk.path().to_str().unwrap()));
    assert!(outcome(Some(&daemon), &["top", "--once"]).1.contains(": ok, 10 blocks"));
    daemon.kill();
    let daemon = start(&disk);
    for number in 0..10 {
        let got = kvdctl(Some(&daemon), &["get", &format!("{number:02}")], b"");
        assert!(got.stdout == block(number), "{number}: {}", String::from_utf8_lossy(&got.stderr));
    }
    assert!(daemon.stop().success());
}

#[test]
fn a_device_is_verified_and_repaired_without_its_daemon() {
    let disk = tempfile::tempdir().unwrap();
    let path = disk.path().to_str().unwrap();
    let daemon = start(&disk);
    store_ten(&daemon);
    assert_eq!(outcome(Some(&daemon), &["drain"]).0, Some(0));
    let (code, said) = outcome(None, &["verify", path]);
    assert_eq!(code, Some(1));
    let holder = format!("in use by infera-kvd, process {}", daemon.pid());
    assert!(said.contains(&holder), "{said}");
    let (_, rows) = outcome(Some(&daemon), &["ls", "--tier", "l3", "--json", "--prefix", "07"]);
    let row: Value = serde_json::from_str(rows.trim()).unwrap();
    let place = row["offset"].as_u64().unwrap() + 123_456;
    assert!(daemon.stop().success());

    let whole = json(None, &["verify", path, "--json"]);
    assert_eq!((&whole["blocks"], &whole["bytes"]), (&10.into(), &3_000_000.into()));
    let container = disk.path().join("infera-kvd/container-00000");
    let container = std::fs::OpenOptions::new().write(true).open(container).unwrap();
    container.write_all_at(b"\xff\xff", place).unwrap();
    let (code, said) = outcome(None, &["verify", path]);
    assert_eq!(code, Some(1));
    assert!(said.contains("1 bad") && said.contains("corrupt"), "{said}");
    assert!(said.contains("nothing was changed"), "{said}");
    let repaired = json(None, &["verify", path, "--json", "--drop-bad"]);
    assert_eq!((&repaired["bad"][0]["key"], &repaired["dropped"]), (&"07".into(), &1.into()));
    assert_eq!(json(None, &["verify", path, "--json"])["blocks"], 9);
    let (_, journal) = outcome(None, &["dump-journal", path]);
    assert!(journal.lines().any(|line| line.ends_with(": corrupt")), "{journal}");

    let daemon = start(&disk);
    let (code, said) = outcome(Some(&daemon), &["get", "07"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(kvdctl(Some(&daemon), &["get", "08"], b"").stdout == block(8));
    assert!(daemon.stop().success());
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
    let disk = TempDir::new().unwrap();
    let daemon = start(&disk);
    store_ten(&daemon);
    drop(daemon);
    for name in ["journal-a", "superblock"] {
        let path = disk.path().join("infera-kvd").join(name);
        std::fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
        for command in ["verify", "dump-journal"] {
            let (code, text) = outcome(None, &[command, disk.path().to_str().unwrap()]);
            assert_eq!(code, Some(1), "{command} over {name}: {text}");
        }
    }
}

#[test]
fn what_has_no_disk_tier_says_so() {
    let daemon = Daemon::start(&["--max-bytes", "64M"]);
    wait_warm(&daemon);
    let (code, said) = outcome(Some(&daemon), &["drain"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("--long-path"), "{said}");
    let folder = daemon.folder().to_str().unwrap();
    for command in ["verify", "dump-journal"] {
        let (code, said) = outcome(None, &[command, folder]);
        assert_eq!(code, Some(1));
        assert!(said.contains("holds no device"), "{said}");
    }
    let (code, said) = outcome(None, &["classify", folder]);
    assert_eq!(code, Some(0));
    assert!(said.contains(" I/O") && said.contains("mounted at"), "{said}");
    assert_eq!(outcome(None, &["classify", "/nonexistent"]).0, Some(1));
}

#[test]
fn a_drain_that_ran_out_of_time_says_so_once() {
    let disk = tempfile::tempdir().unwrap();
    let daemon = start(&disk);
    store_ten(&daemon);
    let (code, said) = outcome(Some(&daemon), &["drain", "--deadline", "1ms"]);
    // A quick device may be done before anybody looks at the clock: then the two agree on that.
    let begins =
        if code == Some(0) { "all written" } else { "given up after the deadline of 1ms; " };
    assert!(matches!(code, Some(0 | 1)) && said.starts_with(begins), "{code:?} {said}");
    // Of what only memory held by then: blocks are also written ahead.
    assert!(code == Some(0) || said.contains(" written"), "{said}");
    let (code, said) = outcome(Some(&daemon), &["drain"]);
    assert_eq!((code, said.starts_with("all written")), (Some(0), true), "{said}");
}

#[test]
fn a_directory_that_is_somebody_elses_is_not_called_slow() {
    let place = tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp").unwrap();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    };
    open(place.path(), 0o755);
    let copy = place.path().join("kvdctl");
    std::fs::copy(binaries::path_of("kvdctl"), &copy).unwrap();
    let folder = place.path().join("kv");
    std::fs::create_dir(&folder).unwrap();
    let classify = || {
        let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups", "--"];
        let output = Command::new("setpriv")
            .args(nobody)
            .args([copy.as_os_str(), "classify".as_ref(), folder.as_os_str()])
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &said)
    };
    for mode in [0o755, 0o700] {
        open(&folder, mode);
        let (code, said) = classify();
        assert_eq!(code, Some(3), "{said}");
        let denied = format!("permission denied: {} belongs to user root", folder.display());
        assert!(said.contains(&denied) && said.contains("hint: "), "{said}");
        assert!(!said.contains("direct I/O"), "{said}");
    }
    // What a daemon of that user has made there is its own, whoever has the rest.
    let own = folder.join("infera-kvd");
    std::fs::create_dir(&own).unwrap();
    open(&folder, 0o755);
    std::os::unix::fs::chown(&own, Some(65_534), None).unwrap();
    let (code, said) = classify();
    assert_eq!(code, Some(0), "{said}");
    assert!(!said.contains("Permission denied"), "{said}");
}
