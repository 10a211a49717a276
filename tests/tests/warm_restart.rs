//! Blocks in memory outlive the daemon: its end, its death, and its death on the way back. Whoever held something goes on
//! holding it, and whatever does not fit is forgotten.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use kvd_client::{Client, MissReason, Retention, View};
use kvd_tests::client::{ClientLaunch, ClientProcess};
use kvd_tests::content::{Random, bytes_of};
use kvd_tests::disk::{Directory, has, put, wait_ready, wait_written};
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, keys_of, store, store_blocks};
use kvd_tests::figures::{figure, wait_idle, wait_warm};
use kvd_tests::supervisor::Supervisor;
use kvd_tests::until::until_true;
use kvd_tests::wire::Value;
use kvd_tests::{Daemon, Launch, PATIENCE};

const ARENA: &str = "kvd-arena";
const LEDGER: &str = "kvd-ledger";
/// The only line of trouble when something does not fit.
const NOT_TAKEN_OVER: &str = "are not taken over";
/// Beside it, if what says whom processes are known to is damaged.
const NOBODY_CAN_TELL: &str = "nobody can tell when their processes end";
const BLOCKS: u64 = 60;

fn launch() -> Launch {
    Launch::new().args(["--max-bytes", "32M"])
}

/// Lengths of every kind: none, inside a page, whole pages, large.
fn len_of(index: u64) -> usize {
    [0, 1, 100, 4_096, 5_000, 65_536, 65_537, 300_000][usize::try_from(index % 8).unwrap()]
}

fn store_all(daemon: &Daemon) {
    let client = client_at(daemon.socket());
    (0..BLOCKS).for_each(|index| store(&client, &key_of(index), len_of(index)));
}

fn check_all(daemon: &Daemon) {
    let client = client_at(daemon.socket());
    (0..BLOCKS).for_each(|index| check(&client, &key_of(index), len_of(index)));
}

fn misses(daemon: &Daemon, key: &[u8]) -> MissReason {
    let client = client_at(daemon.socket());
    client.fetch(NAMESPACE, &[key], false, PATIENCE).items.remove(0).unwrap_err()
}

fn generation(daemon: &Daemon) -> u64 {
    figure(daemon, "/succession/generation")
}

/// Stores other blocks until the arena has been used up twice.
fn fill(client: &Client) {
    (1_000..1_700).for_each(|index| store(client, &key_of(index), 100_000));
}

/// What is left of those, and of the arena there is much left, is right.
fn check_filled(client: &Client) {
    let keys: Vec<_> = (1_000..1_700).map(key_of).collect();
    let found = keys.iter().filter_map(|key| Some((key, client.get(NAMESPACE, key).ok()?)));
    let right = found.inspect(|(key, bytes)| assert!(*bytes == bytes_of(key, 100_000), "{key:?}"));
    assert!(right.count() > 200);
}

fn view(client: &Client, index: u64) -> View {
    client.fetch(NAMESPACE, &[&key_of(index)], false, PATIENCE).items.remove(0).unwrap()
}

#[test]
fn blocks_survive_a_stop_and_a_kill() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    assert_eq!(supervisor.kept(), [ARENA, LEDGER]);
    store_all(&daemon);
    let sum = figure(&daemon, "/tiers/host/payload_bytes");
    assert!(daemon.stop().success());
    for life in 2..8 {
        let daemon = supervisor.start(launch());
        assert_eq!(generation(&daemon), life);
        assert_eq!(figure(&daemon, "/succession/adopted_rows"), BLOCKS);
        assert_eq!(figure(&daemon, "/succession/adopted_bytes"), sum);
        check_all(&daemon);
        // What is not there now was not there before.
        assert_eq!(misses(&daemon, b"never"), MissReason::NeverStored);
        wait_idle(&daemon, PATIENCE);
        assert_eq!(supervisor.kept(), [ARENA, LEDGER]);
        if life % 2 == 0 {
            daemon.kill();
        } else {
            assert!(daemon.stop().success());
        }
    }
}

#[test]
fn the_older_protocol_finds_them_too() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    store_all(&daemon);
    daemon.kill();
    let daemon = supervisor.start(launch());
    let mut attached = daemon.connect().attach(1);
    for index in 0..BLOCKS {
        let answer = attached.wire.ask("get", &get(index));
        let found = if answer.op() == "get_response" {
            answer.bytes("value").unwrap().to_vec()
        } else {
            let mut bytes = vec![0; usize::try_from(answer.u64("length")).unwrap()];
            attached.arena.copy_out(answer.u64("slot_offset"), &mut bytes);
            bytes
        };
        assert!(found == bytes_of(&key_of(index), len_of(index)), "{index}");
    }
    assert!(daemon.stop().success());
}

