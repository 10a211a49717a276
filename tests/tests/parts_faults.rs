//! A device whose sectors fail, in use: reads, writes, syncs, the journal. What cannot be read is a miss and what
//! cannot be written stays in memory; the rest goes on.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::ops::Range;
use std::path::{Path, PathBuf};

use kvd_client::{ClearScope, Client, ClientError, MissReason, Refusal, Retention};
use kvd_tests::content::bytes_of;
use kvd_tests::disk::{Directory, OURS, figure, has, miss, put, wait_written};
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of};
use kvd_tests::parts::extents::sectors_of;
use kvd_tests::parts::faulty_device::{Broken, Fault, FaultyDevice};
use kvd_tests::parts::file_system::{FileSystem, Kind, make_image};
use kvd_tests::parts::history::block;
use kvd_tests::parts::{Workshop, tier};
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch};
use nix::errno::Errno;

const MIB: u64 = 1 << 20;
const TIER_BYTES: u64 = 64 * MIB;
const LEN: usize = 256 << 10;

/// A file system on a device that can be broken.
struct Setup {
    // In the order in which they must go.
    disk: FileSystem,
    device: FaultyDevice,
    _workshop: Workshop,
}

impl Setup {
    fn new(kind: Kind) -> Self {
        let workshop = Workshop::open();
        let image = workshop.path("image");
        make_image(&image, 320 * MIB);
        let device = FaultyDevice::start(&image, workshop.folder());
        let disk = FileSystem::make(device.path(), kind, &workshop.path("mounted"));
        Self { disk, device, _workshop: workshop }
    }

    fn launch(&self) -> Launch {
        tier::launch(&[self.disk.path()], TIER_BYTES)
    }

    fn start(&self) -> Daemon {
        let daemon = self.launch().announce("disk tier:").start();
        tier::wait_recovered(&daemon);
        daemon
    }

    /// Stores the first `count` blocks, lets them get to the disk, and starts another daemon, with nothing in memory.
    fn with_blocks(&self, count: u64) -> Daemon {
        let daemon = self.start();
        store(&client_at(daemon.socket()), 0..count);
        wait_written(&daemon);
        assert!(daemon.stop().success());
        self.start()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.disk.path().join(OURS).join(name)
    }

    fn end(self) {
        self.disk.unmount();
        self.device.stop();
    }
}

fn store(client: &Client, indices: Range<u64>) {
    indices.for_each(|index| put(client, &key_of(index), LEN, Retention::Long));
}

/// A sector in the middle of where a block lies.
fn sector_of(daemon: &Daemon, directory: &Path, key: &[u8]) -> u64 {
    let listed = tier::list(daemon, 0).into_iter().find(|listed| listed.is(key)).unwrap();
    let containers = tier::containers(directory);
    let container_bytes = std::fs::metadata(&containers[0]).unwrap().len();
    let middle = listed.offset + listed.len_bytes / 2;
    let (number, inside) = (middle / container_bytes, middle % container_bytes);
    let container = &containers[usize::try_from(number).unwrap()];
    sectors_of(container, inside..inside + 4_096)[0].start
}

/// One sector in each `step` bytes of a file.
fn sectors_every(path: &Path, step: u64) -> Vec<u64> {
    let len = std::fs::metadata(path).unwrap().len();
    let places = (0..len / step).map(|number| number * step + step / 2);
    places.map(|at| sectors_of(path, at..at + 512)[0].start).collect()
}

fn faults(broken: Broken, errno: Errno, sectors: &[u64]) -> Vec<Fault> {
    let fault = |sector: &u64| Fault { broken, errno: errno as i32, sector: Some(*sector) };
    sectors.iter().map(fault).collect()
}

