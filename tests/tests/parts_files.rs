//! The files of a stopped daemon are damaged, copied, and put under a daemon with other settings: what is found is
//! right, and nothing comes back that was cleared or replaced.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvd_client::{Client, ClientError, Retention};
use kvd_tests::content::Random;
use kvd_tests::disk::{Directory, OURS, usage_bytes};
use kvd_tests::engine::{NAMESPACE, client_at, key_of};
use kvd_tests::parts::history::{Promise, block};
use kvd_tests::parts::load::{Owner, seed};
use kvd_tests::parts::tier;
use kvd_tests::until::{until, until_true};
use kvd_tests::{Daemon, PATIENCE};

const MIB: u64 = 1 << 20;
const TIER_BYTES: u64 = 48 * MIB;
const OWNERS: u64 = 2;
const RECORDS: [&str; 4] = ["journal-a", "journal-b", "snapshot-a", "snapshot-b"];

fn start(directories: &[&Path], bytes: u64, more: &[&str]) -> Daemon {
    let launch = tier::launch_with(4 * MIB, directories, bytes).args(more.iter().copied());
    // Damage and other sizes are said aloud.
    let launch = launch.announce("could not be read").announce("containers stay at");
    let daemon = launch.args(["--durability", "strict"]).start();
    tier::wait_recovered(&daemon);
    daemon
}

/// Lets clients work on the directory until they have done `work` things, then ends the daemon, by a kill if told so.
fn work(owners: &mut [Owner], directory: &Path, work: u64, is_killed: bool) {
    let daemon = start(&[directory], TIER_BYTES, &[]);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let (stop, done, socket) = (&stop, &done, daemon.socket().to_owned());
    std::thread::scope(|scope| {
        let socket = &socket;
        for owner in owners {
            scope.spawn(move || owner.work(socket, stop, done, || 0).unwrap());
        }
        until_true("the clients have done enough", || done.load(Ordering::Relaxed) >= work);
        stop.store(true, Ordering::Relaxed);
    });
    if is_killed {
        daemon.kill();
    } else {
        assert!(daemon.stop().success());
    }
}

fn check(owners: &[Owner], daemon: &Daemon, promise: Promise, about: &str) -> usize {
    let client = client_at(daemon.socket());
    let mut hits = 0;
    for owner in owners {
        let found = owner.check(&client, u64::MAX, promise);
        hits +=
            found.unwrap_or_else(|wrong| panic!("{about}: {wrong}\n{}", daemon.log().text())).hits;
    }
    hits
}

fn copy(from: &Path, to: &Path) {
    let words = ["-r", "--sparse=always", "-T"];
    assert!(Command::new("cp").args(words).args([from, to]).status().unwrap().success());
}

/// Places with something in them.
fn used_places(path: &Path) -> Vec<u64> {
    let bytes = fs::read(path).unwrap();
    let used = bytes.iter().enumerate().filter(|(_, byte)| **byte != 0);
    used.map(|(at, _)| at as u64).collect()
}

/// Flips bits of `count` bytes from a used one on; where.
fn damage(path: &Path, count: usize, random: &mut Random) -> Option<u64> {
    let places = used_places(path);
    if places.is_empty() {
        return None;
    }
    let at = places[random.below(places.len())];
    let file = File::options().read(true).write(true).open(path).unwrap();
    let mut bytes = vec![0; count];
    let read = file.read_at(&mut bytes, at).unwrap();
    for byte in &mut bytes[..read] {
        *byte ^= u8::try_from(1 + random.below(255)).unwrap();
    }
    file.write_all_at(&bytes[..read], at).unwrap();
    Some(at)
}

fn damaged_records(seed: u64, is_killed: bool) {
    let mut random = Random::seeded(seed);
    let mut owners: Vec<Owner> = (0..OWNERS).map(|number| Owner::new(number, seed)).collect();
    let (directory, scratch) = (Directory::new(), Directory::new());
    // Enough for journals to be full and snapshots to be written.
    work(&mut owners, directory.path(), 1_500, is_killed);
    let (mut flips, mut hits) = (0, 0);
    for number in 0..24 {
        drop(fs::remove_dir_all(scratch.ours("")));
        copy(&directory.ours(""), &scratch.ours(""));
        let name = RECORDS[random.below(RECORDS.len())];
        // One byte, or a stretch that spoils several records.
        let count = if number % 2 == 0 { 1 } else { 1 + random.below(10_000) };
        let Some(at) = damage(&scratch.ours(name), count, &mut random) else {
            continue;
        };
        flips += 1;
        let daemon = start(&[scratch.path()], TIER_BYTES, &[]);
        let about = format!("seed {seed}, {count} bytes of {name} from {at}");
        assert_eq!(tier::devices(&daemon)[0]["health"], "ok", "{about}");
        hits += check(&owners, &daemon, Promise::Forgetful, &about);
        assert!(daemon.stop().success());
    }
    assert!(flips >= 8 && hits > 0, "{flips} flips, {hits} hits");
}