/// The fields of a protocol-1 `get`.
fn get(index: u64) -> [(&'static str, Value); 3] {
    [
        ("key", Value::from(key_of(index))),
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ]
}

/// Such a client has no lease. It reads what it was shown although the daemon died right after it had answered.
#[test]
fn what_a_client_of_the_older_protocol_was_shown_rests_for_its_grace() {
    let supervisor = Supervisor::new();
    let launch = || launch().args(["--view-grace", "1h"]);
    let daemon = supervisor.start(launch());
    store_blocks(&client_at(daemon.socket()), 8, 300_000);
    let mut attached = daemon.connect().attach(1);
    let shown: Vec<u64> =
        (0..8).map(|index| attached.wire.ask("get", &get(index)).u64("slot_offset")).collect();
    daemon.kill();
    let daemon = supervisor.start(launch());
    let client = client_at(daemon.socket());
    (0..8).for_each(|index| store(&client, &key_of(index), 1_000));
    fill(&client);
    // By its old mapping, and by a new one.
    let again = daemon.connect().attach(1);
    for arena in [&attached.arena, &again.arena] {
        for (index, offset) in (0..).zip(&shown) {
            let mut bytes = vec![0; 300_000];
            arena.copy_out(*offset, &mut bytes);
            assert!(bytes == bytes_of(&key_of(index), 300_000), "{index}");
        }
    }
    assert!(daemon.stop().success());
}

#[test]
fn what_was_removed_stays_away_and_what_came_later_counts() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    store_all(&daemon);
    let client = client_at(daemon.socket());
    client.clear(kvd_client::ClearScope::Namespace(NAMESPACE)).unwrap();
    store(&client, &key_of(1), 7_000);
    store(&client, &key_of(1), 8_000);
    let ttl = Some(Duration::from_millis(300));
    client.put(NAMESPACE, b"brief", b"x", Retention::Short, ttl).unwrap();
    daemon.kill();
    let daemon = supervisor.start(launch());
    check(&client_at(daemon.socket()), &key_of(1), 8_000);
    assert!(figure(&daemon, "/succession/adopted_rows") <= 2);
    assert_eq!(misses(&daemon, &key_of(2)), MissReason::NeverStored);
    until_true("its time is over", || {
        let client = client_at(daemon.socket());
        client.get(NAMESPACE, b"brief").is_err()
    });
    assert!(daemon.stop().success());
}

#[test]
fn running_clients_go_on_with_what_they_had() {
    let supervisor = Supervisor::new();
    let socket = supervisor.service_socket();
    let mut daemon = supervisor.start(launch());
    let clients: Vec<_> = (0..4)
        .map(|seed: u32| ClientProcess::start(&socket, &["come-and-go", &seed.to_string()]))
        .collect();
    for life in 1..=6_u64 {
        for client in &clients {
            let _attached = client.heard(&format!("epoch {life}"));
        }
        until_true("there are hits", || figure(&daemon, "/totals/hits") > 500);
        if life > 1 {
            assert!(figure(&daemon, "/succession/adopted_rows") > 100);
        }
        if life.is_multiple_of(2) {
            assert!(daemon.stop().success());
        } else {
            daemon.kill();
        }
        daemon = supervisor.start(launch());
    }
    for client in clients {
        let ended = client.finish();
        assert!(ended.status.success(), "{:?}", ended.said);
    }
    wait_idle(&daemon, PATIENCE);
}

/// How often the daemon is killed under load: 20 times, or `KVD_KILL_ROUNDS`.
fn kill_rounds() -> u64 {
    std::env::var("KVD_KILL_ROUNDS").map_or(20, |rounds| rounds.parse().unwrap())
}

