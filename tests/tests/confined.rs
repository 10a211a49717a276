//! A container whose filter refuses what only makes things better: everything works all the same, and each refusal is
//! said once. The filters are real (seccomp).

use kvd_tests::client::{ClientLaunch, ClientProcess};
use kvd_tests::engine::{check, client_at, key_of, store_blocks};
use kvd_tests::figures::{figure, wait_idle, wait_no_leak, wait_warm};
use kvd_tests::{Daemon, Launch, PATIENCE, binaries};

/// Everything that the daemon can do without.
const ALL: [&str; 7] =
    ["io_uring", "pidfd_open", "peerpidfd", "collapse", "populate", "mbind", "mlock"];

fn confined(errno: &str, refused: &[&str]) -> Vec<String> {
    let launcher = binaries::path_of("kvd-test-confined").display().to_string();
    let words = [launcher.as_str(), errno].into_iter().chain(refused.iter().copied());
    words.chain(["--"]).map(str::to_owned).collect()
}

/// A daemon that is refused all of these, and whose warnings are looked at by the case.
fn confined_daemon(errno: &str, refused: &[&str]) -> Daemon {
    let daemon = Launch::new()
        .args(["--max-bytes", "64M", "--shared-arena-pin", "--numa", "bind:0"])
        .under(confined(errno, refused))
        .announce(" WARN ")
        .start();
    wait_warm(&daemon);
    daemon
}

/// Warnings without their time, sorted.
fn warnings(daemon: &Daemon) -> Vec<String> {
    let lines = daemon.log().lines().into_iter().filter(|line| line.contains(" WARN "));
    let mut said: Vec<String> = lines
        .map(|line| line.split_once(" WARN ").map_or(String::new(), |(_, said)| said.to_owned()))
        .collect();
    said.sort();
    said
}

/// All that a daemon does for its clients, with clients like `start` makes them.
fn serves(daemon: &Daemon, start: impl Fn(&[&str]) -> ClientProcess) {
    let writer = start(&["fill", "32", "300000"]);
    let _stored = writer.heard("stored=32");
    let reader = start(&["read-over-and-over", "32", "300000"]);
    let _reading = reader.heard("ready");
    let old = start(&["attach", "1"]);
    let _attached = old.heard("ready");
    for engine in [writer, reader, old] {
        let ended = engine.finish();
        assert!(ended.status.success(), "{:?}", ended.said);
    }
    // More than the arena holds.
    let client = client_at(daemon.socket());
    store_blocks(&client, 300, 500_000);
    check(&client, &key_of(299), 500_000);
    assert!(figure(daemon, "/totals/evictions") > 100);
    drop(client);
    wait_idle(daemon, PATIENCE);
}

#[test]
fn a_daemon_that_is_refused_everything_serves_and_says_each_refusal_once() {
    for errno in ["EPERM", "ENOSYS"] {
        let daemon = confined_daemon(errno, &ALL);
        let before = daemon.facts();
        serves(&daemon, |words| ClientProcess::start(daemon.socket(), words));
        wait_no_leak(&daemon, &before);
        let said = warnings(&daemon);
        let mut once = said.clone();
        once.dedup();
        assert_eq!(said, once, "said twice");
        for part in ["not locked", "4 KiB pages", "one by one", "NUMA policy", "client's process"] {
            let count = said.iter().filter(|line| line.contains(part)).count();
            assert_eq!(count, 1, "{part} in {said:?}");
        }
        let degraded = daemon.admin_get("/readyz");
        assert_eq!(degraded.status, 200, "it serves: {}", degraded.body);
        assert!(degraded.body.contains("not locked"), "{}", degraded.body);
        assert!(daemon.stop().success());
    }
}

#[test]
fn a_daemon_that_is_refused_nothing_has_nothing_to_say() {
    // The control of the case before: the launcher alone changes nothing.
    let daemon =
        Launch::new().args(["--max-bytes", "64M"]).under(confined("EPERM", &["io_uring"])).start();
    wait_warm(&daemon);
    serves(&daemon, |words| ClientProcess::start(daemon.socket(), words));
    assert_eq!(warnings(&daemon), Vec::<String>::new());
}

#[test]
fn clients_that_are_refused_everything_are_served() {
    let daemon = Launch::new().args(["--max-bytes", "64M"]).start();
    wait_warm(&daemon);
    let before = daemon.facts();
    serves(&daemon, |words| {
        ClientLaunch::new(daemon.socket(), words).under(confined("EPERM", &ALL)).start()
    });
    wait_no_leak(&daemon, &before);
}

#[test]
fn a_daemon_and_clients_that_are_refused_everything() {
    let daemon = confined_daemon("EPERM", &ALL);
    let before = daemon.facts();
    serves(&daemon, |words| {
        ClientLaunch::new(daemon.socket(), words).under(confined("ENOSYS", &ALL)).start()
    });
    wait_no_leak(&daemon, &before);
}
