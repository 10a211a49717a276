//! Client processes that die: what they held is free within a second of their end, and nothing is left behind. Those
//! that only lose their connection keep it.

use std::time::{Duration, Instant};

use kvd_tests::client::{ClientLaunch, ClientProcess, Ended};
use kvd_tests::content::bytes_of;
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, store, store_blocks};
use kvd_tests::figures::{figure, session, wait_idle, wait_no_leak, wait_warm};
use kvd_tests::until::{until, until_true};
use kvd_tests::wire::{Value, column, message};
use kvd_tests::{Daemon, PATIENCE};

const SMALL: &[&str] = &["--max-bytes", "32M"];
const BLOCK: usize = 100_000;
/// How long after the end of a process what it held may still be held.
const FREED_WITHIN: Duration = Duration::from_secs(1);

fn warm_daemon() -> Daemon {
    let daemon = Daemon::start(SMALL);
    wait_warm(&daemon);
    daemon
}

/// Waits until the daemon holds nothing for anybody, at most what is left of [`FREED_WITHIN`].
fn freed_in_time(daemon: &Daemon, gone: &Ended) {
    wait_idle(daemon, (gone.at + FREED_WITHIN).saturating_duration_since(Instant::now()));
}

#[test]
fn a_killed_client_holds_nothing_a_second_later() {
    let daemon = warm_daemon();
    let client = client_at(daemon.socket());
    store_blocks(&client, 8, BLOCK);
    drop(client);
    wait_idle(&daemon, PATIENCE);
    let (before, free) = (daemon.facts(), figure(&daemon, "/memory/free_bytes"));
    for _ in 0..5 {
        let doomed = ClientProcess::start(daemon.socket(), &["hold", "5", "300000", "8"]);
        assert!(doomed.heard("holding").contains("tickets=5 leases=8"));
        assert_eq!(figure(&daemon, "/held/tickets"), 5);
        assert_eq!(figure(&daemon, "/held/leases"), 8);
        assert!(figure(&daemon, "/memory/ticketed_bytes") >= 5 * 300_000);
        let pid = u64::try_from(doomed.pid()).unwrap();
        let seen = session(&daemon, |session| session["pid"] == pid);
        assert_eq!((&seen["process_watched"], &seen["tickets"]), (&true.into(), &5.into()));
        freed_in_time(&daemon, &doomed.kill());
        assert_eq!(figure(&daemon, "/memory/free_bytes"), free);
    }
    wait_no_leak(&daemon, &before);
    // The rows themselves are everybody's.
    (0..8).for_each(|index| check(&client_at(daemon.socket()), &key_of(index), BLOCK));
}

#[test]
fn what_a_killed_client_leased_last_is_free_a_second_later() {
    // Its lease is all that keeps the old bytes: the key has new ones.
    let daemon = warm_daemon();
    let client = client_at(daemon.socket());
    store_blocks(&client, 1, BLOCK);
    let doomed = ClientProcess::start(daemon.socket(), &["hold", "0", "1", "1"]);
    let _holding = doomed.heard("holding");
    store(&client, &key_of(0), 2 * BLOCK);
    assert!(figure(&daemon, "/memory/orphaned_bytes") >= BLOCK as u64);
    let gone = doomed.kill();
    let left = (gone.at + FREED_WITHIN).saturating_duration_since(Instant::now());
    until("the orphan is gone", left, || {
        (figure(&daemon, "/memory/orphaned_bytes") == 0).then_some(())
    });
    check(&client, &key_of(0), 2 * BLOCK);
}

