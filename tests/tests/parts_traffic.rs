//! How many bytes go to the device for each byte that is stored, and come from it for each byte that is served: by the
//! daemon's own counters, and by those that the kernel keeps for the device.

use std::ops::Range;

use kvd_client::{Client, Retention};
use kvd_tests::Daemon;
use kvd_tests::disk::{figure, has, put, wait_written};
use kvd_tests::engine::{check, client_at, key_of};
use kvd_tests::parts::file_system::{FileSystem, Kind, make_image};
use kvd_tests::parts::{Workshop, tier};

const MIB: u64 = 1 << 20;
const LEN: usize = 1 << 20;
const TIER_BYTES: u64 = 96 * MIB;

/// What the daemon's counters say of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Traffic {
    loaded: u64,
    spilled: u64,
    records: u64,
}

impl Traffic {
    fn of(daemon: &Daemon) -> Self {
        let device = &tier::devices(daemon)[0];
        let number = |name| tier::number(device, name);
        Self {
            loaded: number("loaded_bytes_total"),
            spilled: number("spilled_bytes_total"),
            records: number("record_bytes_total"),
        }
    }
}

fn file_system(workshop: &Workshop) -> FileSystem {
    let image = workshop.path("image");
    make_image(&image, 256 * MIB);
    FileSystem::make(&image, Kind::Ext4, &workshop.path("mounted"))
}

fn start(disk: &FileSystem) -> (Daemon, Client) {
    let daemon = tier::launch(&[disk.path()], TIER_BYTES).start();
    tier::wait_recovered(&daemon);
    let client = client_at(daemon.socket());
    (daemon, client)
}

/// Stores blocks, not faster than they are written.
fn store(daemon: &Daemon, client: &Client, indices: Range<u64>) {
    for index in indices {
        put(client, &key_of(index), LEN, Retention::Long);
        if index % 8 == 7 {
            wait_written(daemon);
        }
    }
}

/// Enough to fill the device: all containers are there then, and blocks leave for others.
const FULL: u64 = 160;

#[test]
fn a_byte_that_is_served_is_read_once_and_nothing_is_written() {
    const COUNT: u64 = 48;
    let workshop = Workshop::open();
    let disk = file_system(&workshop);
    let (daemon, client) = start(&disk);
    store(&daemon, &client, 0..FULL);
    assert!(daemon.stop().success());
    let (daemon, client) = start(&disk);
    let (counted, moved) = (Traffic::of(&daemon), disk.moved());
    // More than memory holds: each leaves it again, and nothing is written because of that.
    (FULL - COUNT..FULL).for_each(|index| check(&client, &key_of(index), LEN));
    let bytes = COUNT * LEN as u64;
    let wanted = Traffic { loaded: counted.loaded + bytes, ..counted };
    assert_eq!(Traffic::of(&daemon), wanted);
    let now = disk.moved();
    let read = now.read_bytes - moved.read_bytes;
    assert!((bytes..=bytes + bytes / 100).contains(&read), "{read} bytes read for {bytes}");
    // The file system may write down when a file was used last.
    let written = now.written_bytes - moved.written_bytes;
    assert!(written <= bytes / 100, "{written} bytes written");
    assert!(figure(&daemon, "demotions_total") > 0);
    // What is in memory costs nothing at all.
    let before = Traffic::of(&daemon);
    (0..20).for_each(|_| check(&client, &key_of(FULL - 1), LEN));
    assert_eq!(Traffic::of(&daemon), before);
    assert!(daemon.stop().success());
    disk.unmount();
}

#[test]
fn a_byte_that_is_stored_is_written_once() {
    let workshop = Workshop::open();
    let disk = file_system(&workshop);
    let (daemon, client) = start(&disk);
    store(&daemon, &client, 0..FULL);
    let (counted, moved) = (Traffic::of(&daemon), disk.moved());
    let spills = figure(&daemon, "spills_total");
    store(&daemon, &client, FULL..480);
    let (now, later) = (Traffic::of(&daemon), disk.moved());
    assert_eq!(figure(&daemon, "spills_total") - spills, 320, "each is written once");
    let payload = 320 * LEN as u64;
    assert_eq!(now.spilled - counted.spilled, payload, "without padding");
    assert_eq!(now.loaded, counted.loaded, "and nothing is read for that");
    let records = now.records - counted.records;
    assert!(records > 0 && records <= payload / 20, "{records} bytes of records for {payload}");
    // By the kernel's account, with what the file system needs for itself.
    let written = later.written_bytes - moved.written_bytes;
    assert!(written <= payload / 100 * 108, "{written} bytes written for {payload}");
    assert!(written >= payload + records, "{written} bytes are fewer than {payload} and {records}");
    let kept = (0..480).filter(|index| has(&client, &key_of(*index), LEN)).count();
    assert!(kept >= 64, "{kept} of 480 are still there");
    assert!(daemon.stop().success());
    disk.unmount();
}