#[test]
fn kills_under_load_never_bring_a_wrong_byte() {
    let supervisor = Supervisor::new();
    let socket = supervisor.service_socket();
    let mut daemon = supervisor.start(launch());
    let mut random = Random::seeded(7);
    let mut adopted = 0;
    // More than fits: rows are evicted and replaced all the time. Each client checks every byte that it reads.
    let clients: Vec<_> = (0..6)
        .map(|seed: u32| ClientProcess::start(&socket, &["come-and-go", &seed.to_string()]))
        .collect();
    for round in 1..=kill_rounds() {
        let gets = 200 + random.below(2_000) as u64;
        until_true("there are requests", || figure(&daemon, "/totals/gets") > gets);
        daemon.kill();
        daemon = supervisor.start(launch());
        assert_eq!(generation(&daemon), round + 1);
        assert_eq!(figure(&daemon, "/succession/dropped_rows/conflicting"), 0);
        // One record can be cut off for each session.
        assert!(figure(&daemon, "/succession/dropped_rows/torn") <= 1);
        adopted += figure(&daemon, "/succession/adopted_rows");
        until_true("all have said what they still hold", || {
            figure(&daemon, "/held/quarantined_bytes") == 0
        });
    }
    assert!(adopted > 100 * kill_rounds(), "{adopted}");
    for client in clients {
        let ended = client.finish();
        assert!(ended.status.success(), "{:?}", ended.said);
    }
    wait_idle(&daemon, PATIENCE);
}

#[test]
fn kills_while_blocks_move_to_disk_and_back_never_bring_a_wrong_byte() {
    /// Clients that come one after the other, so that what they store is more than memory holds.
    const SEEDS: u64 = 12;
    let (supervisor, directory) = (Supervisor::new(), Directory::new());
    let socket = supervisor.service_socket();
    let more = ["--max-bytes=24M", "--second-touch=false"];
    let launch = || directory.launch(&more);
    let client =
        |seed: u64| ClientProcess::start(&socket, &["come-and-go", &(seed % SEEDS).to_string()]);
    let mut daemon = supervisor.start(launch());
    let mut clients: VecDeque<_> = (0..3).map(client).collect();
    let (mut adopted, mut loads) = (0, 0);
    for round in 0..kill_rounds().max(SEEDS + 8) {
        until_true("there are requests", || figure(&daemon, "/totals/gets") > 600);
        loads += figure(&daemon, "/disk/loads_total");
        daemon.kill();
        daemon = supervisor.start(launch());
        adopted += figure(&daemon, "/succession/adopted_rows");
        // What a client held in all lives so far is free when it ends.
        let ended = clients.pop_front().unwrap().finish();
        assert!(ended.status.success(), "{:?}", ended.said);
        clients.push_back(client(round + 3));
    }
    assert!(adopted > 100 * kill_rounds() && loads > 0, "{adopted} adopted, {loads} loads");
    for client in clients {
        let ended = client.finish();
        assert!(ended.status.success(), "{:?}", ended.said);
    }
    assert!(daemon.stop().success());
}

#[test]
fn a_death_on_the_way_back_loses_nothing() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    store_all(&daemon);
    daemon.kill();
    let mut random = Random::seeded(3);
    for _ in 0..5 {
        // Fewer in a row than make a daemon give up.
        for _ in 0..4 {
            let patience = format!("0.{:03}", 1 + random.below(30));
            let killed = launch().under(["timeout", "-s", "KILL", &patience]);
            supervisor.supervised(killed, Launch::run);
        }
        let daemon = supervisor.start(launch());
        assert_eq!(figure(&daemon, "/succession/adopted_rows"), BLOCKS);
        check_all(&daemon);
        daemon.kill();
    }
}

#[test]
fn a_lease_of_a_living_process_keeps_its_bytes() {
    let supervisor = Supervisor::new();
    let mut daemon = supervisor.start(launch());
    let client = client_at(daemon.socket());
    store_blocks(&client, 8, 100_000);
    let views: Vec<View> = (0..8).map(|index| view(&client, index)).collect();
    // The first life knows these views by their leases, the others by what the one before noted.
    for _ in 0..3 {
        daemon.kill();
        daemon = supervisor.start(launch());
        assert!(figure(&daemon, "/held/quarantined_bytes") >= 800_000);
        let another = client_at(daemon.socket());
        (0..8).for_each(|index| store(&another, &key_of(index), 50_000));
        fill(&another);
        for (index, view) in (0..).zip(&views) {
            assert!(view.to_vec() == bytes_of(&key_of(index), 100_000), "view {index}");
        }
    }
    assert!(daemon.stop().success());
}

