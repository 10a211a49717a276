//! What the service manager hears of the daemon: when it serves, when it ends, and that it lives only as long as it does.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::fs;
use std::time::{Duration, Instant};

use kvd_tests::supervisor::Supervisor;
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

fn launch() -> Launch {
    Launch::new().args(["--max-bytes", "32M"])
}

#[test]
fn it_is_told_when_engines_can_connect_and_when_the_end_comes() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    supervisor.wait_for("READY=1", 1);
    assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
    assert_eq!(supervisor.count("STOPPING=1"), 0);
    assert!(daemon.stop().success());
    supervisor.wait_for("STOPPING=1", 1);
    assert_eq!((supervisor.count("READY=1"), supervisor.count("WATCHDOG=1")), (1, 0));
}

#[test]
fn without_a_manager_nobody_is_told_and_with_a_deaf_one_the_daemon_serves() {
    let daemon = Launch::new().args(["--max-bytes", "32M"]).start();
    assert!(!daemon.facts().threads.contains_key("kvd-watchdog"));
    assert!(daemon.stop().success());
    let launch = launch().env("NOTIFY_SOCKET", "/nowhere/notify").env("WATCHDOG_USEC", "100000");
    let daemon = launch.announce("the service manager could not be told").start();
    assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
    assert_eq!(daemon.log().count("the service manager could not be told"), 1);
    assert!(daemon.stop().success());
}

#[test]
fn it_hears_that_the_daemon_lives() {
    let supervisor = Supervisor::new().watchdog(Duration::from_millis(100));
    let daemon = supervisor.start(launch());
    supervisor.wait_for("WATCHDOG=1", 10);
    assert!(daemon.stop().success());
}

/// The thread of the daemon that is called so.
fn thread(daemon: &Daemon, name: &str) -> Pid {
    let tasks = fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let called = |path: &std::path::Path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    };
    let path = tasks.flatten().map(|task| task.path()).find(|path| called(path)).unwrap();
    Pid::from_raw(path.file_name().unwrap().to_str().unwrap().parse().unwrap())
}

/// A process in which one thread is stuck runs all its other threads, the watchdog's among them.
#[test]
fn a_daemon_that_accepts_nobody_is_not_reported_alive() {
    let supervisor = Supervisor::new().watchdog(Duration::from_millis(100));
    let daemon = supervisor.start(launch().announce("nobody is accepted any more"));
    supervisor.wait_for("WATCHDOG=1", 3);
    let acceptor = thread(&daemon, "kvd-accept");
    ptrace::attach(acceptor).unwrap();
    waitpid(acceptor, Some(WaitPidFlag::__WALL)).unwrap();
    let _said = daemon.log().wait_for("nobody is accepted any more");
    let before = supervisor.count("WATCHDOG=1");
    let pause = Instant::now();
    until_true("a second has passed", || pause.elapsed() > Duration::from_secs(1));
    assert_eq!(supervisor.count("WATCHDOG=1"), before);
    ptrace::detach(acceptor, None).unwrap();
    supervisor.wait_for("WATCHDOG=1", before + 3);
    assert!(daemon.stop().success());
}
