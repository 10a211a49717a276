//! What the daemon says about itself, as numbers: waited for, compared, summed up.

use std::time::Duration;

use serde_json::Value;

use crate::daemon::Daemon;
use crate::process::ProcessFacts;
use crate::until::{until_true, within};

/// The number at `path` (`/held/tickets`) of `/v1/stats`.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn figure(daemon: &Daemon, path: &str) -> u64 {
    number(&daemon.admin_json("/v1/stats"), path)
}

/// The number at `path` of any JSON.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn number(json: &Value, path: &str) -> u64 {
    let found = json.pointer(path).and_then(Value::as_u64);
    found.unwrap_or_else(|| panic!("no {path} in {json}"))
}

/// Waits until the daemon is complete and the whole arena is touched.
///
/// # Panics
/// If that does not happen.
pub fn wait_warm(daemon: &Daemon) {
    until_true("it is ready", || daemon.admin_get("/readyz").status == 200);
    until_true("the whole arena is touched", || {
        let stats = daemon.admin_json("/v1/stats");
        number(&stats, "/memory/arena_ready_bytes") == number(&stats, "/memory/arena_bytes")
    });
}

/// Waits until the daemon serves nobody and nobody holds anything.
///
/// # Panics
/// If that does not happen within `limit`.
pub fn wait_idle(daemon: &Daemon, limit: Duration) {
    let mut last = Value::Null;
    let idle = within(limit, || {
        last = daemon.admin_json("/v1/stats");
        let held = ["sessions", "leases", "hand_outs", "tickets", "quarantined_bytes"];
        let all = held.iter().map(|name| number(&last, &format!("/held/{name}")));
        (all.sum::<u64>() + number(&last, "/sessions_connected") == 0).then_some(())
    });
    assert!(
        idle.is_some(),
        "within {limit:?} still held: {} {}",
        last["held"],
        daemon.admin_json("/v1/top")
    );
    check_space(&last);
}

/// Waits until the daemon has as many descriptors as it had `before`, and no thread of a session. Connections to its
/// admin socket end a moment after their answer, so that a single look would not do.
///
/// # Panics
/// If that does not happen: something leaks.
pub fn wait_no_leak(daemon: &Daemon, before: &ProcessFacts) {
    let mut last = before.clone();
    let gone = within(crate::PATIENCE, || {
        last = daemon.facts();
        let sessions = last.threads.keys().filter(|name| is_of_a_session(name)).count();
        (last.descriptors <= before.descriptors && sessions == 0).then_some(())
    });
    assert!(gone.is_some(), "{last:?} instead of {before:?}");
}

/// `kvd-s` and a number.
fn is_of_a_session(thread: &str) -> bool {
    let number = thread.strip_prefix("kvd-s");
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}

/// Every byte of the arena is in one state: the four of them sum up to what is ready.
///
/// # Panics
/// If they do not.
pub fn check_space(stats: &Value) {
    let states = ["free_bytes", "ticketed_bytes", "stored_bytes", "orphaned_bytes"];
    let sum: u64 = states.iter().map(|state| number(stats, &format!("/memory/{state}"))).sum();
    assert_eq!(sum, number(stats, "/memory/arena_ready_bytes"), "{stats}");
}

/// The session of `/v1/top` that `applies` to.
///
/// # Panics
/// If there is not exactly one.
#[must_use]
pub fn session(daemon: &Daemon, applies: impl Fn(&Value) -> bool) -> Value {
    let top = daemon.admin_json("/v1/top");
    let sessions = top["sessions"].as_array().expect("a list");
    let found: Vec<&Value> = sessions.iter().filter(|session| applies(session)).collect();
    assert_eq!(found.len(), 1, "{top}");
    found[0].clone()
}