#[test]
fn a_client_killed_inside_a_frame_leaves_nothing() {
    let daemon = warm_daemon();
    let before = daemon.facts();
    // Inside the prefix, the head, a small value, and a value that goes straight into the arena.
    for (value, sent) in [(10, 2), (10, 9), (10_000, 5_000), (4 << 20, 1 << 20)] {
        let words = ["stop-inside-set", &value.to_string(), &sent.to_string()];
        let doomed = ClientProcess::start(daemon.socket(), &words);
        let _sent = doomed.heard("ready");
        if value == 4 << 20 {
            until_true("the value is being received into the arena", || {
                figure(&daemon, "/memory/ticketed_bytes") >= 4 << 20
            });
        }
        freed_in_time(&daemon, &doomed.kill());
        assert_eq!(figure(&daemon, "/memory/free_bytes"), 32 << 20, "{value} {sent}");
    }
    assert_eq!(figure(&daemon, "/tiers/host/entries"), 0);
    assert_eq!(figure(&daemon, "/memory/staging_bytes"), 0);
    wait_no_leak(&daemon, &before);
}

#[test]
fn a_client_that_reads_does_not_notice_the_death_of_others() {
    const COUNT: u64 = 16;
    let daemon = warm_daemon();
    let len = BLOCK.to_string();
    // The writer of the blocks dies, too.
    let writer = ClientProcess::start(daemon.socket(), &["fill", &COUNT.to_string(), &len]);
    let _stored = writer.heard("stored=16");
    let _gone = writer.kill();
    let reader = ClientProcess::start(daemon.socket(), &["read-over-and-over", "16", &len]);
    let _reading = reader.heard("ready");
    for _ in 0..10 {
        let doomed = ClientProcess::start(daemon.socket(), &["hold", "10", "200000", "16"]);
        let _holding = doomed.heard("holding");
        let gone = doomed.kill();
        let left = (gone.at + FREED_WITHIN).saturating_duration_since(Instant::now());
        until("its tickets are free", left, || {
            (figure(&daemon, "/held/tickets") == 0).then_some(())
        });
    }
    // Any wrong byte would have ended it.
    let ended = reader.finish();
    assert!(ended.status.success(), "{:?}", ended.said);
    assert!(ended.figure("rounds") > 0);
    wait_idle(&daemon, PATIENCE);
}

#[test]
fn a_closed_connection_is_no_dead_writer() {
    let daemon = warm_daemon();
    let writer = ClientProcess::start(daemon.socket(), &["hold-unconnected", "4", "1000000"]);
    let offsets = writer.heard("offsets");
    let offsets: Vec<u64> = offsets
        .trim_start_matches("offsets [")
        .trim_end_matches(']')
        .split(", ")
        .map(|offset| offset.parse().unwrap())
        .collect();
    assert_eq!(offsets.len(), 4);
    until_true("the daemon has seen the end of the connection", || {
        figure(&daemon, "/sessions_connected") == 0
    });
    assert!(figure(&daemon, "/held/quarantined_bytes") >= 4_000_000);
    let seen = session(&daemon, |session| session["closed"] == true);
    assert_eq!((&seen["process_watched"], &seen["tickets"]), (&true.into(), &4.into()));
    // Whatever others store under pressure, it is never where that process may still write.
    let mut wire = daemon.connect().attach(2).wire;
    let lens = vec![500_000; 100];
    let reserve =
        [("id", Value::from(1)), ("retention", Value::from("long")), ("lens", column(&lens))];
    let reserved = wire.ask("reserve", &reserve);
    let outcomes = reserved.bytes("outcomes").unwrap().to_vec();
    let granted = outcomes.iter().zip(reserved.column("offsets")).filter(|(no, _)| **no == 0);
    let granted: Vec<u64> = granted.map(|(_, offset)| offset).collect();
    assert!(granted.len() > 20, "{outcomes:?}");
    for offset in &granted {
        let overlaps = |held: &u64| *offset < held + 1_000_000 && *held < offset + 500_000;
        assert!(!offsets.iter().any(overlaps), "{offset} overlaps with one of {offsets:?}");
    }
    drop(wire);
    let gone = writer.finish();
    let left = (gone.at + FREED_WITHIN).saturating_duration_since(Instant::now());
    until("nothing of it is quarantined", left, || {
        let top = daemon.admin_json("/v1/top");
        let sessions = top["sessions"].as_array().unwrap();
        sessions.iter().all(|session| session["id"] != seen["id"]).then_some(())
    });
}

