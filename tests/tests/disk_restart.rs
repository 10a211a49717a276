//! Blocks on disk survive the daemon, are found as blocks in memory are, and only those that may be there are there.

#![expect(clippy::expect_used, reason = "a case stops at the first surprise")]

use std::time::Duration;

use kvd_client::{ClearScope, MissReason, Retention, Tier};
use kvd_tests::Daemon;
use kvd_tests::disk::{Directory, device, figure, has, miss, put, wait_ready, wait_written};
use kvd_tests::engine::{NAMESPACE, client_at, key_of, keys_of};
use kvd_tests::figures::wait_warm;
use kvd_tests::until::until_true;
use kvd_tests::wire::Value;
use nix::sys::signal::Signal;

const MIB: usize = 1 << 20;

fn start(directory: &Directory, more: &[&str]) -> Daemon {
    let daemon = directory.launch(more).start();
    wait_warm(&daemon);
    wait_ready(&daemon);
    daemon
}

/// Lengths that begin and end in the middle of pages, and empty ones.
fn len_of(index: u64) -> usize {
    [0, 1, 100, 4_095, 4_096, 5_000, 65_536, 65_537, 300_000, 1_048_577]
        [usize::try_from(index % 10).expect("small")]
}

#[test]
fn long_blocks_survive_a_kill() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    for index in 0..40 {
        put(&client, &key_of(index), len_of(index), Retention::Long);
    }
    wait_written(&daemon);
    assert_eq!(figure(&daemon, "entries"), 40);
    daemon.kill();
    for round in 0..2 {
        let daemon = start(&directory, &[]);
        let client = client_at(daemon.socket());
        assert_eq!(figure(&daemon, "entries"), 40, "round {round}");
        for index in 0..40 {
            assert!(has(&client, &key_of(index), len_of(index)), "block {index} in round {round}");
        }
        // What was read is in memory now, and was not written again.
        assert!(has(&client, &key_of(8), len_of(8)));
        let loads = figure(&daemon, "loads_total");
        assert_eq!(loads, 40, "each was read once");
        assert_eq!(figure(&daemon, "spills_total"), 0);
        assert_eq!(miss(&client, b"never"), MissReason::NeverStored);
        assert!(daemon.stop().success());
    }
}

#[test]
fn clients_that_load_a_large_batch_in_different_orders_do_not_block_each_other() {
    const CLIENTS: usize = 8;
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    let keys: Vec<Vec<u8>> = (0..3_000).map(key_of).collect();
    for key in &keys {
        put(&client, key, 4_000, Retention::Long);
    }
    wait_written(&daemon);
    drop(client);
    assert!(daemon.stop().success());
    let daemon = start(&directory, &[]);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (daemon, keys) = (&daemon, &keys);
            scope.spawn(move || {
                let mut names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
                names.rotate_left(number * keys.len() / CLIENTS);
                if number % 2 == 1 {
                    names.reverse();
                }
                let client = client_at(daemon.socket());
                let found = client.fetch(NAMESPACE, &names, false, Duration::from_secs(30));
                let hits = found.items.iter().filter(|found| found.is_ok()).count();
                assert_eq!(hits, keys.len(), "of client {number}");
            });
        }
    });
    assert!(daemon.stop().success());
}

#[test]
fn the_head_of_a_prefix_is_not_shed_for_what_is_behind_it() {
    let directory = Directory::new();
    let daemon = start(&directory, &["--in-flight-bytes-max", "8M"]);
    let client = client_at(daemon.socket());
    let keys: Vec<Vec<u8>> = (0..60).map(key_of).collect();
    for key in &keys {
        put(&client, key, MIB, Retention::Long);
    }
    wait_written(&daemon);
    // The last half is in memory, the head on disk only.
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    for round in 0..3 {
        let found = client.fetch(NAMESPACE, &names, true, Duration::from_secs(10));
        let hits = found.items.iter().take_while(|found| found.is_ok()).count();
        assert_eq!(hits, 7, "as many as a session may hold, in round {round}");
    }
    assert!(daemon.stop().success());
}

#[test]
fn memory_takes_more_than_it_holds_and_nothing_long_is_lost() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    // Three times the arena.
    for index in 0..96 {
        put(&client, &key_of(index), MIB, Retention::Long);
        if index % 16 == 15 {
            wait_written(&daemon);
        }
    }
    let found = keys_of(96).iter().filter(|key| has(&client, key, MIB)).count();
    assert_eq!(found, 96);
    assert!(figure(&daemon, "demotions_total") > 0);
    assert!(daemon.stop().success());
}

