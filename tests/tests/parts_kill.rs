//! A daemon that is killed at any moment of a random load, twenty times in a row on the same files: what is found
//! afterwards is right, nothing that was cleared or replaced comes back, and with `strict` nothing acknowledged is lost.
//!
//! `KVD_PARTS_SEED` chooses another seed; a failure prints the one that it had.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvd_tests::content::Random;
use kvd_tests::disk::Directory;
use kvd_tests::engine::client_at;
use kvd_tests::parts::history::Promise;
use kvd_tests::parts::load::{Found, Owner, seed};
use kvd_tests::parts::tier;
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch};

const MIB: u64 = 1 << 20;
const ROUNDS: u64 = 20;
const OWNERS: u64 = 3;
/// Most things that the clients do before a kill, all together.
const WORK_MAX: usize = 2_000;

struct Killed {
    directories: Vec<Directory>,
    durability: &'static str,
    promise: Promise,
    /// Less than all blocks together, so that some are only on disk.
    memory_bytes: u64,
}

impl Killed {
    fn launch(&self) -> Launch {
        let paths: Vec<_> = self.directories.iter().map(Directory::path).collect();
        let bytes = 48 * MIB * paths.len() as u64;
        let launch = tier::launch_with(self.memory_bytes, &paths, bytes);
        launch.args(["--durability", self.durability])
    }

    fn start(&self) -> Daemon {
        let daemon = self.launch().start();
        tier::wait_recovered(&daemon);
        daemon
    }

    fn run(&self, seed: u64) {
        let mut random = Random::seeded(seed);
        let mut owners: Vec<Owner> = (0..OWNERS).map(|number| Owner::new(number, seed)).collect();
        let mut hits = 0;
        for round in 0..ROUNDS {
            if round % 4 == 3 {
                // As soon as there is a socket: while it finds out what there is.
                self.launch().start().kill();
            }
            let daemon = self.start();
            for owner in &mut owners {
                let client = client_at(daemon.socket());
                let found = owner.check(&client, u64::MAX, self.promise);
                let found: Found = found.unwrap_or_else(|wrong| {
                    panic!("seed {seed}, round {round}: {wrong}\n{}", daemon.log().text())
                });
                hits += found.hits;
                owner.settle(&client);
            }
            let work = 1 + random.below(WORK_MAX) as u64;
            self.work_and_kill(daemon, &mut owners, work);
        }
        assert!(hits > 300, "seed {seed}: {hits} hits in all rounds prove little");
    }

    fn work_and_kill(&self, daemon: Daemon, owners: &mut [Owner], work: u64) {
        let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
        let (stop, done) = (&stop, &done);
        let socket = daemon.socket().to_owned();
        std::thread::scope(|scope| {
            let socket = &socket;
            let all: Vec<_> = owners
                .iter_mut()
                .map(|owner| scope.spawn(move || owner.work(socket, stop, done, || 0)))
                .collect();
            until_true("the clients have done something", || {
                done.load(Ordering::Relaxed) >= work || all.iter().all(|one| one.is_finished())
            });
            daemon.kill();
            stop.store(true, Ordering::Relaxed);
            for one in all {
                one.join().unwrap().unwrap();
            }
        });
    }
}

#[test]
fn killed_at_any_moment_strict_loses_nothing() {
    let killed = Killed {
        directories: vec![Directory::new()],
        durability: "strict",
        promise: Promise::Strict,
        memory_bytes: 4 * MIB,
    };
    killed.run(seed(1));
}

#[test]
fn killed_at_any_moment_two_devices_agree() {
    let killed = Killed {
        directories: vec![Directory::new(), Directory::new()],
        durability: "strict",
        promise: Promise::Strict,
        memory_bytes: 4 * MIB,
    };
    killed.run(seed(2));
}

#[test]
fn killed_at_any_moment_relaxed_tells_no_lies() {
    let killed = Killed {
        directories: vec![Directory::new()],
        durability: "relaxed",
        promise: Promise::Forgetful,
        memory_bytes: 4 * MIB,
    };
    killed.run(seed(3));
}
