//! Files that are cut, deleted or scribbled over, while the daemon is down and while it runs: misses and a counter,
//! never wrong bytes, and never the end of anything else.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;

use kvd_client::{Client, ClientError, MissReason, Refusal, Retention};
use kvd_tests::content::{Random, bytes_of};
use kvd_tests::disk::{Directory, OURS, device, figure, has, miss, put, wait_ready, wait_written};
use kvd_tests::engine::{NAMESPACE, client_at, key_of, keys_of};
use kvd_tests::figures::wait_warm;
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch};

const LEN: usize = 400_000;
const BLOCKS: u64 = 40;

fn launch(directory: &Directory) -> Launch {
    directory
        .launch(&[])
        .announce("does not fit its checksum")
        .announce("the file ends after")
        .announce("could not be read")
}

fn start(directory: &Directory) -> Daemon {
    let daemon = launch(directory).start();
    wait_warm(&daemon);
    wait_ready(&daemon);
    daemon
}

/// A daemon whose blocks are all on disk.
fn filled(directory: &Directory) -> Daemon {
    let daemon = start(directory);
    let client = client_at(daemon.socket());
    for index in 0..BLOCKS {
        put(&client, &key_of(index), LEN, Retention::Long);
    }
    wait_written(&daemon);
    daemon
}

fn containers(directory: &Directory) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = fs::read_dir(directory.path().join(OURS))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("container-"))
        .collect();
    found.sort();
    found
}

/// How many blocks are there; those that are, are right.
fn found(daemon: &Daemon) -> usize {
    let client = client_at(daemon.socket());
    keys_of(BLOCKS).iter().filter(|key| has(&client, key, LEN)).count()
}

/// Blocks on the damaged device can be stored anew, and are fine then.
fn stores_anew(daemon: &Daemon) {
    let client = client_at(daemon.socket());
    put(&client, b"anew", LEN, Retention::Long);
    wait_written(daemon);
    assert!(has(&client, b"anew", LEN));
    assert_eq!(device(daemon)["health"], "ok");
}

#[test]
fn flipped_bits_are_misses_that_are_counted() {
    let directory = Directory::new();
    filled(&directory).kill();
    let mut random = Random::seeded(7);
    for path in containers(&directory) {
        let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
        for _ in 0..40 {
            let at = random.below(len) as u64;
            let mut byte = [0];
            file.read_exact_at(&mut byte, at).unwrap();
            file.write_all_at(&[byte[0] ^ 1 << random.below(8)], at).unwrap();
        }
    }
    let daemon = start(&directory);
    let found = found(&daemon);
    let lost = usize::try_from(figure(&daemon, "corrupt_total")).unwrap();
    assert_eq!(found + lost, usize::try_from(BLOCKS).unwrap());
    assert!(lost > 0, "80 flips over 16 MiB of blocks");
    assert_eq!(device(&daemon)["corrupt_total"].as_u64(), Some(lost as u64));
    stores_anew(&daemon);
    assert!(daemon.stop().success());
}

#[test]
fn a_container_that_is_gone_or_cut_costs_its_blocks() {
    for is_cut in [false, true] {
        let directory = Directory::new();
        filled(&directory).kill();
        let first = containers(&directory).remove(0);
        if is_cut {
            OpenOptions::new().write(true).open(&first).unwrap().set_len(1 << 20).unwrap();
        } else {
            fs::remove_file(&first).unwrap();
        }
        let daemon = start(&directory);
        let found = found(&daemon);
        assert!(found < usize::try_from(BLOCKS).unwrap(), "the first container held blocks");
        let lost = BLOCKS - found as u64;
        assert_eq!(figure(&daemon, "corrupt_total"), lost, "cut: {is_cut}");
        stores_anew(&daemon);
        assert!(daemon.stop().success());
    }
}