/// Two lives in a namespace of their own, after one outside: its numbers mean nothing to either of them.
#[test]
fn a_process_of_another_namespace_is_not_taken_for_gone() {
    const APART: [&str; 6] = ["unshare", "--user", "--map-root-user", "--pid", "--ipc", "--fork"];
    let supervisor = Supervisor::new();
    let mut daemon = supervisor.start(launch());
    let client = client_at(daemon.socket());
    store_blocks(&client, 8, 100_000);
    let views: Vec<View> = (0..8).map(|index| view(&client, index)).collect();
    let apart = ClientLaunch::program("sleep", ["1000"]).under(APART).start();
    until_true("the namespace is there", || {
        let path = format!("/proc/{}/comm", apart.pid());
        std::fs::read_to_string(path).is_ok_and(|name| name == "sleep\n")
    });
    let target = apart.pid().to_string();
    for _ in 0..3 {
        daemon.kill();
        let within = ["nsenter", "--target", &target, "--user", "--pid", "--preserve-credentials"];
        daemon = supervisor.start(launch().under(within).announce(NOBODY_CAN_TELL));
        assert!(figure(&daemon, "/held/quarantined_bytes") >= 800_000);
    }
    let another = client_at(daemon.socket());
    (0..8).for_each(|index| store(&another, &key_of(index), 50_000));
    fill(&another);
    for (index, view) in (0..).zip(&views) {
        assert!(view.to_vec() == bytes_of(&key_of(index), 100_000), "view {index}");
    }
    assert!(daemon.stop().success());
}

#[test]
fn a_writer_that_goes_on_damages_nobody() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    let client = client_at(daemon.socket());
    let tickets = client.reserve(&[300_000; 8], Retention::Short, PATIENCE).unwrap();
    let tickets: Vec<_> = tickets.into_iter().map(Result::unwrap).collect();
    daemon.kill();
    let daemon = supervisor.start(launch());
    assert!(figure(&daemon, "/memory/ticketed_bytes") >= 8 * 300_000);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let until = Instant::now() + PATIENCE;
            while !end.load(Ordering::Relaxed) && Instant::now() < until {
                for ticket in &tickets {
                    ticket.write(0, &[0xEE; 300_000]).unwrap();
                }
            }
        });
        let client = client_at(daemon.socket());
        for _ in 0..3 {
            fill(&client);
            check_filled(&client);
        }
        end.store(true, Ordering::Relaxed);
    });
    check_filled(&client_at(daemon.socket()));
    assert!(daemon.stop().success());
}

#[test]
fn what_a_process_held_is_free_once_it_is_gone() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    store_blocks(&client_at(daemon.socket()), 8, 100_000);
    let holders: Vec<_> = (0..2)
        .map(|_| ClientProcess::start(daemon.socket(), &["hold", "5", "300000", "8"]))
        .collect();
    for holder in &holders {
        let _holding = holder.heard("holding");
    }
    daemon.kill();
    // One dies while there is no daemon, one later.
    let mut holders = holders.into_iter();
    let _gone = holders.next().unwrap().kill();
    let daemon = supervisor.start(launch());
    until_true("the first one holds nothing", || figure(&daemon, "/held/tickets") == 5);
    assert!(figure(&daemon, "/held/quarantined_bytes") >= 5 * 300_000);
    let gone = holders.next().unwrap().kill();
    let left = (gone.at + Duration::from_secs(1)).saturating_duration_since(Instant::now());
    wait_idle(&daemon, left);
    (0..8).for_each(|index| check(&client_at(daemon.socket()), &key_of(index), 100_000));
    assert!(daemon.stop().success());
}

#[test]
fn no_session_gets_the_name_of_one_before() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    let holder = ClientProcess::start(daemon.socket(), &["hold", "1", "1000", "0"]);
    let _holding = holder.heard("holding");
    daemon.kill();
    let daemon = supervisor.start(launch());
    let _others: Vec<_> = (0..20).map(|_| daemon.connect().attach(2)).collect();
    let top = daemon.admin_json("/v1/top");
    let sessions = top["sessions"].as_array().unwrap();
    let closed: Vec<_> = sessions.iter().filter(|session| session["closed"] == true).collect();
    let open = sessions.iter().filter(|session| session["closed"] == false);
    let former = closed[0]["id"].as_u64().unwrap();
    assert!(closed.len() == 1 && open.clone().count() == 20, "{top}");
    assert!(open.map(|session| session["id"].as_u64().unwrap()).all(|id| id > former), "{top}");
    assert!(daemon.stop().success());
}

