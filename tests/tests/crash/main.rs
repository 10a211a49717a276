//! The daemon's own brain, device worker and recovery on a simulated disk that loses its power after every write and
//! every sync, with every subset of the writes that no sync covers, or many of them. After each crash: no wrong bytes,
//! nothing that was cleared or replaced, and nothing that `strict` acknowledged is lost.
//!
//! `cargo xtask crash` runs it; `KVD_CRASH_THOROUGH=1` tries every subset of up to ten loose writes and 1 024 of more,
//! at every step. `KVD_PARTS_SEED` chooses another seed; a failure prints the one that it had.

#![expect(clippy::unwrap_used, reason = "test code")]

mod life;
mod rig;

use kvd_disk::sim::crash::{CrashPoint, Image};
use kvd_disk::sim::{Faults, SimConfig};
use kvd_store::Durability;
use kvd_tests::content::Random;
use kvd_tests::parts::history::Promise;
use kvd_tests::parts::load::seed;

use crate::life::{Habits, Life};
use crate::rig::{Bench, Syncs};

/// Everything fits, so whatever is lost was lost by mistake.
const ROOMY: Habits = Habits { puts: 55, clears: 4, keys: 8, len_max: 40_000 };
const ROOMY_CONTAINERS: u32 = 6;
/// Blocks have to leave for others.
const NARROW: Habits = Habits { puts: 70, clears: 2, keys: 24, len_max: 60_000 };
const NARROW_CONTAINERS: u32 = 3;

/// How much is tried.
struct Effort {
    /// Things that the client does.
    things: usize,
    /// Of so many steps one is looked at.
    stride: usize,
    /// Subsets of loose writes at a step, if there are more than that.
    subsets: usize,
    /// Of so many crashes, one is followed by a second life and a second crash.
    second: usize,
}

fn effort() -> Effort {
    if std::env::var_os("KVD_CRASH_THOROUGH").is_some() {
        Effort { things: 300, stride: 1, subsets: 1_024, second: 16 }
    } else {
        Effort { things: 250, stride: 1, subsets: 4, second: 16 }
    }
}

/// The images that are tried of a moment: every subset if that is allowed, else some.
fn images(point: &CrashPoint, seed: u64, subsets: usize) -> Vec<Image> {
    let all = 1_usize.checked_shl(u32::try_from(point.loose_writes()).unwrap_or(u32::MAX));
    if all.is_some_and(|all| all <= subsets) || subsets >= 1_024 {
        return point.subsets(seed, subsets).collect();
    }
    let mut random = Random::seeded(seed);
    // Nothing of it, all of it, and any.
    let drawn = (2..subsets).map(|_| point.subset(random.next_u64()));
    let mut images = vec![point.subset(0), point.subset(u64::MAX)];
    images.extend(drawn);
    images.extend(point.torn(512, seed, 1));
    images
}

struct Case {
    bench: Bench,
    seed: u64,
    habits: Habits,
    promise: Promise,
    effort: Effort,
}

/// What was tried and found.
#[derive(Debug, Default)]
struct Tally {
    crashes: usize,
    hits: usize,
    snapshots: usize,
}

impl Case {
    fn new(seed: u64, habits: Habits, containers: u32, promise: Promise) -> Self {
        let durability = match promise {
            Promise::Strict | Promise::Forgetful => Durability::Strict,
            Promise::Relaxed => Durability::Relaxed,
        };
        let bench = Bench::new(containers, durability);
        Self { bench, seed, habits, promise, effort: effort() }
    }

    fn run(&self) -> Tally {
        let mut tally = Tally::default();
        let mut rig = self.bench.rig(None, SimConfig::from_seed(self.seed), Syncs::Kept);
        let before = rig.control.steps();
        let mut life = Life::new(self.seed, self.habits);
        life.live(&mut rig, self.effort.things);
        let control = rig.control.clone();
        drop(rig);
        for step in (before..=control.steps()).step_by(self.effort.stride) {
            self.crash(&life, &control.crash_after(step), step, &mut tally);
        }
        tally
    }

    fn crash(&self, life: &Life, point: &CrashPoint, step: usize, tally: &mut Tally) {
        let seed = self.seed.wrapping_mul(31).wrapping_add(step as u64);
        for (number, image) in images(point, seed, self.effort.subsets).iter().enumerate() {
            let about = format!("seed {}, step {step}, image {number}", self.seed);
            let disk = SimConfig::from_seed(seed);
            let mut rig = self.bench.rig(Some(image), disk, Syncs::Kept);
            let found = life.check(&mut rig, step as u64, self.promise);
            tally.hits += found.unwrap_or_else(|wrong| panic!("{about}: {wrong}"));
            tally.crashes += 1;
            tally.snapshots += usize::from(rig.report.snapshot.is_some());
            if !tally.crashes.is_multiple_of(self.effort.second) {
                continue;
            }
            // A life after it, a crash at any moment of that, and another look.
            let mut second = life.go_on(&mut rig, step as u64, seed);
            let from = rig.control.steps();
            second.live(&mut rig, 12);
            let mut random = Random::seeded(seed);
            let at = from + random.below(rig.control.steps() - from + 1);
            let image = rig.control.crash_after(at).subset(random.next_u64());
            let mut rig = self.bench.rig(Some(&image), SimConfig::from_seed(seed), Syncs::Kept);
            let found = second.check(&mut rig, at as u64, self.promise);
            tally.hits += found.unwrap_or_else(|wrong| panic!("{about}, then step {at}: {wrong}"));
        }
    }
}