#[test]
fn damage_under_a_running_daemon_is_noticed_too() {
    let directory = Directory::new();
    filled(&directory).kill();
    let daemon = start(&directory);
    let all = containers(&directory);
    for path in &all {
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(0).unwrap();
    }
    let client = client_at(daemon.socket());
    assert_eq!(miss(&client, &key_of(3)), MissReason::Corrupt);
    assert_eq!(found(&daemon), 0);
    assert_eq!(figure(&daemon, "corrupt_total"), BLOCKS);
    stores_anew(&daemon);
    assert!(daemon.stop().success());
}

/// A daemon that acknowledges what is durable only, with some blocks, whose files are about to go.
fn strict_one(directory: &Directory) -> Daemon {
    let launch = launch(directory).args(["--durability", "strict"]);
    let daemon = launch.announce("files were removed").start();
    wait_warm(&daemon);
    wait_ready(&daemon);
    let client = client_at(daemon.socket());
    for index in 0..BLOCKS {
        put(&client, &key_of(index), LEN, Retention::Long);
    }
    daemon
}

fn is_declined(client: &Client, key: &[u8]) -> bool {
    match client.put(NAMESPACE, key, &bytes_of(key, LEN), Retention::Long, None) {
        Ok(()) => false,
        Err(ClientError::Declined(Refusal::NotDurable)) => true,
        Err(trouble) => panic!("{trouble:?}"),
    }
}

/// The device is given up soon, which is said once; memory goes on.
fn gives_up(daemon: &Daemon) {
    until_true("it is given up", || device(daemon)["health"] == "failed");
    let client = client_at(daemon.socket());
    for index in 1_000..1_040 {
        assert!(is_declined(&client, &key_of(index)), "{index} would not survive");
        assert!(has(&client, &key_of(index), LEN), "{index} is in memory");
    }
    assert!(figure(daemon, "waits_failed_total") >= 40);
    assert!(daemon.admin_get("/readyz").body.contains("files were removed"));
    until_true("it says so", || daemon.log().count("files were removed") > 0);
    assert_eq!(daemon.log().count("files were removed"), 1);
}

#[test]
fn deleting_everything_under_a_running_daemon_ends_what_is_durable() {
    let directory = Directory::new();
    let daemon = strict_one(&directory);
    // As a connector's cache reset does it.
    fs::remove_dir_all(directory.ours("")).unwrap();
    gives_up(&daemon);
    assert!(!fs::exists(directory.ours("")).unwrap(), "nothing is made in its place");
    daemon.kill();
    let daemon = start(&directory);
    assert_eq!(found(&daemon), 0, "it begins anew");
    stores_anew(&daemon);
    assert!(daemon.stop().success());
}

#[test]
fn deleting_one_file_under_a_running_daemon_ends_what_is_durable() {
    for name in ["journal-a", "container-00000"] {
        let directory = Directory::new();
        let daemon = strict_one(&directory);
        fs::remove_file(directory.ours(name)).unwrap();
        gives_up(&daemon);
        daemon.kill();
        let daemon = launch(&directory).announce("begins anew").start();
        wait_warm(&daemon);
        wait_ready(&daemon);
        assert_eq!(found(&daemon), 0, "{name}");
        stores_anew(&daemon);
        assert!(daemon.stop().success());
    }
}

#[test]
fn a_directory_that_took_the_place_of_ours_is_left_alone() {
    let directory = Directory::new();
    let daemon = strict_one(&directory);
    let aside = directory.path().join("aside");
    fs::rename(directory.ours(""), &aside).unwrap();
    fs::create_dir(directory.ours("")).unwrap();
    gives_up(&daemon);
    assert!(daemon.stop().success());
    assert_eq!(fs::read_dir(directory.ours("")).unwrap().count(), 0);
    // What was replaced meanwhile could not be said in what was moved away.
    assert!(fs::exists(aside.join("failed")).unwrap());
}

#[test]
fn a_damaged_journal_costs_what_it_said_and_nothing_else() {
    let mut random = Random::seeded(11);
    for round in 0..12 {
        let directory = Directory::new();
        filled(&directory).kill();
        for name in ["journal-a", "journal-b", "snapshot-a", "snapshot-b"] {
            let file = OpenOptions::new().write(true).open(directory.ours(name)).unwrap();
            for _ in 0..3 {
                let at = random.below(16 << 10) as u64;
                file.write_all_at(&random.bytes(1 + round * 37), at).unwrap();
            }
        }
        let daemon = start(&directory);
        let found = found(&daemon);
        assert!(found <= usize::try_from(BLOCKS).unwrap(), "round {round}");
        stores_anew(&daemon);
        assert!(daemon.stop().success());
    }
}

