//! The power is cut at random moments of a random load, on real file systems: what was flushed is there, of the rest
//! each write with a chance of one half. What a daemon finds then is right, and nothing that was cleared or replaced;
//! with `strict` everything acknowledged up to that moment is there.
//!
//! `KVD_PARTS_SEED` chooses another seed; a failure prints the one that it had.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvd_tests::Launch;
use kvd_tests::content::Random;
use kvd_tests::disk::OURS;
use kvd_tests::engine::client_at;
use kvd_tests::parts::extents::extents_of;
use kvd_tests::parts::faulty_device::FaultyDevice;
use kvd_tests::parts::file_system::{FileSystem, Kind, make_image};
use kvd_tests::parts::history::Promise;
use kvd_tests::parts::load::{Owner, seed};
use kvd_tests::parts::write_log::WriteLog;
use kvd_tests::parts::{Workshop, tier};
use kvd_tests::until::until_true;

const MIB: u64 = 1 << 20;
const OWNERS: u64 = 3;
/// Things that the clients do while writes are recorded, all together.
const WORK: u64 = 1_200;
/// Power cuts of one recording.
const CUTS: usize = 8;

struct Power {
    workshop: Workshop,
    begin: Begin,
    seed: u64,
    durability: &'static str,
    promise: Promise,
}

/// When a record begins.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begin {
    /// Once the daemon has made its files.
    WithFiles,
    /// Before, so that the power is also cut while it makes them.
    WithNothing,
}

/// What was recorded.
struct Recorded {
    /// The device when the record began.
    before: PathBuf,
    /// Sectors of the journals.
    journals: Vec<Range<u64>>,
    log: WriteLog,
    owners: Vec<Owner>,
}

impl Power {
    fn launch(&self, disk: &FileSystem) -> Launch {
        let launch = tier::launch_with(4 * MIB, &[disk.path()], 48 * MIB);
        launch.args(["--durability", self.durability])
    }

    /// Lets clients work while every write is recorded.
    fn record(&self, kind: Kind) -> Recorded {
        let image = self.workshop.path("image");
        make_image(&image, 320 * MIB);
        let mounted = self.workshop.path("mounted");
        let disk = FileSystem::make(&image, kind, &mounted);
        if self.begin == Begin::WithFiles {
            let daemon = self.launch(&disk).start();
            tier::wait_recovered(&daemon);
            assert!(daemon.stop().success());
        }
        let journals = ["journal-a", "journal-b"].map(|name| disk.path().join(OURS).join(name));
        let journals = journals.iter().filter(|path| path.is_file());
        let journals = journals.flat_map(|path| extents_of(path));
        let journals = journals.map(|extent| extent.sectors()).collect();
        disk.unmount();
        let before = self.workshop.path("before");
        copy(&image, &before);
        let mut device = FaultyDevice::start(&image, self.workshop.folder());
        let log = self.workshop.path("log");
        device.record(&log);
        let disk = FileSystem::mount(device.path(), &mounted);
        let owners = self.work(&disk, &log);
        disk.unmount();
        device.stop();
        Recorded { before, journals, log: WriteLog::read(&log), owners }
    }

    fn work(&self, disk: &FileSystem, log: &Path) -> Vec<Owner> {
        let mut owners: Vec<Owner> =
            (0..OWNERS).map(|number| Owner::new(number, self.seed)).collect();
        let daemon = self.launch(disk).start();
        tier::wait_recovered(&daemon);
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let (stop, done, socket) = (&stop, &done, daemon.socket());
        let position = || std::fs::metadata(log).unwrap().len();
        std::thread::scope(|scope| {
            let all: Vec<_> = owners
                .iter_mut()
                .map(|owner| scope.spawn(move || owner.work(socket, stop, done, position)))
                .collect();
            until_true("the clients have done enough", || {
                done.load(Ordering::Relaxed) >= WORK || all.iter().any(|one| one.is_finished())
            });
            stop.store(true, Ordering::Relaxed);
            all.into_iter().for_each(|one| one.join().unwrap().unwrap());
        });
        daemon.kill();
        owners
    }