#[test]
fn a_sector_that_cannot_be_read_costs_one_block() {
    let mut setup = Setup::new(Kind::Ext4);
    let daemon = setup.with_blocks(12);
    let bad = sector_of(&daemon, setup.disk.path(), &key_of(5));
    setup.device.break_it(&faults(Broken::Read, Errno::EIO, &[bad]));
    let client = client_at(daemon.socket());
    for index in 0..12 {
        assert_eq!(has(&client, &key_of(index), LEN), index != 5, "block {index}");
    }
    assert_eq!(figure(&daemon, "load_faults_total"), 1);
    // It is not tried again.
    let faults_before = tier::number(&tier::devices(&daemon)[0], "faults_total");
    for _ in 0..20 {
        assert!(!has(&client, &key_of(5), LEN));
    }
    let device = &tier::devices(&daemon)[0];
    assert_eq!(tier::number(device, "faults_total"), faults_before);
    assert_eq!(device["health"], "ok");
    assert!(tier::number(device, "quarantined_bytes") >= LEN as u64, "{device}");
    // Its key can be stored again, and lies elsewhere.
    store(&client, 5..6);
    wait_written(&daemon);
    assert!(daemon.stop().success());
    let daemon = setup.start();
    assert_ne!(sector_of(&daemon, setup.disk.path(), &key_of(5)), bad);
    let client = client_at(daemon.socket());
    (0..12).for_each(|index| check(&client, &key_of(index), LEN));
    assert!(daemon.stop().success());
    setup.end();
}

#[test]
fn sectors_that_cannot_be_written_are_left_out() {
    let mut setup = Setup::new(Kind::Ext4);
    let launch = setup.launch().args(["--durability", "strict"]).announce("disk tier:");
    let daemon = launch.start();
    tier::wait_recovered(&daemon);
    let bad = sectors_every(&tier::containers(setup.disk.path())[0], 2 * MIB);
    setup.device.break_it(&faults(Broken::Write, Errno::EIO, &bad));
    let client = client_at(daemon.socket());
    store(&client, 0..24);
    let device = &tier::devices(&daemon)[0];
    let faults = figure(&daemon, "spill_faults_total");
    assert!(faults > 0, "{device}");
    assert_eq!(device["health"], "ok");
    assert_eq!(tier::number(device, "quarantined_bytes"), faults * LEN as u64, "{device}");
    assert_eq!(figure(&daemon, "entries"), 24);
    assert_eq!(figure(&daemon, "dropped_faulty_total"), 0);
    daemon.kill();
    let daemon = setup.start();
    let client = client_at(daemon.socket());
    (0..24).for_each(|index| check(&client, &key_of(index), LEN));
    assert!(daemon.stop().success());
    setup.end();
}

/// No block can be written at all: the device is given up, what it holds with it, and the daemon goes on.
#[test]
fn a_device_that_takes_no_block_is_given_up() {
    let mut setup = Setup::new(Kind::Xfs);
    let mut daemon = setup.with_blocks(4);
    daemon.announce("out of use");
    let bad = sectors_every(&tier::containers(setup.disk.path())[0], 32 << 10);
    setup.device.break_it(&faults(Broken::Write, Errno::EIO, &bad));
    let client = client_at(daemon.socket());
    store(&client, 100..140);
    until_true("the device is given up", || tier::devices(&daemon)[0]["health"] == "failed");
    assert!(tier::is_degraded(&daemon, "too many reads or writes failed"));
    assert!(!has(&client, &key_of(0), LEN));
    (100..140).for_each(|index| check(&client, &key_of(index), LEN));
    store(&client, 200..210);
    (200..210).for_each(|index| check(&client, &key_of(index), LEN));
    assert!(daemon.stop().success());
    setup.device.heal();
    // What was replaced or cleared meanwhile could not be noted on it, so it begins anew.
    let mut daemon = setup.start();
    daemon.announce("begins anew");
    let client = client_at(daemon.socket());
    assert!((0..4).all(|index| !has(&client, &key_of(index), LEN)));
    store(&client, 0..4);
    wait_written(&daemon);
    assert_eq!(figure(&daemon, "entries"), 4);
    assert!(daemon.stop().success());
    setup.end();
}