#[test]
fn another_size_begins_anew_and_is_kept_from_then_on() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    store_all(&daemon);
    assert!(daemon.stop().success());
    let larger = || Launch::new().args(["--max-bytes", "48M"]);
    let daemon = supervisor.start(larger().announce(NOT_TAKEN_OVER));
    let said = daemon.log().wait_for(NOT_TAKEN_OVER);
    assert!(said.contains("33554432") && said.contains("50331648"), "{said}");
    assert_eq!(misses(&daemon, &key_of(0)), MissReason::NeverStored);
    assert_eq!(daemon.admin_json("/v1/stats")["succession"]["refused"], true);
    assert_eq!(supervisor.kept(), [ARENA, LEDGER]);
    wait_warm(&daemon);
    store_all(&daemon);
    daemon.kill();
    let daemon = supervisor.start(larger());
    check_all(&daemon);
    assert!(daemon.stop().success());
}

#[test]
fn nothing_is_kept_where_it_is_not_wanted_or_nobody_keeps_it() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch().env("FDSTORE", "0"));
    assert!(supervisor.kept().is_empty());
    assert!(daemon.stop().success());
    let daemon = supervisor.start(launch().env("FDSTORE", "16"));
    store_all(&daemon);
    assert!(daemon.stop().success());
    assert_eq!(supervisor.kept(), [ARENA, LEDGER]);
    let daemon = supervisor.start(launch().args(["--warm-restart=false"]).announce(NOT_TAKEN_OVER));
    assert_eq!(misses(&daemon, &key_of(0)), MissReason::NeverStored);
    assert!(supervisor.kept().is_empty());
    assert!(daemon.stop().success());
}

#[test]
fn foreign_and_missing_descriptors_are_told_and_harmless() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    store_all(&daemon);
    assert!(daemon.stop().success());
    // Something else beside ours is closed; ours is used.
    supervisor
        .keep("http", UnixListener::bind(supervisor.service_socket().with_extension("x")).unwrap());
    let daemon = supervisor.start(launch().announce("that nobody asked for"));
    let _told = daemon.log().wait_for("\"http\"");
    check_all(&daemon);
    assert!(daemon.stop().success());
    supervisor.lose("http");
    let cases: [&dyn Fn(); 5] = [
        &|| supervisor.lose(LEDGER),
        &|| supervisor.lose(ARENA),
        &|| supervisor.keep(ARENA, tempfile::tempfile().unwrap()),
        &|| {
            supervisor.lose(LEDGER);
            supervisor.keep(LEDGER, tempfile::tempfile().unwrap());
        },
        // An arena of ours, and a ledger of ours, but about another one.
        &|| {
            let before = supervisor.descriptors(LEDGER).remove(0);
            supervisor.lose(LEDGER);
            supervisor.lose(ARENA);
            let daemon = supervisor.start(launch());
            assert!(daemon.stop().success());
            supervisor.lose(LEDGER);
            supervisor.keep(LEDGER, before);
        },
    ];
    for (number, spoil) in cases.into_iter().enumerate() {
        spoil();
        let daemon = supervisor.start(launch().announce(NOT_TAKEN_OVER));
        assert_eq!(misses(&daemon, &key_of(0)), MissReason::NeverStored, "case {number}");
        assert_eq!(supervisor.kept(), [ARENA, LEDGER], "case {number}");
        store_all(&daemon);
        daemon.kill();
        let daemon = supervisor.start(launch());
        check_all(&daemon);
        assert!(daemon.stop().success());
    }
}

/// Places in the ledger where something stands.
fn used_bytes(ledger: &File) -> Vec<u64> {
    const PAGE: usize = 4_096;
    let mut used = Vec::new();
    let mut page = [0; PAGE];
    for start in (0..ledger.metadata().unwrap().len()).step_by(PAGE) {
        ledger.read_exact_at(&mut page, start).unwrap();
        if page != [0; PAGE] {
            let here = (start..).zip(&page).filter(|(_, byte)| **byte != 0);
            used.extend(here.map(|(at, _)| at));
        }
    }
    used
}

