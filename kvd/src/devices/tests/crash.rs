//! Power cuts at every write and sync of a workload: whatever of the unsynced writes survives, no bytes
//! are wrong, nothing that was cleared comes back, and in strict mode nothing acknowledged is lost.

use std::collections::BTreeMap;

use kvd_disk::sim::crash::Image;
use kvd_disk::sim::{SimConfig, SimDisk};
use kvd_proto::retention::Retention;
use kvd_store::tablespace::geometry::{journal_name, snapshot_name};
use kvd_store::{Durability, Verdict};

use super::super::directory::HALVES;
use super::super::pieces::{journal_file, snapshot_file};
use super::super::recovery::recover;
use super::{Rig, bytes_of, name_of, version_in};

/// What may be relied on after so many steps of the disk.
#[derive(Debug, Clone, Copy)]
struct Promise {
    steps: usize,
    key: u64,
    /// This version or a later one is there; none: no version before `below` is.
    least: Option<u64>,
    below: u64,
}

const KEYS: u64 = 24;
const VERSIONS: u64 = 40;

/// Stores, replaces and clears, and notes what was acknowledged when.
fn workload(rig: &mut Rig, durability: Durability, seed: u64) -> Vec<Promise> {
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move |bound: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut promises = Vec::new();
    for version in 1..VERSIONS {
        if next(25) == 0 {
            if let Some(wait) = rig.clear() {
                assert_eq!(rig.verdict(wait), Verdict::Met);
            }
            let steps = rig.control.steps();
            let gone = |key| Promise { steps, key, least: None, below: version };
            promises.extend((0..KEYS).map(gone));
            continue;
        }
        let key = next(KEYS);
        let wait = rig.put(&name_of(key), &bytes_of(key, version), Retention::Long);
        if let Some(wait) = wait {
            assert_eq!(rig.verdict(wait), Verdict::Met);
            // A relaxed one means that the value before is over for a killed daemon, not for a host.
            if durability == Durability::Strict {
                let (steps, least) = (rig.control.steps(), Some(version));
                promises.push(Promise { steps, key, least, below: version });
            }
        }
        (0..next(4)).for_each(|_| rig.turn());
    }
    promises
}

/// What must be there of each key after so many steps, if anything is promised.
fn promised(promises: &[Promise], steps: usize) -> BTreeMap<u64, Promise> {
    let made = promises.iter().filter(|promise| promise.steps <= steps);
    made.map(|promise| (promise.key, *promise)).collect()
}

/// A daemon on what a crash left.
fn restart(durability: Durability, image: &Image) -> Rig {
    let folder = tempfile::tempdir().unwrap();
    for half in HALVES {
        std::fs::write(folder.path().join(journal_name(half)), &image[&journal_file(half)])
            .unwrap();
        std::fs::write(folder.path().join(snapshot_name(half)), &image[&snapshot_file(half)])
            .unwrap();
    }
    let (disk, control) = SimDisk::new(SimConfig::from_seed(9)).unwrap();
    for (file, bytes) in image {
        control.make(*file, bytes.clone());
    }
    Rig::on(durability, (disk, control), |settings| recover(folder.path(), settings).unwrap().0)
}

/// Holds everything that comes back against what was stored and promised.
fn judge(rig: &mut Rig, promises: &BTreeMap<u64, Promise>, is_later_possible: bool, what: &str) {
    for key in 0..KEYS {
        let found = rig.get(&name_of(key)).ok().map(|bytes| version_in(key, &bytes));
        let Some(promise) = promises.get(&key) else {
            continue;
        };
        match (found, promise.least) {
            (Some(version), Some(least)) => {
                assert!(version >= least, "{what}: key {key} is {version}, {least} was promised");
            }
            (Some(version), None) => {
                assert!(version >= promise.below, "{what}: key {key} came back as {version}");
            }
            // A clear, or a replacement, that was not acknowledged may have happened already.
            (None, Some(least)) => {
                assert!(is_later_possible, "{what}: key {key} lost, {least} was promised");
            }
            (None, None) => {}
        }
    }
}

fn crash_everywhere(durability: Durability, seed: u64, images_each: usize) {
    let mut rig = Rig::new(durability, SimConfig::from_seed(seed));
    // Before that, the device is being made.
    let first = rig.control.steps();
    let promises = workload(&mut rig, durability, seed);
    let last = rig.control.steps();
    for steps in first..=last {
        let promised = promised(&promises, steps);
        // Something else was under way at this moment.
        let is_later_possible = promises.iter().any(|promise| promise.steps > steps);
        let point = rig.control.crash_after(steps);
        let torn = point.torn(512, seed ^ steps as u64, 1);
        let subsets = point.subsets(seed ^ steps as u64, images_each).take(images_each);
        for (number, image) in subsets.chain(torn).enumerate() {
            let what = format!("{durability:?}, seed {seed}, step {steps} of {last}, {number}");
            let mut rig = restart(durability, &image);
            judge(&mut rig, &promised, is_later_possible, &what);
        }
    }
}

#[test]
fn a_strict_store_keeps_what_it_acknowledged() {
    crash_everywhere(Durability::Strict, 1, 3);
}

#[test]
fn a_relaxed_store_forgets_and_never_lies() {
    crash_everywhere(Durability::Relaxed, 2, 3);
}