#[test]
fn blocks_wait_for_a_device_without_room_and_go_there_by_themselves() {
    let mut setup = Setup::new(Kind::Ext4);
    let daemon = setup.with_blocks(4);
    let bad = sectors_every(&tier::containers(setup.disk.path())[0], 32 << 10);
    setup.device.break_it(&faults(Broken::Write, Errno::ENOSPC, &bad));
    let client = client_at(daemon.socket());
    store(&client, 100..120);
    until_true("a write is refused", || figure(&daemon, "spill_faults_total") > 0);
    let look = |indices: Range<u64>| indices.for_each(|index| check(&client, &key_of(index), LEN));
    look(100..120);
    look(0..4);
    assert_eq!(figure(&daemon, "entries"), 4);
    let device = &tier::devices(&daemon)[0];
    assert_eq!((&device["health"], &device["quarantined_bytes"]), (&"ok".into(), &0.into()));
    setup.device.heal();
    wait_written(&daemon);
    assert_eq!(figure(&daemon, "entries"), 24);
    assert!(daemon.stop().success());
    let daemon = setup.start();
    let client = client_at(daemon.socket());
    (100..120).for_each(|index| check(&client, &key_of(index), LEN));
    assert!(daemon.stop().success());
    setup.end();
}

#[test]
fn a_journal_that_cannot_be_written_ends_its_device_and_no_other() {
    let look = |client: &Client| {
        (100..132).for_each(|index| check(client, &key_of(index), LEN));
        for index in 0..16 {
            let key = key_of(index);
            assert!(client.get(NAMESPACE, &key).unwrap() == block(&key, 2, LEN), "block {index}");
        }
    };
    let mut setup = Setup::new(Kind::Ext4);
    let image = setup._workshop.path("sound");
    make_image(&image, 320 * MIB);
    let sound = FileSystem::make(&image, Kind::Xfs, &setup._workshop.path("sound-mounted"));
    assert!(setup.with_blocks(16).stop().success());
    let both = tier::launch(&[setup.disk.path(), sound.path()], 2 * TIER_BYTES);
    let mut daemon = both.announce("disk tier:").start();
    daemon.announce("out of use");
    tier::wait_recovered(&daemon);
    let client = client_at(daemon.socket());
    let journals = ["journal-a", "journal-b"].map(|name| setup.file(name));
    let bad: Vec<u64> = journals.iter().flat_map(|path| sectors_every(path, 4_096)).collect();
    setup.device.break_it(&faults(Broken::Write, Errno::EIO, &bad));
    // What is replaced on the broken device has to leave it, which its journal must say.
    for index in 0..16 {
        let key = key_of(index);
        client.put(NAMESPACE, &key, &block(&key, 2, LEN), Retention::Long, None).unwrap_or_else(
            |refused| assert!(matches!(refused, ClientError::Declined(Refusal::NotDurable))),
        );
    }
    store(&client, 100..132);
    until_true("one device is given up", || tier::devices(&daemon)[0]["health"] == "failed");
    assert!(tier::is_degraded(&daemon, "its journal could not be written"));
    wait_written(&daemon);
    let devices = tier::devices(&daemon);
    assert_eq!(devices[1]["health"], "ok", "{devices:?}");
    assert_eq!(tier::number(&devices[1], "entries"), 48, "{devices:?}");
    look(&client);
    assert!(daemon.stop().success());
    let daemon = tier::launch(&[sound.path()], TIER_BYTES).start();
    tier::wait_recovered(&daemon);
    let client = client_at(daemon.socket());
    look(&client);
    assert!(daemon.stop().success());
    sound.unmount();
    setup.end();
}

