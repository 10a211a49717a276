//! Client and daemon that do not see each other's processes: everything works, and the end of a process is noticed.
//! And the rule for those whose end nobody can notice.

use std::time::{Duration, Instant};

use kvd_client::{Refusal, Retention};
use kvd_tests::client::{ClientLaunch, ClientProcess};
use kvd_tests::engine::{check, client_at, key_of, store_blocks};
use kvd_tests::figures::{figure, session, wait_idle, wait_no_leak, wait_warm};
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch, PATIENCE, binaries};

const FREED_WITHIN: Duration = Duration::from_secs(1);
/// User, process and IPC namespaces of its own, as a container has them.
const APART: [&str; 6] = ["unshare", "--user", "--map-root-user", "--pid", "--ipc", "--fork"];

fn warm(launch: Launch) -> Daemon {
    let daemon = launch.args(["--max-bytes", "32M"]).start();
    wait_warm(&daemon);
    daemon
}

/// A client with these words, in namespaces of its own.
fn client_apart(daemon: &Daemon, words: &[&str]) -> ClientProcess {
    ClientLaunch::new(daemon.socket(), words).under(APART).start()
}

/// A daemon that may not ask the kernel for its peers' processes.
fn blind_daemon(wrapper: &[&str]) -> Daemon {
    let confined = binaries::path_of("kvd-test-confined");
    let launch = Launch::new().under(wrapper.iter().copied()).under([confined.as_os_str()]);
    warm(launch.under(["EPERM", "peerpidfd", "--"]).announce("client's process"))
}

fn serves_and_notices_the_end(daemon: &Daemon, start: impl Fn(&[&str]) -> ClientProcess) {
    let writer = start(&["fill", "16", "100000"]);
    let _stored = writer.heard("stored=16");
    let reader = start(&["read-over-and-over", "16", "100000"]);
    let _reading = reader.heard("ready");
    assert!(writer.finish().status.success());
    let before = daemon.facts();
    for _ in 0..5 {
        let doomed = start(&["hold", "5", "300000", "16"]);
        let _holding = doomed.heard("holding");
        let seen = session(daemon, |session| session["tickets"] == 5);
        assert_eq!(seen["process_watched"], true, "{seen}");
        let gone = doomed.kill();
        let left = (gone.at + FREED_WITHIN).saturating_duration_since(Instant::now());
        kvd_tests::until::until("its tickets are free", left, || {
            (figure(daemon, "/held/tickets") == 0).then_some(())
        });
    }
    // The connection closes, the process lives: then its bytes are not anybody's yet.
    let alive = start(&["hold-unconnected", "2", "1000000"]);
    let _offsets = alive.heard("offsets");
    until_true("its bytes are quarantined", || {
        figure(daemon, "/held/quarantined_bytes") >= 2_000_000
    });
    assert!(alive.finish().status.success());
    until_true("its end was noticed", || figure(daemon, "/held/quarantined_bytes") == 0);
    let ended = reader.finish();
    assert!(ended.status.success(), "{:?}", ended.said);
    wait_idle(daemon, PATIENCE);
    wait_no_leak(daemon, &before);
}

#[test]
fn a_client_in_namespaces_of_its_own() {
    let daemon = warm(Launch::new());
    serves_and_notices_the_end(&daemon, |words| client_apart(&daemon, words));
}

#[test]
fn a_daemon_in_namespaces_of_its_own() {
    // There it is the first process, whom the kernel shields from signals that it does not wait for.
    let daemon = warm(Launch::new().under(APART));
    let start = |words: &[&str]| ClientProcess::start(daemon.socket(), words);
    serves_and_notices_the_end(&daemon, start);
    assert!(daemon.stop().success());
}

#[test]
fn both_in_namespaces_of_their_own_see_no_numbers_and_need_none() {
    let daemon = warm(Launch::new().under(APART));
    let client = client_apart(&daemon, &["hold", "1", "1000", "0"]);
    let _holding = client.heard("holding");
    let seen = session(&daemon, |session| session["tickets"] == 1);
    assert_eq!((&seen["pid"], &seen["process_watched"]), (&serde_json::Value::Null, &true.into()));
    let _gone = client.kill();
    until_true("it is gone", || figure(&daemon, "/held/tickets") == 0);
    serves_and_notices_the_end(&daemon, |words| client_apart(&daemon, words));
    assert!(daemon.stop().success());
}

#[test]
fn a_daemon_that_cannot_ask_the_kernel_takes_the_descriptor_that_clients_pass() {
    let daemon = blind_daemon(&[]);
    let doomed = ClientProcess::start(daemon.socket(), &["hold", "5", "300000", "0"]);
    let _holding = doomed.heard("holding");
    let seen = session(&daemon, |session| session["tickets"] == 5);
    assert_eq!(seen["process_watched"], true, "{seen}");
    let gone = doomed.kill();
    wait_idle(&daemon, (gone.at + FREED_WITHIN).saturating_duration_since(Instant::now()));
    // The refusal is said once, however many come.
    let _more: Vec<_> = (0..5).map(|_| daemon.connect().attach(2)).collect();
    until_true("all are greeted", || figure(&daemon, "/sessions_connected") == 5);
    assert_eq!(daemon.log().count(" WARN "), 1, "{}", daemon.log().text());
}

#[test]
fn what_nobody_can_watch_is_bounded_counted_and_for_an_operator_to_release() {
    // An eighth of the arena.
    const BOUND: u64 = 4 << 20;
    let mut daemon = blind_daemon(&APART);
    daemon.announce("quarantine released by hand");
    let mut taken = 0;
    for count in 1..=3 {
        let doomed = client_apart(&daemon, &["hold", "1", "1000000", "0"]);
        let _holding = doomed.heard("holding");
        let seen =
            session(&daemon, |session| session["tickets"] == 1 && session["closed"] == false);
        assert_eq!(seen["process_watched"], false, "{seen}");
        let _gone = doomed.kill();
        until_true("it is closed", || figure(&daemon, "/sessions_connected") == 0);
        taken = figure(&daemon, "/held/quarantined_bytes");
        assert!((count * 1_000_000..=BOUND).contains(&taken), "{taken}");
    }
    let metric = daemon.metric("infera_kvd_quarantined_bytes");
    assert_eq!(metric, Some(f64::from(u32::try_from(taken).unwrap())));
    // As much as would go beyond the bound is refused, to whoever cannot be watched; not to others.
    let other = client_apart(&daemon, &["hold", "2", "1000000", "0"]);
    let refused = other.finish();
    assert!(!refused.status.success());
    assert!(refused.said.join("\n").contains("QuarantineFull"), "{:?}", refused.said);
    let answer = daemon.admin_post("/v1/quarantine/release");
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(figure(&daemon, "/held/quarantined_bytes"), 0);
    let again = client_apart(&daemon, &["hold", "2", "1000000", "0"]);
    let _holding = again.heard("tickets=2");
    assert!(again.finish().status.success());
}

#[test]
fn unwatched_clients_that_hold_nothing_leave_nothing() {
    let daemon = blind_daemon(&APART);
    let before = daemon.facts();
    let client = client_at(daemon.socket());
    store_blocks(&client, 16, 100_000);
    (0..16).for_each(|index| check(&client, &key_of(index), 100_000));
    let refused = client.reserve(&[5 << 20], Retention::Short, Duration::from_millis(20)).unwrap();
    assert_eq!(refused[0].as_ref().unwrap_err(), &Refusal::QuarantineFull);
    drop(client);
    wait_idle(&daemon, PATIENCE);
    wait_no_leak(&daemon, &before);
}
