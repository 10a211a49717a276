//! What one session may hold, who is named for holding too much, and that many sessions get equal shares.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::time::Duration;

use kvd_client::{MissReason, Refusal, Retention};
use kvd_tests::client::ClientProcess;
use kvd_tests::engine::{NAMESPACE, check, client_at, keys_of, store_blocks};
use kvd_tests::figures::{figure, session, wait_idle, wait_warm};
use kvd_tests::until::until_true;
use kvd_tests::wire::{Value, column};
use kvd_tests::{Daemon, Launch, PATIENCE};

/// How long a client may ask in vain for what its caps forbid.
const MOMENT: Duration = Duration::from_millis(30);

fn warm_daemon(arguments: &[&str]) -> Daemon {
    let daemon = Launch::new().args(["--max-bytes", "32M"]).args(arguments.iter().copied()).start();
    wait_warm(&daemon);
    daemon
}

/// The cap that the one session at a cap has reached, and that it was refused for it.
fn hog(daemon: &Daemon) -> (u64, String) {
    let at_cap = |session: &serde_json::Value| !session["at_cap"].as_array().unwrap().is_empty();
    let hog = session(daemon, at_cap);
    assert!(hog["refused_total"].as_u64().unwrap() > 0, "{hog}");
    assert!(hog["client_id"].as_str().unwrap().starts_with("kvd-tests-"), "{hog}");
    (hog["id"].as_u64().unwrap(), hog["at_cap"][0].as_str().unwrap().to_owned())
}

#[test]
fn leases_are_capped_per_session_and_the_hog_is_named() {
    let daemon = warm_daemon(&["--leases-max", "10"]);
    let (greedy, modest) = (client_at(daemon.socket()), client_at(daemon.socket()));
    store_blocks(&greedy, 20, 5_000);
    let keys = keys_of(20);
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let held = greedy.fetch(NAMESPACE, &names, false, PATIENCE);
    for (index, item) in held.items.iter().enumerate() {
        let over = item.as_ref().err();
        assert_eq!(over, (index >= 10).then_some(&MissReason::Shed), "{index}");
    }
    let id = greedy.attach().unwrap().session.0;
    assert_eq!(hog(&daemon), (id, "leases".to_owned()));
    // Nobody else notices.
    keys.iter().for_each(|key| check(&modest, key, 5_000));
    drop(held);
    until_true("the leases are back", || figure(&daemon, "/held/leases") == 0);
    keys.iter().for_each(|key| check(&greedy, key, 5_000));
}

#[test]
fn tickets_are_capped_per_session_and_the_hog_is_named() {
    let daemon = warm_daemon(&["--tickets-max", "5"]);
    let (greedy, modest) = (client_at(daemon.socket()), client_at(daemon.socket()));
    let mut granted = greedy.reserve(&[1_000; 8], Retention::Short, MOMENT).unwrap();
    for (index, outcome) in granted.iter().enumerate() {
        let over = outcome.as_ref().err();
        assert_eq!(over, (index >= 5).then_some(&Refusal::SessionLimit), "{index}");
    }
    let id = greedy.attach().unwrap().session.0;
    assert_eq!(hog(&daemon), (id, "tickets".to_owned()));
    store_blocks(&modest, 20, 5_000);
    // Time alone takes no ticket from a process that lives: only its own return does.
    assert_eq!(figure(&daemon, "/held/tickets"), 5);
    granted.pop();
    drop(granted.remove(0));
    until_true("one ticket is back", || figure(&daemon, "/held/tickets") == 4);
    let again = greedy.reserve(&[1_000], Retention::Short, PATIENCE).unwrap();
    assert!(again[0].is_ok());
}

#[test]
fn bytes_in_flight_are_capped_per_session_and_the_hog_is_named() {
    let daemon = warm_daemon(&["--in-flight-bytes-max", "4M"]);
    let (greedy, modest) = (client_at(daemon.socket()), client_at(daemon.socket()));
    store_blocks(&modest, 8, 1 << 20);
    let keys = keys_of(8);
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    // Leases and tickets count together.
    let held = greedy.fetch(NAMESPACE, &names[..2], false, PATIENCE);
    assert!(held.items.iter().all(Result::is_ok));
    let granted = greedy.reserve(&[1 << 20, 1 << 20], Retention::Short, MOMENT).unwrap();
    let refused: Vec<_> = granted.iter().map(|outcome| outcome.as_ref().err().copied()).collect();
    assert_eq!(refused, [None, Some(Refusal::SessionLimit)]);
    let more = greedy.fetch(NAMESPACE, &names[2..], false, PATIENCE);
    assert!(more.items.iter().all(|item| item.as_ref().err() == Some(&MissReason::Shed)));
    let id = greedy.attach().unwrap().session.0;
    let seen = session(&daemon, |session| session["id"] == id);
    assert!(seen["refused_total"].as_u64().unwrap() >= 2, "{seen}");
    assert!(seen["in_flight_bytes"].as_u64().unwrap() > 3 << 20, "{seen}");
    keys.iter().for_each(|key| check(&modest, key, 1 << 20));
    drop((held, granted));
    wait_idle_but_connected(&daemon);
    keys.iter().for_each(|key| check(&greedy, key, 1 << 20));
}