/// A client that is faster than the disk: what memory had to give up before it was written is gone, and says so. All that
/// was written is there after every restart, whatever is stored while the device is looked at, or still grows.
#[test]
fn no_restart_forgets_what_was_written() {
    let is_there = |client: &_, index: &u64| has(client, &key_of(*index), MIB);
    let directory = Directory::new();
    let mut daemon = directory.launch(&[]).start();
    let client = client_at(daemon.socket());
    // Not waited for: neither the device nor its room.
    (0..60).for_each(|index| put(&client, &key_of(index), MIB, Retention::Long));
    wait_written(&daemon);
    let (written, gone): (Vec<u64>, Vec<u64>) = (0..60).partition(|index| is_there(&client, index));
    for index in gone {
        assert_eq!(miss(&client, &key_of(index)), MissReason::Evicted(Retention::Long));
    }
    assert_eq!(figure(&daemon, "entries"), written.len() as u64);
    assert!(!written.is_empty());
    drop(client);
    for life in 0..4 {
        if life % 2 == 0 {
            assert!(daemon.stop().success());
        } else {
            daemon.kill();
        }
        daemon = directory.launch(&[]).start();
        let client = client_at(daemon.socket());
        let fresh = 1_000 + 3 * life..1_003 + 3 * life;
        fresh.for_each(|index| put(&client, &key_of(index), MIB / 2, Retention::Long));
        wait_ready(&daemon);
        let lost: Vec<&u64> = written.iter().filter(|index| !is_there(&client, index)).collect();
        assert!(lost.is_empty(), "life {life}: {lost:?} of {}", written.len());
        wait_written(&daemon);
    }
    assert!(daemon.stop().success());
}

#[test]
fn short_blocks_go_to_disk_when_memory_is_short() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    for index in 0..60 {
        put(&client, &key_of(index), MIB, Retention::Short);
        // Time for the next ones to go to be written ahead of need.
        until_true("the coldest are clean", || figure(&daemon, "entries") + 28 >= index);
    }
    // The arena holds some 30 of the 60: the oldest have long left it.
    for key in keys_of(20) {
        assert!(has(&client, &key, MIB), "{key:?}");
    }
    assert!(figure(&daemon, "spills_total") > 0);
    assert!(daemon.stop().success());
}

#[test]
fn the_lower_classes_never_leave_memory() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    for index in 0..100 {
        let class = if index < 10 { Retention::None } else { Retention::Ephemeral };
        put(&client, &key_of(index), MIB, class);
    }
    assert_eq!(figure(&daemon, "entries"), 0);
    assert_eq!(figure(&daemon, "dirty_rows"), 0);
    assert_eq!(figure(&daemon, "spills_total"), 0);
    assert_eq!(device(&daemon)["spilled_bytes_total"], 0);
    assert!(daemon.stop().success());
}

#[test]
fn what_is_reported_present_on_disk_can_be_fetched() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    put(&client_at(daemon.socket()), b"old", MIB, Retention::Long);
    wait_written(&daemon);
    daemon.kill();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    let located = client.locate(NAMESPACE, &[b"old", b"never"], false);
    let old = located.items[0].as_ref().expect("present");
    assert_eq!((old.tier, old.len_bytes), (Tier::Disk, MIB as u64));
    assert!(located.items[1].is_err());
    // The report has started the load.
    until_true("it is in memory", || {
        let located = client.locate(NAMESPACE, &[b"old"], false);
        located.items[0].as_ref().is_ok_and(|old| old.tier == Tier::Host)
    });
    assert!(has(&client, b"old", MIB));
    // And by the older protocol, without the arena.
    let mut wire = daemon.connect();
    let namespace = [
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ];
    let keys = ("keys", Value::Array(vec![Value::from(&b"old"[..])]));
    let answer = wire.ask("exists", &[keys, namespace[0].clone(), namespace[1].clone()]);
    assert_eq!(answer.field("present"), &Value::Array(vec![Value::from(true)]));
    assert!(wire.ask("stats", &[]).u64("long_bytes") >= MIB as u64);
    assert!(daemon.stop().success());
}

#[test]
fn protocol_1_reads_from_disk_too() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    put(&client_at(daemon.socket()), b"old", 300_000, Retention::Long);
    wait_written(&daemon);
    daemon.kill();
    let daemon = start(&directory, &[]);
    let mut wire = daemon.connect();
    let get = [
        ("key", Value::from(&b"old"[..])),
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ];
    let answer = wire.ask("get", &get);
    let bytes = answer.bytes("value").expect("a hit");
    assert!(bytes == kvd_tests::content::bytes_of(b"old", 300_000));
    assert!(daemon.stop().success());
}