#[test]
fn a_damaged_journal_or_snapshot_of_a_stopped_daemon_forgets_and_does_not_lie() {
    damaged_records(seed(1), false);
}

#[test]
fn a_damaged_journal_or_snapshot_of_a_killed_daemon_forgets_and_does_not_lie() {
    damaged_records(seed(2), true);
}

/// The superblock's sizes hold whatever the flags say, and a smaller share gives back what it takes too much.
#[test]
fn other_sizes_keep_what_fits() {
    let seed = seed(3);
    let mut owners: Vec<Owner> = (0..OWNERS).map(|number| Owner::new(number, seed)).collect();
    let directory = Directory::new();
    work(&mut owners, directory.path(), 600, true);
    let sizes = [
        (48 * MIB, "1M", Promise::Strict),
        (96 * MIB, "16M", Promise::Strict),
        (24 * MIB, "2M", Promise::Forgetful),
        (48 * MIB, "auto", Promise::Forgetful),
    ];
    for (bytes, container, promise) in sizes {
        let more = ["--tablespace-container-bytes", container];
        let daemon = start(&[directory.path()], bytes, &more);
        let about = format!("{bytes} bytes in containers of {container}");
        assert_eq!(tier::devices(&daemon)[0]["health"], "ok", "{about}");
        let hits = check(&owners, &daemon, promise, &about);
        assert!(hits > 0, "{about}");
        assert!(usage_bytes(directory.path()) <= bytes, "{about}");
        assert!(daemon.stop().success());
    }
}

const LEN: usize = 100_000;

fn store_all(client: &Client, version: u64) {
    for index in 0..40 {
        let key = key_of(index);
        let bytes = block(&key, version, LEN);
        client.put(NAMESPACE, &key, &bytes, Retention::Long, None).unwrap();
    }
}

/// A device comes back with what it held before the other one got newer values. These win; of the rest nobody can know
/// that it is old, and it is right.
#[test]
fn an_older_copy_of_one_device_does_not_hide_what_the_other_one_knows() {
    let (first, second) = (Directory::new(), Directory::new());
    let daemon = start(&[second.path()], TIER_BYTES, &[]);
    store_all(&client_at(daemon.socket()), 1);
    assert!(daemon.stop().success());
    let kept = Directory::new();
    copy(&second.ours(""), &kept.ours(""));
    let begin = || start(&[first.path(), second.path()], 2 * TIER_BYTES, &[]);
    let daemon = begin();
    let mut latest = 1;
    // Who takes which block is a matter of speed.
    let on_first = until("each device has some of them", PATIENCE, || {
        latest += 1;
        store_all(&client_at(daemon.socket()), latest);
        let on_first = tier::list(&daemon, 0);
        (1..40).contains(&on_first.len()).then_some(on_first)
    });
    assert!(daemon.stop().success());
    fs::remove_dir_all(second.path().join(OURS)).unwrap();
    copy(&kept.ours(""), &second.ours(""));
    for life in 0..2 {
        let daemon = begin();
        let client = client_at(daemon.socket());
        for index in 0..40 {
            let key = key_of(index);
            let is_known = on_first.iter().any(|listed| listed.is(&key));
            match client.get(NAMESPACE, &key) {
                Ok(bytes) if bytes == block(&key, latest, LEN) => {}
                Ok(bytes) if bytes == block(&key, 1, LEN) => {
                    assert!(!is_known, "life {life}: block {index} is old");
                }
                Ok(_) => panic!("wrong bytes of block {index}"),
                Err(ClientError::Miss(_)) => assert!(!is_known, "block {index} is lost"),
                Err(trouble) => panic!("{trouble:?}"),
            }
        }
        assert!(daemon.stop().success());
    }
}
