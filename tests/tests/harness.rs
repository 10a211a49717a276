//! The harness held against the real daemon: a case that starts nothing, or reads nothing, would prove nothing.

use kvd_tests::wire::Value;
use kvd_tests::{Daemon, Launch, PATIENCE, process};

const SMALL: &[&str] = &["--max-bytes", "16M"];

#[test]
fn a_daemon_starts_answers_and_stops() {
    let daemon = Daemon::start(SMALL);
    let pid = daemon.pid();
    let answer = daemon.connect().ask("stats", &[]);
    assert_eq!((answer.op(), answer.u64("entries")), ("stats_response", 0));
    assert!(daemon.facts().thread_count() > 1);
    let socket = daemon.socket().to_path_buf();
    assert!(daemon.stop().success());
    assert!(!process::is_running(pid) && !socket.try_exists().unwrap());
}

#[test]
fn a_dropped_daemon_leaves_no_process_and_no_folder() {
    let daemon = Daemon::start(SMALL);
    let (pid, folder) = (daemon.pid(), daemon.folder().to_path_buf());
    drop(daemon);
    assert!(!process::is_running(pid) && !folder.try_exists().unwrap());
}

#[test]
fn both_protocols_attach_to_the_arena() {
    let daemon = Daemon::start(SMALL);
    for version in [1, 2] {
        let attached = daemon.connect().attach(version);
        assert_eq!(attached.ack.u64("protocol_version"), version);
        assert_eq!(attached.arena.bytes(), 16 << 20);
    }
}

#[test]
fn any_bytes_can_be_sent_and_a_quiet_end_is_seen() {
    let daemon = Daemon::start(SMALL);
    let mut wire = daemon.connect();
    wire.send(&[0, 0, 0, 1, 0xc1]);
    wire.expect_closed();
    let mut wire = daemon.connect();
    let error = wire.ask("set", &[("key", Value::from(7)), ("value", Value::from("text"))]);
    assert_eq!((error.op(), error.text("code")), ("error", "internal_error"));
}

#[test]
fn the_admin_socket_answers() {
    let daemon = Daemon::start(SMALL);
    assert_eq!(daemon.admin_get("/healthz").status, 200);
    assert!(daemon.admin_json("/v1/stats").is_object());
    assert_eq!(daemon.admin_get("/no/such/page").status, 404);
    let page = daemon.admin_get("/metrics").body;
    let (series, value) =
        page.lines().find(|line| !line.starts_with('#')).unwrap().rsplit_once(' ').unwrap();
    assert_eq!(daemon.metric(series), Some(value.parse().unwrap()));
    assert_eq!(daemon.metric("infera_kvd_no_such_thing"), None);
}

#[test]
fn a_start_that_must_fail_is_seen_to_fail() {
    let finished = Launch::new().args(["--max-bytes", "lots"]).run();
    assert_eq!(finished.code, Some(2));
    assert!(finished.output.contains("lots"), "{}", finished.output);
}

#[test]
fn a_daemon_can_be_started_by_way_of_another_program() {
    let daemon = Launch::new().args(SMALL.iter().copied()).under(["nice", "-n", "1"]).start();
    assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
    assert!(daemon.stop().success());
}

#[test]
#[should_panic(expected = "unexpected in the log")]
fn an_unannounced_warning_fails_the_case() {
    // A flag of a tier that is not there is said as a warning.
    let daemon = Daemon::start(&["--max-bytes", "16M", "--long-backend", "mooncake"]);
    daemon.kill();
}

#[test]
fn an_announced_warning_passes() {
    let mut daemon = Daemon::start(&["--max-bytes", "16M", "--long-backend", "mooncake"]);
    daemon.announce("long-backend");
    assert!(daemon.log().wait_for("long-backend").contains("WARN"));
    assert!(daemon.stop().success());
}

#[test]
#[should_panic(expected = "no socket")]
fn a_daemon_that_ends_at_start_fails_the_case_at_once() {
    assert!(PATIENCE.as_secs() > 5);
    let _never = Daemon::start(&["--no-such-flag"]);
}