#[test]
fn a_crash_after_any_step_loses_nothing_that_was_acknowledged() {
    let case = Case::new(seed(1), ROOMY, ROOMY_CONTAINERS, Promise::Strict);
    let tally = case.run();
    assert!(tally.crashes > 500 && tally.hits > tally.crashes, "{tally:?}");
    assert!(tally.snapshots > 100, "journals take turns: {tally:?}");
}

#[test]
fn a_crash_after_any_step_of_a_full_device_tells_no_lies() {
    let case = Case::new(seed(2), NARROW, NARROW_CONTAINERS, Promise::Forgetful);
    let tally = case.run();
    assert!(tally.crashes > 500 && tally.hits > tally.crashes, "{tally:?}");
}

#[test]
fn a_crash_after_any_step_of_a_relaxed_daemon_forgets_and_tells_no_lies() {
    let case = Case::new(seed(6), ROOMY, ROOMY_CONTAINERS, Promise::Relaxed);
    let tally = case.run();
    assert!(tally.crashes > 500 && tally.hits > tally.crashes, "{tally:?}");
}

/// A disk that lies in every way there is may make the daemon forget, and never makes it serve wrong bytes.
#[test]
fn a_disk_that_lies_does_not_make_the_daemon_lie() {
    let faults = Faults {
        lost_writes: 20_000,
        torn_writes: 20_000,
        misdirected_writes: 20_000,
        bit_rot: 20_000,
        ..Faults::default()
    };
    let seed = seed(3);
    let bench = Bench::new(ROOMY_CONTAINERS, Durability::Strict);
    for round in 0..20 {
        let seed = seed + round;
        let disk = SimConfig { faults: faults.clone(), ..SimConfig::from_seed(seed) };
        let mut rig = bench.rig(None, disk, Syncs::Kept);
        let mut life = Life::new(seed, ROOMY);
        life.live(&mut rig, 150);
        let end = rig.control.steps();
        let image = rig.control.crash_after(end).subset(u64::MAX);
        let mut rig = bench.rig(Some(&image), SimConfig::from_seed(seed), Syncs::Kept);
        if let Err(wrong) = life.check(&mut rig, end as u64, Promise::Relaxed) {
            // What was lost in silence may have been a clear.
            assert!(!wrong.contains("wrong bytes"), "seed {seed}: {wrong}");
        }
    }
}

/// The other way round: a disk some of whose syncs do nothing must lose something that was acknowledged. How many
/// images of how many moments show it.
fn noticed(syncs: Syncs, seed: u64) -> usize {
    let bench = Bench::new(ROOMY_CONTAINERS, Durability::Strict);
    let mut rig = bench.rig(None, SimConfig::from_seed(seed), syncs);
    let mut life = Life::new(seed, ROOMY);
    life.live(&mut rig, 200);
    let end = rig.control.steps();
    let mut noticed = 0;
    for step in (end / 2..=end).step_by(end / 40) {
        for image in &images(&rig.control.crash_after(step), seed, 8) {
            let mut rig = bench.rig(Some(image), SimConfig::from_seed(seed), Syncs::Kept);
            let found = life.check(&mut rig, step as u64, Promise::Strict);
            noticed += usize::from(found.is_err_and(|wrong| wrong.contains("lost: ")));
        }
    }
    noticed
}

#[test]
fn syncs_of_journals_that_do_nothing_are_noticed() {
    assert!(noticed(Syncs::NoneOfJournals, seed(4)) > 0);
}

#[test]
fn syncs_of_snapshots_that_do_nothing_are_noticed() {
    assert!(noticed(Syncs::NoneOfSnapshots, seed(4)) > 0);
}

#[test]
fn syncs_of_containers_that_do_nothing_are_noticed() {
    assert!(noticed(Syncs::NoneOfContainers, seed(4)) > 0);
}

/// And a history that does not know what was stored last must call it wrong.
#[test]
fn a_value_that_nobody_stored_is_noticed() {
    let seed = seed(5);
    let bench = Bench::new(ROOMY_CONTAINERS, Durability::Strict);
    let mut rig = bench.rig(None, SimConfig::from_seed(seed), Syncs::Kept);
    let mut life = Life::new(seed, Habits { clears: 0, ..ROOMY });
    life.live(&mut rig, 60);
    let end = rig.control.steps();
    let image = rig.control.crash_after(end).subset(u64::MAX);
    let check = |life: &Life| {
        let mut rig = bench.rig(Some(&image), SimConfig::from_seed(seed), Syncs::Kept);
        life.check(&mut rig, end as u64, Promise::Relaxed)
    };
    assert!(check(&life).unwrap() > 0);
    let keys: Vec<Vec<u8>> = life.history.keys().map(<[u8]>::to_vec).collect();
    keys.iter().for_each(|key| life.history.refused(key));
    let wrong = check(&life).unwrap_err();
    assert!(wrong.contains("wrong bytes"), "{wrong}");
}
