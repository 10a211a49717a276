//! `infera-kvd doctor` and `kvdctl size`, as an operator calls them: what they print, how they exit, and that nothing stays
//! behind.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::path::Path;
use std::process::Command;

use kvd_tests::engine::{check, client_at, store};
use kvd_tests::figures::{figure, wait_idle, wait_warm};
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch, PATIENCE, binaries};
use serde_json::Value;
use tempfile::TempDir;

/// What a command printed, and its exit code.
struct Said {
    code: Option<i32>,
    out: String,
    complaint: String,
}

impl Said {
    fn of(command: &mut Command) -> Self {
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("INFERA_") {
                command.env_remove(name);
            }
        }
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Self {
            code: output.status.code(),
            out: text(output.stdout),
            complaint: text(output.stderr),
        }
    }

    /// The line about `what`, with the runs of blanks in it as one.
    fn line(&self, what: &str) -> String {
        let lines = self.out.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let found = lines.map(|words| words.join(" ")).find(|line| line.contains(what));
        found.unwrap_or_else(|| panic!("no {what} in:\n{}", self.out))
    }
}

fn folder() -> TempDir {
    tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp").unwrap()
}

fn doctor(socket: &Path, more: &[&str]) -> Said {
    let mut command = Command::new(binaries::path_of("infera-kvd"));
    command.args(["doctor", "--max-bytes", "8M", "--socket"]).arg(socket);
    Said::of(command.args(more))
}

#[test]
fn doctor_finds_nothing_wrong_where_the_daemon_starts() {
    let folder = folder();
    let socket = folder.path().join("kvd.sock");
    let said = doctor(&socket, &[]);
    assert_eq!(said.code, Some(0), "{}", said.out);
    assert!(said.line("memory ").starts_with("ok memory the arena takes 8 MiB"));
    assert!(said.line("socket ").contains("is free"));
    assert!(said.out.lines().last().unwrap().ends_with(" 0 failed"), "{}", said.out);
    let json: Value = serde_json::from_str(&doctor(&socket, &["--json"]).out).unwrap();
    assert_eq!(json["failed"], 0);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left behind");
    assert!(Launch::new().args(["--max-bytes", "8M"]).socket(&socket).start().stop().success());
}

#[test]
fn doctor_says_what_a_bad_host_lacks_before_the_daemon_does() {
    let folder = folder();
    let (socket, file) = (folder.path().join("kvd.sock"), folder.path().join("file"));
    fs::write(&file, "mine").unwrap();
    // The last one counts.
    let memory = doctor(&socket, &["--max-bytes", "900T"]);
    assert!(memory.line("memory ").starts_with("FAIL memory the arena takes 900 TiB"));
    assert!(memory.line("memory ").contains("-> an arena of"), "{}", memory.out);
    let place = doctor(&file, &[]);
    assert!(place.line("socket ").contains("exists and is not a socket"), "{}", place.out);
    let directory = doctor(&socket, &["--long-path", file.to_str().unwrap()]);
    assert!(directory.line("disk tier").starts_with("FAIL disk tier"), "{}", directory.out);
    for said in [&memory, &place, &directory] {
        assert_eq!(said.code, Some(1), "{}", said.out);
        assert!(said.out.lines().last().unwrap().ends_with(" 1 failed"), "{}", said.out);
    }
    // The daemon ends for the same reasons.
    let ended = Launch::new().args(["--max-bytes", "900T"]).run();
    assert_eq!(ended.code, Some(1), "{}", ended.output);
    let ended = Launch::new().args(["--max-bytes", "8M"]).socket(&file).run();
    assert!(ended.code == Some(1) && ended.output.contains("is not a socket"), "{}", ended.output);
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    let mut few = Command::new("bash");
    few.args(["-c", "ulimit -n 200; exec \"$@\"", "bash"]).arg(binaries::path_of("infera-kvd"));
    let few = Said::of(few.args(["doctor", "--max-bytes=8M", "--socket"]).arg(&socket));
    assert!(few.line("nofile ").starts_with("warn nofile 200 descriptors"), "{}", few.out);
    assert_eq!(few.code, Some(0), "a warning is no failure");
    let unknown = doctor(&socket, &["--bogus"]);
    assert!(
        unknown.code == Some(2) && unknown.complaint.contains("--bogus"),
        "{}",
        unknown.complaint
    );
}

#[test]
fn doctor_looks_at_a_running_daemon_and_leaves_it_as_it_is() {
    let daemon = Daemon::start(&["--max-bytes", "8M"]);
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    store(&client, b"block", 10_000);
    let entries = figure(&daemon, "/tiers/host/entries");
    let said = doctor(daemon.socket(), &[]);
    assert_eq!(said.code, Some(0), "{}", said.out);
    assert!(said.line("socket ").contains(&daemon.pid().to_string()), "{}", said.out);
    until_true("its session is gone", || figure(&daemon, "/sessions_connected") == 1);
    assert_eq!(figure(&daemon, "/tiers/host/entries"), entries);
    check(&client, b"block", 10_000);
    drop(client);
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
}

fn size(model: &Path, more: &[&str]) -> Said {
    let mut command = Command::new(binaries::path_of("kvdctl"));
    Said::of(command.args(["size", "--model"]).arg(model).args(more))
}

#[test]
fn size_tells_what_a_model_needs() {
    let folder = folder();
    let config = folder.path().join("config.json");
    let fields = r#"{"model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": 4096,
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8}"#;
    fs::write(&config, fields).unwrap();
    let words = ["--disk-bytes", "1T", "--prefill-tokens-per-second", "10000"];
    // The file, or the folder that it lies in.
    for model in [folder.path(), &config] {
        let said = size(model, &words);
        assert_eq!(said.code, Some(0), "{}", said.complaint);
        // 32 layers, a key and a value of 8 heads of 128 numbers of 2 bytes.
        assert_eq!(said.line("a token:"), "a token: 128.00 KiB (131,072 bytes)");
        assert_eq!(said.line("memory"), "memory 8.00 GiB 4,096 65,536");
        assert_eq!(said.line("disk"), "disk 1.00 TiB 524,288 8,388,608");
        assert_eq!(said.line("break-even"), "break-even at 10,000 tokens/s: 1.22 GiB/s");
    }
    let json = size(&config, &["--json", "--dtype", "fp8", "--host-bytes", "1G"]);
    let json: Value = serde_json::from_str(&json.out).unwrap();
    assert_eq!(
        (&json["token_bytes"], &json["tiers"][0]["tokens"]),
        (&65_536.into(), &16_384.into())
    );
    let absent = size(&folder.path().join("none"), &[]);
    assert!(absent.code == Some(1) && absent.complaint.contains("none"), "{}", absent.complaint);
    fs::write(&config, r#"{"a": 1}"#).unwrap();
    let other = size(&config, &[]);
    assert!(other.code == Some(1) && other.complaint.contains("num_hidden_layers"));
    let wrong = Said::of(Command::new(binaries::path_of("kvdctl")).arg("size"));
    assert!(wrong.code == Some(2) && wrong.complaint.contains("--model"), "{}", wrong.complaint);
}