#[test]
fn a_kill_at_any_moment_leaves_nothing_wrong() {
    let directory = Directory::new();
    let mut random = Random::seeded(3);
    for round in 0..8_u64 {
        let daemon = launch(&directory).start();
        wait_warm(&daemon);
        let client = client_at(daemon.socket());
        for _ in 0..20 + random.below(60) {
            let key = key_of(random.next_u64() % 200);
            // A key always has the same length, so a hit can be judged whoever stored it.
            let len = 1_000 * key.len() * key.len();
            if random.below(3) == 0 {
                let _either = has(&client, &key, len);
            } else {
                put(&client, &key, len, Retention::Long);
            }
        }
        drop(client);
        daemon.kill();
        if round == 7 {
            let daemon = start(&directory);
            let client = client_at(daemon.socket());
            let there = keys_of(200)
                .iter()
                .filter(|key| has(&client, key, 1_000 * key.len() * key.len()))
                .count();
            assert!(there > 50, "{there} of 200");
            assert_eq!(figure(&daemon, "corrupt_total"), 0);
            assert!(daemon.stop().success());
        }
    }
}

#[test]
fn a_stray_write_into_memory_is_found_by_the_sample_and_not_made_durable() {
    let directory = Directory::new();
    let daemon =
        directory.launch(&["--verify-l2=1/1"]).announce("does not fit its checksum").start();
    wait_warm(&daemon);
    wait_ready(&daemon);
    let client = client_at(daemon.socket());
    put(&client, b"victim", LEN, Retention::Long);
    wait_written(&daemon);
    assert!(has(&client, b"victim", LEN));
    // Every client maps the whole arena: one that writes where it must not.
    let row = daemon.admin_json(&format!("/v1/ls?prefix={}", hex(b"victim")))["rows"][0].clone();
    let at = row["payload_offset"].as_u64().unwrap() + 1_000;
    daemon.connect().attach(2).arena.copy_in(at, b"stray");
    assert_eq!(miss(&client, b"victim"), MissReason::Corrupt);
    assert!(daemon.metric("infera_kvd_hits_verified_total") >= Some(2.0));
    // The copy on disk is the right one.
    assert!(has(&client, b"victim", LEN));
    assert!(daemon.stop().success());
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn listings_show_what_is_on_disk() {
    let directory = Directory::new();
    filled(&directory).kill();
    let daemon = start(&directory);
    assert!(has(&client_at(daemon.socket()), &key_of(5), LEN));
    let (mut seen, mut cursor) = (Vec::new(), Some(0));
    while let Some(at) = cursor {
        let page = daemon.admin_json(&format!("/v1/ls?tier=l3&limit=7&cursor={at}"));
        let rows = page["rows"].as_array().unwrap();
        assert!(rows.len() <= 7);
        seen.extend(rows.iter().map(|row| {
            assert_eq!(
                (row["device"].as_u64(), row["retention"].as_str()),
                (Some(0), Some("long"))
            );
            (row["key"].as_str().unwrap().to_owned(), row["in_memory"].as_bool().unwrap())
        }));
        cursor = page["next"].as_u64();
    }
    seen.sort();
    let mut wanted: Vec<_> = (0..BLOCKS).map(|index| (hex(&key_of(index)), index == 5)).collect();
    wanted.sort();
    assert_eq!(seen, wanted);
    let why = daemon.admin_json(&format!("/v1/why?model=m&compat_key=tp0&key={}", hex(&key_of(6))));
    assert_eq!((why["present"].as_bool(), why["row"].is_null()), (Some(true), true));
    assert_eq!(why["entry"]["len_bytes"].as_u64(), Some(LEN as u64));
    assert!(daemon.stop().success());
}