    /// Makes what a cut leaves, and lets a daemon find what it can: how many blocks that is, or what is wrong.
    fn cut(&self, recorded: &Recorded, count: usize, random: &mut Random) -> Result<usize, String> {
        let image = self.workshop.path("cut");
        copy(&recorded.before, &image);
        let (loose, lost) = recorded.log.cut(count, random, &image);
        self.look(recorded, count, &image).map_err(|wrong| {
            format!("{lost} of {loose} operations that were not flushed are lost; {wrong}")
        })
    }

    fn look(&self, recorded: &Recorded, count: usize, image: &Path) -> Result<usize, String> {
        let disk = FileSystem::mount(image, &self.workshop.path("cut-mounted"));
        // A record may have come to the device, and its block not; or the record after one that has not.
        let launch = self.launch(&disk).announce("does not fit its checksum");
        let daemon = launch.announce("could not be read").start();
        tier::wait_recovered(&daemon);
        assert_eq!(tier::devices(&daemon)[0]["health"], "ok", "{}", daemon.log().text());
        let position = recorded.log.position(count);
        let client = client_at(daemon.socket());
        let (mut hits, mut wrong) = (0, Ok(()));
        for owner in &recorded.owners {
            match owner.check(&client, position, self.promise) {
                Ok(found) => hits += found.hits,
                Err(found) => wrong = wrong.and(Err(found)),
            }
        }
        let log = daemon.log().text();
        assert!(daemon.stop().success());
        disk.unmount();
        wrong.map(|()| hits).map_err(|wrong| {
            let operations = recorded.log.entries().len();
            format!(
                "seed {}, cut after {count} of {operations} operations: {wrong}\n{log}",
                self.seed
            )
        })
    }

    fn run(&self, kind: Kind) {
        let recorded = self.record(kind);
        let mut random = Random::seeded(self.seed);
        let mut hits = 0;
        for count in recorded.log.moments(CUTS, &mut random) {
            hits +=
                self.cut(&recorded, count, &mut random).unwrap_or_else(|wrong| panic!("{wrong}"));
        }
        assert!(recorded.log.flushes() > 20, "{} flushes", recorded.log.flushes());
        assert!(hits > 10, "seed {}: {hits} hits after all cuts prove little", self.seed);
    }
}

/// A copy with the same holes.
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").arg("--sparse=always").args([from, to]).status().unwrap();
    assert!(copied.success());
}

fn power(seed: u64, durability: &'static str, promise: Promise) -> Power {
    Power { workshop: Workshop::open(), begin: Begin::WithFiles, seed, durability, promise }
}

#[test]
fn strict_on_ext4_loses_nothing() {
    power(seed(1), "strict", Promise::Strict).run(Kind::Ext4);
}

#[test]
fn strict_on_xfs_loses_nothing() {
    power(seed(2), "strict", Promise::Strict).run(Kind::Xfs);
}

#[test]
fn group_on_ext4_tells_no_lies() {
    power(seed(3), "group", Promise::Relaxed).run(Kind::Ext4);
}

#[test]
fn relaxed_on_ext4_tells_no_lies() {
    power(seed(4), "relaxed", Promise::Relaxed).run(Kind::Ext4);
}

#[test]
fn cut_while_the_files_are_made_strict_on_ext4_loses_nothing() {
    let power = power(seed(6), "strict", Promise::Strict);
    Power { begin: Begin::WithNothing, ..power }.run(Kind::Ext4);
}

#[test]
fn cut_while_the_files_are_made_strict_on_xfs_loses_nothing() {
    let power = power(seed(7), "strict", Promise::Strict);
    Power { begin: Begin::WithNothing, ..power }.run(Kind::Xfs);
}

/// The other way round: a device that keeps only half of what it flushes to the journals must lose something that was
/// acknowledged, or these cases could not fail.
#[test]
fn a_device_that_lies_about_flushes_is_found_out() {
    let power = power(seed(5), "strict", Promise::Strict);
    let recorded = power.record(Kind::Ext4);
    let mut random = Random::seeded(power.seed);
    let moments = recorded.log.moments(CUTS, &mut random);
    let noticed = moments.into_iter().filter(|count| {
        let image = power.workshop.path("cut");
        copy(&recorded.before, &image);
        recorded.log.cut_by_a_liar(&recorded.journals, *count, &mut random, &image);
        power.look(&recorded, *count, &image).is_err_and(|wrong| wrong.contains("lost: "))
    });
    assert!(noticed.count() > 0, "seed {}: nobody notices", power.seed);
}
