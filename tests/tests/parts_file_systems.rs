//! The disk tier on ext4 and xfs: it survives a SIGKILL, a file system that fills up, and comes back by itself when
//! there is room again.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::ops::Range;

use kvd_client::{Client, Retention};
use kvd_tests::disk::{figure, has, put, usage_bytes, wait_written};
use kvd_tests::engine::{check, client_at, key_of};
use kvd_tests::figures;
use kvd_tests::parts::file_system::{FileSystem, Kind, make_image};
use kvd_tests::parts::{Workshop, tier};
use kvd_tests::until::until_true;

const MIB: u64 = 1 << 20;
/// The smallest image that both kinds take.
const IMAGE_BYTES: u64 = 320 * MIB;
const TIER_BYTES: u64 = 96 * MIB;
const LEN: usize = 1 << 20;

fn file_system(workshop: &Workshop, kind: Kind) -> FileSystem {
    let image = workshop.path("image");
    make_image(&image, IMAGE_BYTES);
    FileSystem::make(&image, kind, &workshop.path("mounted"))
}

/// Stores block `index`.
fn store(client: &Client, index: u64) {
    put(client, &key_of(index), LEN, Retention::Long);
}

/// How many of the blocks are there, each with the right bytes.
fn hits(client: &Client, indices: Range<u64>) -> usize {
    indices.filter(|index| has(client, &key_of(*index), LEN)).count()
}

fn killed_and_back(kind: Kind) {
    let workshop = Workshop::open();
    let disk = file_system(&workshop, kind);
    // What is acknowledged is there, whenever it is killed.
    let launch = || tier::launch(&[disk.path()], TIER_BYTES).args(["--durability", "strict"]);
    let daemon = launch().start();
    tier::wait_recovered(&daemon);
    let client = client_at(daemon.socket());
    (0..16).for_each(|index| store(&client, index));
    assert!(usage_bytes(disk.path()) <= TIER_BYTES);
    daemon.kill();
    let daemon = launch().start();
    tier::wait_recovered(&daemon);
    let client = client_at(daemon.socket());
    (0..16).for_each(|index| check(&client, &key_of(index), LEN));
    assert_eq!(figure(&daemon, "loads_total"), 16, "read once each, from disk");
    assert!(daemon.stop().success());
    disk.unmount();
}

#[test]
fn a_killed_daemon_finds_its_blocks_on_ext4() {
    killed_and_back(Kind::Ext4);
}

#[test]
fn a_killed_daemon_finds_its_blocks_on_xfs() {
    killed_and_back(Kind::Xfs);
}

/// The tier may have 200 MiB, and the file system has room for a part of that.
fn full_and_back(kind: Kind) {
    let workshop = Workshop::open();
    let disk = file_system(&workshop, kind);
    // Room for the journals, the snapshots and a container or two.
    let ballast = disk.fill_up_to(72 * MIB);
    let launch = || {
        let launch = tier::launch(&[disk.path()], 200 * MIB);
        launch.args(["--durability", "strict"]).announce("the file system is full")
    };
    let daemon = launch().start();
    tier::wait_recovered(&daemon);
    let client = client_at(daemon.socket());
    // More than memory holds, and more than the disk takes.
    (0..96).for_each(|index| store(&client, index));
    until_true("it notices that the file system is full", || tier::is_degraded(&daemon, "full"));
    let capacity = tier::number(&tier::devices(&daemon)[0], "capacity_bytes");
    assert!(capacity > 0 && capacity < 72 * MIB, "{capacity}");
    // Hits go on: from memory, and from what is on disk, of which the oldest make way.
    (200..210).for_each(|index| store(&client, index));
    (200..210).for_each(|index| check(&client, &key_of(index), LEN));
    let found = hits(&client, 0..96);
    assert!(found >= 20, "{found} of 96");
    assert_eq!(tier::devices(&daemon)[0]["health"], "ok", "{:?}", tier::devices(&daemon));
    // There is room again, and nobody says so.
    std::fs::remove_file(ballast).unwrap();
    let mut indices = 300..;
    until_true("it grows again", || {
        store(&client, indices.next().unwrap());
        tier::number(&tier::devices(&daemon)[0], "capacity_bytes") >= 160 * MIB
    });
    until_true("all is well again", || !tier::is_degraded(&daemon, "full"));
    // More than memory holds.
    (10_000..10_100).for_each(|index| store(&client, index));
    daemon.kill();
    let daemon = launch().start();
    tier::wait_recovered(&daemon);
    let found = hits(&client_at(daemon.socket()), 10_000..10_100);
    assert_eq!(found, 100, "of the last hundred, which fit");
    assert!(usage_bytes(disk.path()) <= 200 * MIB);
    assert!(daemon.stop().success());
    disk.unmount();
}

#[test]
fn a_full_ext4_costs_room_and_nothing_else() {
    full_and_back(Kind::Ext4);
}

#[test]
fn a_full_xfs_costs_room_and_nothing_else() {
    full_and_back(Kind::Xfs);
}

/// Not even the journals fit: the daemon does without the tier, says so, and leaves no mess.
#[test]
fn a_file_system_without_room_for_the_journals_is_done_without() {
    let workshop = Workshop::open();
    let disk = file_system(&workshop, Kind::Ext4);
    let ballast = disk.fill_up_to(MIB);
    let launch = || tier::launch(&[disk.path()], 64 * MIB).announce("No space left on device");
    let daemon = launch().start();
    tier::wait_recovered(&daemon);
    assert!(tier::is_degraded(&daemon, "No space left"), "{}", daemon.admin_get("/readyz").body);
    assert_eq!(tier::devices(&daemon)[0]["health"], "refused");
    let client = client_at(daemon.socket());
    store(&client, 1);
    check(&client, &key_of(1), LEN);
    figures::check_space(&daemon.admin_json("/v1/stats"));
    assert!(daemon.stop().success());
    std::fs::remove_file(ballast).unwrap();
    let daemon = launch().start();
    tier::wait_recovered(&daemon);
    assert_eq!(tier::devices(&daemon)[0]["health"], "ok");
    store(&client_at(daemon.socket()), 1);
    wait_written(&daemon);
    assert!(daemon.stop().success());
    disk.unmount();
}
