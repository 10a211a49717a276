//! A process that writes where it must not: every engine can write all of the arena. What is damaged so must not reach a
//! disk as if it were right.

#![expect(clippy::unwrap_used, reason = "a case stops at the first surprise")]

use kvd_client::{Client, Commit, MissReason, Namespace, Options, Retention};
use kvd_tests::until::until_true;
use kvd_tests::wire::Attached;
use kvd_tests::{Daemon, PATIENCE};

const SPACE: Namespace<'static> = Namespace { model: "m", compat_key: "c" };
const LEN: usize = 200_000;

fn start(disk: &tempfile::TempDir, more: &[&str]) -> Daemon {
    let path = disk.path().to_str().unwrap();
    let usual = ["--max-bytes", "64M", "--long-path", path, "--long-bytes", "64M"];
    let daemon = Daemon::start(&[&usual, more].concat());
    until_true("the device is read", || {
        daemon.admin_json("/v1/stats")["devices"][0]["health"] == "ok"
    });
    daemon
}

fn client(daemon: &Daemon, sends_checksums: bool) -> Client {
    let mut options = Options::new(daemon.socket(), "engine");
    (options.deadline, options.sends_checksums) = (PATIENCE, sends_checksums);
    Client::new(options)
}

/// A block of class short: it goes to disk when somebody drains, not before.
fn put(client: &Client, key: &[u8]) {
    let bytes: Vec<u8> = (0..=255).cycle().take(LEN).collect();
    client.put(SPACE, key, &bytes, Retention::Short, None).unwrap();
}

/// As [`put`], filled as a device would, by the room's address.
fn put_in_place(client: &Client, attached: &Attached, key: &[u8]) {
    let ticket = client.reserve(&[LEN as u64], Retention::Short, PATIENCE).unwrap().remove(0);
    let ticket = ticket.unwrap();
    assert!(!ticket.as_mut_ptr().is_null());
    ticket.write(0, &vec![7; LEN]).unwrap();
    let commit = Commit { ticket, key, len_bytes: LEN as u64, lineage: None };
    assert_eq!(client.commit(SPACE, vec![commit], Retention::Short, None).unwrap(), [Ok(())]);
    assert!(attached.arena.bytes() > 0);
}

/// Somebody else's bug: one byte in the middle of the block with this key.
fn scribble(daemon: &Daemon, attached: &Attached, key: &str) {
    let rows = daemon.admin_json(&format!("/v1/ls?prefix={key}"));
    let place = rows["rows"][0]["payload_offset"].as_u64().unwrap() + LEN as u64 / 2;
    let mut byte = [0];
    attached.arena.copy_out(place, &mut byte);
    attached.arena.copy_in(place, &[byte[0] ^ 0x10]);
}

/// Drains; the keys that are on disk then.
fn on_disk(daemon: &Daemon) -> Vec<String> {
    assert_eq!(daemon.admin_post("/v1/drain?deadline_ms=60000").status, 200);
    until_true("the drain ends", || daemon.admin_json("/v1/drain")["state"] != "running");
    let page = daemon.admin_json("/v1/ls?tier=l3");
    let rows = page["rows"].as_array().unwrap();
    let mut keys: Vec<_> = rows.iter().map(|row| row["key"].as_str().unwrap().to_owned()).collect();
    keys.sort();
    keys
}

fn miss(client: &Client, key: &[u8]) -> Option<MissReason> {
    client.fetch(SPACE, &[key], false, PATIENCE).items.remove(0).err()
}

#[test]
fn a_damaged_block_does_not_reach_the_disk() {
    let disk = tempfile::tempdir().unwrap();
    let daemon = start(&disk, &[]);
    let engine = client(&daemon, true);
    let attached = daemon.connect().attach(2);
    put(&engine, b"a");
    put(&engine, b"b");
    put_in_place(&engine, &attached, b"c");
    put_in_place(&engine, &attached, b"d");
    scribble(&daemon, &attached, "62");
    scribble(&daemon, &attached, "64");
    assert_eq!(on_disk(&daemon), ["61", "63"]);
    assert_eq!(miss(&engine, b"b"), Some(MissReason::Corrupt));
    assert_eq!(miss(&engine, b"d"), Some(MissReason::Corrupt));
    assert_eq!((miss(&engine, b"a"), miss(&engine, b"c")), (None, None));
    let stats = engine.stats().unwrap();
    assert!(stats.contains(&("disk_corrupt_total".to_owned(), 2)), "{stats:?}");
}

/// Negative control: without checksums nobody can tell.
#[test]
fn without_checksums_the_damage_is_made_durable() {
    let disk = tempfile::tempdir().unwrap();
    let daemon = start(&disk, &[]);
    let engine = client(&daemon, false);
    let attached = daemon.connect().attach(2);
    put(&engine, b"b");
    scribble(&daemon, &attached, "62");
    assert_eq!(on_disk(&daemon), ["62"]);
    assert_eq!(miss(&engine, b"b"), None);
}

#[test]
fn sampled_hits_find_the_damage_in_memory() {
    let disk = tempfile::tempdir().unwrap();
    let daemon = start(&disk, &["--verify-l2", "1/1"]);
    let engine = client(&daemon, true);
    let attached = daemon.connect().attach(2);
    put(&engine, b"a");
    put(&engine, b"b");
    assert_eq!((miss(&engine, b"a"), miss(&engine, b"b")), (None, None));
    scribble(&daemon, &attached, "62");
    assert_eq!(miss(&engine, b"b"), Some(MissReason::Corrupt));
    assert_eq!(miss(&engine, b"a"), None);
}