fn wait_idle_but_connected(daemon: &Daemon) {
    until_true("nothing is held", || {
        figure(daemon, "/held/leases") + figure(daemon, "/held/tickets") == 0
    });
}

#[test]
fn a_client_of_protocol_1_at_its_cap_gets_its_bytes_all_the_same() {
    let daemon = warm_daemon(&["--leases-max", "3", "--view-grace", "60s"]);
    let writer = client_at(daemon.socket());
    store_blocks(&writer, 10, 5_000);
    let mut old = daemon.connect().attach(1);
    let mut ways = Vec::new();
    for key in keys_of(10) {
        let get = [
            ("key", Value::from(key.as_slice())),
            ("model", Value::from(NAMESPACE.model)),
            ("compat_key", Value::from(NAMESPACE.compat_key)),
        ];
        let answer = old.wire.ask("get", &get);
        if answer.op() == "get_response" {
            let right = kvd_tests::content::bytes_of(&key, 5_000);
            assert_eq!(answer.bytes("value"), Some(&right[..]));
        }
        ways.push(answer.op().to_owned());
    }
    assert_eq!(ways[..3], ["get_shared_response"; 3]);
    assert_eq!(ways[3..], ["get_response"; 7]);
    assert_eq!(figure(&daemon, "/totals/hand_outs_refused"), 7);
    assert_eq!(figure(&daemon, "/totals/misses"), 0);
}

#[test]
fn foreign_and_spent_rights_are_typed_refusals() {
    let daemon = warm_daemon(&[]);
    let (mut mine, mut theirs) = (daemon.connect().attach(2), daemon.connect().attach(2));
    let epoch = Value::from(mine.ack.u64("epoch"));
    let reserve = |lens: &[u64]| {
        [("id", Value::from(1)), ("retention", Value::from("short")), ("lens", column(lens))]
    };
    let reserved = mine.wire.ask("reserve", &reserve(&[100, 100]));
    let tickets = reserved.column("tickets");
    let commit = |tickets: &[u64], len: u64| {
        let (lens, keys) = kvd_tests::wire::key_columns(&vec![&b"k"[..]; tickets.len()]);
        vec![
            ("id", Value::from(2)),
            ("epoch", epoch.clone()),
            ("model", Value::from("m")),
            ("compat_key", Value::from("c")),
            ("retention", Value::from("short")),
            ("ttl_ms", Value::from(0)),
            ("tickets", column(tickets)),
            ("key_lens", lens),
            ("keys", keys),
            ("lens", column(&vec![len; tickets.len()])),
        ]
    };
    let code = |refusal: Refusal| refusal.code();
    // Another's ticket, one that never was, more bytes than were reserved, and one that is spent.
    let foreign = theirs.wire.ask("commit", &commit(&[tickets[0], 4711], 100));
    let expected = [code(Refusal::WrongOwner), code(Refusal::UnknownTicket)];
    assert_eq!(foreign.bytes("outcomes"), Some(&expected[..]));
    let cancel = [("id", Value::from(3)), ("epoch", epoch.clone()), ("tickets", column(&tickets))];
    assert_eq!(theirs.wire.ask("cancel", &cancel).u64("cancelled"), 0);
    let oversize = mine.wire.ask("commit", &commit(&[tickets[0]], 101));
    assert_eq!(oversize.bytes("outcomes"), Some(&[code(Refusal::OversizeCommit)][..]));
    let right = mine.wire.ask("commit", &commit(&[tickets[0]], 100));
    assert_eq!(right.bytes("outcomes"), Some(&[0][..]));
    let spent = mine.wire.ask("commit", &commit(&[tickets[0]], 100));
    assert_eq!(spent.bytes("outcomes"), Some(&[code(Refusal::UnknownTicket)][..]));
    // Another's lease is not released by guessing its name.
    let (lens, keys) = kvd_tests::wire::key_columns(&[b"k"]);
    let fetch = [
        ("id", Value::from(4)),
        ("model", Value::from("m")),
        ("compat_key", Value::from("c")),
        ("key_lens", lens),
        ("keys", keys),
        ("prefix", Value::from(false)),
        ("deadline_ms", Value::from(1_000)),
    ];
    let leases = mine.wire.ask("fetch", &fetch).column("leases");
    let release = [("epoch", epoch), ("leases", column(&leases))];
    theirs.wire.send(&kvd_tests::wire::message("release", &release));
    assert_eq!(theirs.wire.ask("stats", &[("id", Value::from(5))]).op(), "stats_reply");
    assert_eq!(figure(&daemon, "/held/leases"), 1);
    mine.wire.send(&kvd_tests::wire::message("release", &release));
    until_true("its owner released it", || figure(&daemon, "/held/leases") == 0);
    assert_eq!(figure(&daemon, "/totals/stale_releases"), 1);
}