#[test]
fn a_damaged_ledger_costs_blocks_and_never_serves_a_wrong_one() {
    let supervisor = Supervisor::new();
    let mut random = Random::seeded(11);
    let (mut found, mut refused) = (0, 0);
    for round in 0..40 {
        let daemon = supervisor.start(launch().announce(NOT_TAKEN_OVER).announce(NOBODY_CAN_TELL));
        store_all(&daemon);
        let holder = ClientProcess::start(daemon.socket(), &["hold", "2", "1000", "0"]);
        let _holding = holder.heard("holding");
        daemon.kill();
        let ledger = File::from(supervisor.descriptors(LEDGER).remove(0));
        let used = used_bytes(&ledger);
        for _ in 0..=random.below(8) {
            let at = used[random.below(used.len())];
            ledger.write_at(&random.bytes(1 + round % 9), at).unwrap();
        }
        let damaged = launch().announce(NOT_TAKEN_OVER).announce(NOBODY_CAN_TELL);
        let daemon = supervisor.start(damaged);
        let client = client_at(daemon.socket());
        for index in 0..BLOCKS {
            if let Ok(bytes) = client.get(NAMESPACE, &key_of(index)) {
                assert!(bytes == bytes_of(&key_of(index), len_of(index)), "{round} {index}");
                found += 1;
            }
        }
        refused += u64::from(daemon.admin_json("/v1/stats")["succession"]["refused"] == true);
        // Whatever came back can be used.
        store_all(&daemon);
        fill(&client);
        daemon.kill();
    }
    assert!(found > 20 * BLOCKS, "{found} found, {refused} refused");
}

#[test]
fn a_ledger_of_another_version_is_not_interpreted() {
    let supervisor = Supervisor::new();
    let daemon = supervisor.start(launch());
    store_all(&daemon);
    daemon.kill();
    let ledger = File::from(supervisor.descriptors(LEDGER).remove(0));
    ledger.write_at(&99_u32.to_le_bytes(), 8).unwrap();
    let daemon = supervisor.start(launch().announce(NOT_TAKEN_OVER));
    let _said = daemon.log().wait_for("version 99");
    assert_eq!(misses(&daemon, &key_of(0)), MissReason::NeverStored);
    assert!(daemon.stop().success());
}

#[test]
fn the_disk_tier_and_memory_come_back_together() {
    let (supervisor, directory) = (Supervisor::new(), Directory::new());
    let start = || {
        let daemon = supervisor.start(directory.launch(&[]));
        wait_ready(&daemon);
        daemon
    };
    let daemon = start();
    let client = client_at(daemon.socket());
    // Twice what memory holds.
    for index in 0..64 {
        put(&client, &key_of(index), 1 << 20, Retention::Long);
        if index % 8 == 7 {
            wait_written(&daemon);
        }
    }
    daemon.kill();
    for _ in 0..4 {
        let daemon = start();
        assert!(figure(&daemon, "/succession/adopted_rows") > 16);
        let client = client_at(daemon.socket());
        let found = (0..64).filter(|index| has(&client, &key_of(*index), 1 << 20)).count();
        assert_eq!(found, 64);
        wait_written(&daemon);
        daemon.kill();
    }
}

/// Needs 9 GiB of memory, and the release profile: `cargo test --release -p kvd-tests --test warm_restart -- --ignored
/// --nocapture`, after `cargo build --release -p infera-kvd`.
#[test]
#[ignore = "takes 9 GiB"]
fn eight_gibibytes_are_back_within_a_second() {
    // What a block of 16 tokens has at least.
    const LEN: usize = 64 << 10;
    let supervisor = Supervisor::new();
    let launch = || Launch::new().args(["--max-bytes", "8G"]).announce("4 KiB pages");
    let daemon = supervisor.start(launch());
    wait_warm(&daemon);
    // Each has a header beside it.
    let blocks = (8_u64 << 30) / (LEN as u64) * 9 / 10;
    store_blocks(&client_at(daemon.socket()), blocks, LEN);
    let rows = figure(&daemon, "/tiers/host/entries");
    daemon.kill();
    let began = Instant::now();
    let daemon = supervisor.start(launch());
    let client = client_at(daemon.socket());
    let keys = keys_of(blocks);
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let mut found = 0;
    for keys in keys.chunks(4_096) {
        let views = client.fetch(NAMESPACE, keys, false, PATIENCE);
        found += views.items.iter().filter(|item| item.is_ok()).count() as u64;
    }
    let took = began.elapsed();
    let adopted = figure(&daemon, "/succession/adopted_rows");
    println!("{rows} rows, {adopted} adopted, {found} found after {took:?}");
    println!("{}", daemon.admin_json("/v1/stats")["succession"]);
    assert_eq!((adopted, found), (rows, blocks));
    (0..blocks).for_each(|index| check(&client, &key_of(index), LEN));
    assert!(took < Duration::from_secs(1), "{took:?}");
}