#[test]
fn an_operator_can_release_what_a_closed_session_held() {
    let mut daemon = warm_daemon();
    daemon.announce("quarantine released by hand");
    let holder = ClientProcess::start(daemon.socket(), &["hold-unconnected", "2", "1000000"]);
    let _offsets = holder.heard("offsets");
    until_true("the connection is closed", || figure(&daemon, "/sessions_connected") == 0);
    let id = session(&daemon, |session| session["closed"] == true)["id"].clone();
    let other = daemon.admin_post("/v1/quarantine/release?session=4711");
    assert_eq!((other.status, figure(&daemon, "/held/tickets")), (200, 2), "{}", other.body);
    let answer = daemon.admin_post(&format!("/v1/quarantine/release?session={id}"));
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(!answer.body.contains("\"released_bytes\":0"), "{}", answer.body);
    wait_idle(&daemon, PATIENCE);
    assert!(holder.finish().status.success());
    // A connected session is nobody's to release.
    let client = client_at(daemon.socket());
    let id = client.attach().unwrap().session;
    assert_eq!(daemon.admin_post(&format!("/v1/quarantine/release?session={id}")).status, 409);
}

#[test]
fn a_lease_outlives_the_key_the_writer_and_the_connection_of_others() {
    let daemon = warm_daemon();
    let writer = ClientProcess::start(daemon.socket(), &["fill", "1", "50000"]);
    let _stored = writer.heard("stored=1");
    let reader = client_at(daemon.socket());
    let found = reader.fetch(NAMESPACE, &[&key_of(0)], false, PATIENCE);
    let view = found.items[0].as_ref().unwrap();
    let _gone = writer.kill();
    let other = client_at(daemon.socket());
    for round in 0..100_u8 {
        // More than the whole arena in all, the key itself among it.
        store(&other, &[round], 500_000);
        store(&other, &key_of(0), 50_001);
    }
    assert!(view.to_vec() == bytes_of(&key_of(0), 50_000));
}

/// Connects, leaves the connection to a child and exits; the child greets, reserves, says so, and closes.
const HEIR: &str = r#"
import array, os, socket, sys

connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
parent = os.getpid()
if os.fork() != 0:
    os._exit(0)
while os.getppid() == parent:
    pass

def receive():
    length = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    return connection.recv(length, socket.MSG_WAITALL)

connection.sendall(bytes.fromhex(sys.argv[2]))
receive()
for _, _, data in connection.recvmsg(1, 256)[1]:
    os.close(array.array("i", data)[0])
connection.sendall(bytes.fromhex(sys.argv[3]))
assert b"reserved" in receive()
print("reserved", flush=True)
"#;

#[test]
fn the_end_of_a_process_is_not_missed_if_it_comes_before_the_first_word() {
    let daemon = warm_daemon();
    let hello = [
        ("client_id", Value::from("heir")),
        ("protocol_version", Value::from(2)),
        ("prefers_shared_arena", Value::from(true)),
    ];
    let reserve =
        [("id", Value::from(1)), ("retention", Value::from("short")), ("lens", column(&[100_000]))];
    let hex =
        |frame: Vec<u8>| -> String { frame.iter().map(|byte| format!("{byte:02x}")).collect() };
    let socket = daemon.socket().to_str().unwrap();
    let (hello, reserve) = (hex(message("hello", &hello)), hex(message("reserve", &reserve)));
    for _ in 0..20 {
        let heir = ClientLaunch::program("python3", ["-c", HEIR, socket, &hello, &reserve]).start();
        let _reserved = heir.heard("reserved");
        let _gone = heir.finish();
    }
    wait_idle(&daemon, PATIENCE);
}