#[test]
fn rights_of_another_epoch_are_a_typed_error() {
    let daemon = warm_daemon(&[]);
    let mut attached = daemon.connect().attach(2);
    let now = attached.ack.u64("epoch");
    assert!(now > 0);
    let stale = Value::from(now - 1);
    let reserve =
        [("id", Value::from(1)), ("retention", Value::from("short")), ("lens", column(&[100]))];
    let tickets = attached.wire.ask("reserve", &reserve).column("tickets");
    let (lens, keys) = kvd_tests::wire::key_columns(&[b"k"]);
    let commit = [
        ("id", Value::from(2)),
        ("epoch", stale.clone()),
        ("model", Value::from("m")),
        ("compat_key", Value::from("c")),
        ("retention", Value::from("short")),
        ("ttl_ms", Value::from(0)),
        ("tickets", column(&tickets)),
        ("key_lens", lens),
        ("keys", keys),
        ("lens", column(&[100])),
    ];
    let cancel = [("id", Value::from(3)), ("epoch", stale.clone()), ("tickets", column(&tickets))];
    for (op, id, fields) in [("commit", 2, &commit[..]), ("cancel", 3, &cancel[..])] {
        let error = attached.wire.ask(op, fields);
        assert_eq!((error.op(), error.text("code")), ("error", "stale_epoch"), "{op}");
        assert_eq!(error.u64("id"), id);
        assert!(error.text("message").contains(&now.to_string()), "{error:?}");
    }
    // A release of another epoch means leases that are gone; it says nothing and does nothing.
    let release = [("epoch", stale), ("leases", column(&tickets))];
    attached.wire.send(&kvd_tests::wire::message("release", &release));
    let stats = attached.wire.ask("stats", &[("id", Value::from(4))]);
    assert_eq!((stats.op(), figure(&daemon, "/held/tickets")), ("stats_reply", 1));
    assert_eq!(figure(&daemon, "/totals/stale_releases"), 0);
}

#[test]
fn seventy_two_sessions_get_equal_shares() {
    const PROCESSES: usize = 8;
    const SESSIONS: usize = 9;
    let daemon = warm_daemon(&[]);
    store_blocks(&client_at(daemon.socket()), 64, 2_000);
    wait_idle(&daemon, PATIENCE);
    let words = ["share", &SESSIONS.to_string(), "6000"];
    let mut engines: Vec<_> =
        (0..PROCESSES).map(|_| ClientProcess::start(daemon.socket(), &words)).collect();
    for engine in &engines {
        let _attached = engine.heard("ready");
    }
    assert_eq!(figure(&daemon, "/sessions_connected"), 72);
    engines.iter_mut().for_each(|engine| engine.tell("go"));
    let said: Vec<String> = engines.iter().map(|engine| engine.heard("batches ")).collect();
    let got: Vec<u64> = said
        .iter()
        .flat_map(|line| line.split_whitespace().skip(1))
        .map(|count| count.parse().unwrap())
        .collect();
    assert_eq!(got.len(), PROCESSES * SESSIONS);
    let fair = got.iter().sum::<u64>() / got.len() as u64;
    assert!(fair >= 10, "too few to tell: {got:?}");
    let least = got.iter().min().unwrap();
    assert!(*least >= fair / 2, "a fair share is {fair}, the least got {least}: {got:?}");
    for engine in engines {
        assert!(engine.finish().status.success());
    }
    wait_idle(&daemon, PATIENCE);
}

#[test]
fn one_session_more_than_allowed_is_closed_and_counted() {
    let mut daemon = warm_daemon(&["--sessions-max", "3"]);
    daemon.announce("as many sessions as --sessions-max allows");
    // The harness asked whether it serves.
    until_true("nobody is connected", || figure(&daemon, "/sessions_connected") == 0);
    let mut within: Vec<_> = (0..3).map(|_| daemon.connect()).collect();
    within.iter_mut().for_each(|wire| assert_eq!(wire.ask("stats", &[]).op(), "stats_response"));
    daemon.connect().expect_closed();
    let refused = r#"infera_kvd_connections_refused_total{reason="full"}"#;
    assert_eq!(daemon.metric(refused), Some(1.0), "{}", daemon.admin_get("/metrics").body);
    drop(within.pop());
    until_true("a place is free", || figure(&daemon, "/sessions_connected") == 2);
    assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
}
