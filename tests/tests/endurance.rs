//! What only shows after a while: nothing may grow with the number of clients that came and went.

use kvd_tests::client::ClientProcess;
use kvd_tests::engine::{check, client_at, key_of, store_blocks};
use kvd_tests::figures::{figure, wait_idle, wait_no_leak, wait_warm};
use kvd_tests::process::ProcessFacts;
use kvd_tests::{Daemon, Launch, PATIENCE};

/// How much the daemon's own memory may grow in the second half, when everything that is kept once is there.
const GROWTH_KIB: u64 = 1 << 10;

fn warm_daemon() -> Daemon {
    let daemon = Launch::new().args(["--max-bytes", "32M", "--log-level", "WARNING"]).start();
    wait_warm(&daemon);
    store_blocks(&client_at(daemon.socket()), 16, 100_000);
    wait_idle(&daemon, PATIENCE);
    daemon
}

/// Goes around `cycles` times, and holds the second half against the first.
fn stays_flat(daemon: &Daemon, cycles: usize, mut cycle: impl FnMut(usize)) {
    let before = daemon.facts();
    (0..cycles / 2).for_each(&mut cycle);
    wait_idle(daemon, PATIENCE);
    wait_no_leak(daemon, &before);
    let half: ProcessFacts = daemon.facts();
    (cycles / 2..cycles).for_each(&mut cycle);
    wait_idle(daemon, PATIENCE);
    wait_no_leak(daemon, &before);
    let end = daemon.facts();
    let growth = end.private_kib.saturating_sub(half.private_kib);
    assert!(
        growth <= GROWTH_KIB,
        "{growth} KiB in {} cycles: {half:?} {end:?}",
        cycles - cycles / 2
    );
    assert_eq!(end.shared_kib, half.shared_kib, "the arena is what it was");
    let client = client_at(daemon.socket());
    (0..16).for_each(|index| check(&client, &key_of(index), 100_000));
}

#[test]
fn five_hundred_clients_that_attach_and_detach() {
    let daemon = warm_daemon();
    let own = ProcessFacts::of(i32::try_from(std::process::id()).unwrap()).descriptors;
    stays_flat(&daemon, 500, |number| {
        if number.is_multiple_of(2) {
            let attached = daemon.connect().attach(1 + number as u64 / 2 % 2);
            assert_eq!(attached.arena.bytes(), 32 << 20);
        } else {
            let client = client_at(daemon.socket());
            check(&client, &key_of(number as u64 % 16), 100_000);
        }
    });
    // The client's side of it is as clean.
    assert_eq!(ProcessFacts::of(i32::try_from(std::process::id()).unwrap()).descriptors, own);
}

#[test]
fn two_thousand_clients_that_connect_and_are_killed() {
    let daemon = warm_daemon();
    let kinds: [&[&str]; 4] = [
        &["attach", "1"],
        &["hold", "2", "50000", "3"],
        &["stop-inside-set", "400000", "200000"],
        &["attach", "2"],
    ];
    // Four at a time, so that ends and beginnings overlap.
    stays_flat(&daemon, 500, |_| {
        let doomed = kinds.map(|words| ClientProcess::start(daemon.socket(), words));
        for (number, client) in doomed.into_iter().enumerate() {
            let _there = client.heard(if number == 1 { "holding" } else { "ready" });
            let _gone = client.kill();
        }
    });
    assert_eq!(figure(&daemon, "/totals/evictions"), 0);
}

#[test]
fn clients_that_are_killed_at_any_moment() {
    // Nobody waits for them to get anywhere: some die before their first word, some in the middle of it.
    let daemon = warm_daemon();
    let before = daemon.facts();
    for round in 0..300_usize {
        let words: &[&str] = if round.is_multiple_of(2) {
            &["hold", "2", "50000", "3"]
        } else {
            &["come-and-go", "1"]
        };
        let doomed = ClientProcess::start(daemon.socket(), words);
        // As many questions as it takes to be somewhere else each time.
        for _ in 0..round % 30 {
            let _any = daemon.admin_get("/healthz");
        }
        let _gone = doomed.kill();
    }
    wait_idle(&daemon, PATIENCE);
    wait_no_leak(&daemon, &before);
}