/// After a sync that failed nobody knows what is on the device: nothing more is acknowledged as durable there.
#[test]
fn a_sync_that_fails_ends_the_device_and_acknowledges_nothing() {
    let mut setup = Setup::new(Kind::Ext4);
    let launch = setup.launch().args(["--durability", "strict"]).announce("disk tier:");
    let mut daemon = launch.start();
    daemon.announce("out of use");
    // The file system is read-only after a flush that failed.
    daemon.announce("does not take a note");
    tier::wait_recovered(&daemon);
    let client = client_at(daemon.socket());
    store(&client, 0..4);
    assert!(figure(&daemon, "waits_durable_total") >= 4);
    let flushes = Fault { broken: Broken::Flush, errno: Errno::EIO as i32, sector: None };
    setup.device.break_it(&[flushes]);
    let key = key_of(100);
    let refused = client.put(NAMESPACE, &key, &bytes_of(&key, LEN), Retention::Long, None);
    let refused = refused.unwrap_err();
    assert!(
        matches!(refused, ClientError::Declined(Refusal::NotDurable)),
        "{refused:?} {:?}",
        tier::devices(&daemon)
    );
    until_true("the device is given up", || tier::devices(&daemon)[0]["health"] == "failed");
    assert!(tier::is_degraded(&daemon, "sync failed"));
    // Memory goes on.
    put(&client, &key_of(200), LEN, Retention::Short);
    check(&client, &key_of(200), LEN);
    assert_ne!(miss(&client, b"never"), MissReason::Deadline);
    assert!(daemon.stop().success());
    setup.disk.abandon();
}

/// While a device is out of use nobody can clear what is on it, and a clear says so. Nor can anybody note on it what was
/// replaced meanwhile, so it begins anew when it comes back.
#[test]
fn a_device_that_comes_back_brings_nothing_back() {
    let mut setup = Setup::new(Kind::Ext4);
    let sound = Directory::new();
    assert!(setup.with_blocks(16).stop().success());
    let paths = [setup.disk.path().to_owned(), sound.path().to_owned()];
    let begin = || {
        let launch = tier::launch(&[&paths[0], &paths[1]], 2 * TIER_BYTES);
        let mut daemon = launch.args(["--durability", "strict"]).announce("disk tier:").start();
        daemon.announce("out of use");
        daemon.announce("begins anew");
        tier::wait_recovered(&daemon);
        daemon
    };
    let daemon = begin();
    let client = client_at(daemon.socket());
    let journals = ["journal-a", "journal-b"].map(|name| setup.file(name));
    let bad: Vec<u64> = journals.iter().flat_map(|path| sectors_every(path, 4_096)).collect();
    setup.device.break_it(&faults(Broken::Write, Errno::EIO, &bad));
    let replace = |index: u64| {
        let key = key_of(index);
        client.put(NAMESPACE, &key, &block(&key, 2, LEN), Retention::Long, None)
    };
    let refused = replace(0).unwrap_err();
    assert!(matches!(refused, ClientError::Declined(Refusal::NotDurable)), "{refused:?}");
    until_true("the device is out of use", || tier::devices(&daemon)[0]["health"] == "failed");
    (1..8).for_each(|index| replace(index).unwrap());
    let ephemeral = bytes_of(b"another", LEN);
    for index in 8..12 {
        client.put(NAMESPACE, &key_of(index), &ephemeral, Retention::Ephemeral, None).unwrap();
    }
    client.clear(ClearScope::Model("another")).unwrap_err();
    assert!(daemon.stop().success());
    setup.device.heal();
    for _life in 0..2 {
        let daemon = begin();
        assert_eq!(tier::devices(&daemon)[0]["health"], "ok");
        let client = client_at(daemon.socket());
        for index in 1..8 {
            let key = key_of(index);
            let found = client.get(NAMESPACE, &key).unwrap();
            assert!(found == block(&key, 2, LEN), "block {index} is old");
        }
        // Block 0 was refused: the newer value may be there or not.
        for index in 8..16 {
            assert_ne!(miss(&client, &key_of(index)), MissReason::Deadline, "block {index}");
        }
        assert!(daemon.stop().success());
    }
    setup.end();
}