#[test]
fn a_clear_is_for_good() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    for index in 0..20 {
        put(&client, &key_of(index), 50_000, Retention::Long);
    }
    wait_written(&daemon);
    client.clear(ClearScope::Namespace(NAMESPACE)).expect("clearing");
    daemon.kill();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    let found = keys_of(20).iter().filter(|key| has(&client, key, 50_000)).count();
    assert_eq!((found, figure(&daemon, "entries")), (0, 0));
    assert!(daemon.stop().success());
}

#[test]
fn a_new_value_replaces_the_one_on_disk() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    put(&client, b"key", 10_000, Retention::Long);
    wait_written(&daemon);
    put(&client, b"key", 20_000, Retention::Long);
    wait_written(&daemon);
    daemon.kill();
    let daemon = start(&directory, &[]);
    assert!(has(&client_at(daemon.socket()), b"key", 20_000));
    assert_eq!(figure(&daemon, "entries"), 1);
    assert!(daemon.stop().success());
}

#[test]
fn strict_means_that_an_acknowledged_block_survives_at_once() {
    let directory = Directory::new();
    for round in 0..5 {
        let daemon = start(&directory, &["--durability=strict"]);
        let client = client_at(daemon.socket());
        for index in 0..4 {
            put(&client, &key_of(100 * round + index), 70_000, Retention::Long);
        }
        // Nothing is waited for: the acknowledgement was enough.
        daemon.kill();
        let daemon = start(&directory, &["--durability=strict"]);
        let client = client_at(daemon.socket());
        for index in 0..4 {
            assert!(has(&client, &key_of(100 * round + index), 70_000), "{index} in {round}");
        }
        daemon.kill();
    }
}

#[test]
fn group_and_relaxed_write_behind() {
    for flag in ["--durability=relaxed", "--tablespace-flush-interval-ms=5"] {
        let directory = Directory::new();
        let daemon = start(&directory, &[flag]);
        let client = client_at(daemon.socket());
        put(&client, b"key", 70_000, Retention::Long);
        wait_written(&daemon);
        daemon.kill();
        let daemon = start(&directory, &[flag]);
        assert!(has(&client_at(daemon.socket()), b"key", 70_000), "{flag}");
        assert!(daemon.stop().success());
    }
}

#[test]
fn a_plain_stop_keeps_long_blocks_and_a_drain_keeps_short_ones() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    put(&client_at(daemon.socket()), b"long", 3 * MIB, Retention::Long);
    // No wait: the end does that.
    assert!(daemon.stop().success());
    let daemon = start(&directory, &["--drain-on-stop"]);
    let client = client_at(daemon.socket());
    assert!(has(&client, b"long", 3 * MIB));
    put(&client, b"short", 2 * MIB, Retention::Short);
    drop(client);
    daemon.signal(Signal::SIGTERM);
    assert!(daemon.wait().success());
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    assert!(has(&client, b"short", 2 * MIB));
    put(&client, b"another", MIB, Retention::Short);
    let begun = daemon.admin_post("/v1/drain?deadline_ms=30000");
    assert_eq!(begun.status, 200, "{}", begun.body);
    until_true("it is drained", || daemon.admin_json("/v1/drain")["state"] == "done");
    let end = daemon.admin_json("/v1/drain");
    assert_eq!((end["left_bytes"].as_u64(), end["durable"].as_bool()), (Some(0), Some(true)));
    daemon.kill();
    let daemon = start(&directory, &[]);
    assert!(has(&client_at(daemon.socket()), b"another", MIB));
    assert!(daemon.stop().success());
}

#[test]
fn a_time_to_live_goes_on_while_the_daemon_is_down() {
    let directory = Directory::new();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    let put = |key: &[u8], ttl: Duration| {
        let bytes = kvd_tests::content::bytes_of(key, 10_000);
        client.put(NAMESPACE, key, &bytes, Retention::Long, Some(ttl)).expect("stored");
    };
    put(b"brief", Duration::from_millis(1_500));
    put(b"lasting", Duration::from_secs(3_600));
    wait_written(&daemon);
    daemon.kill();
    let daemon = start(&directory, &[]);
    let client = client_at(daemon.socket());
    until_true("its time is over", || !has(&client, b"brief", 10_000));
    assert!(has(&client, b"lasting", 10_000));
    assert!(daemon.stop().success());
}

#[test]
fn without_a_disk_tier_nothing_of_it_is_there() {
    let daemon = Daemon::start(&["--max-bytes", "32M"]);
    assert_eq!(daemon.admin_json("/v1/stats")["devices"], serde_json::json!([]));
    assert_eq!(daemon.admin_post("/v1/drain").status, 409);
    let threads = daemon.facts();
    assert!(!format!("{threads:?}").contains("kvd-disk"), "{threads:?}");
    assert!(daemon.stop().success());
}
