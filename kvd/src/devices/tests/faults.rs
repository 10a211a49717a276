//! What fails costs what it is about, and nothing else.

use kvd_disk::Action;
use kvd_disk::sim::{Faults, SimConfig};
use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::{DeviceFault, DeviceHealth, Durability, Half, Verdict};
use nix::errno::Errno;

use super::super::pieces::{container_file, journal_file};
use super::{CONTAINER_BYTES, CONTAINERS, Rig, bytes_of, name_of, version_in};

/// More blocks than memory holds, all on the device.
fn filled() -> Rig {
    let mut rig = Rig::new(Durability::Relaxed, SimConfig::from_seed(1));
    for key in 0..60 {
        assert_eq!(rig.put(&name_of(key), &bytes_of(key, 1), Retention::Long), None);
        rig.settle();
    }
    rig
}

fn break_containers(rig: &Rig, action: Action) {
    for number in 0..CONTAINERS {
        rig.control.break_range(
            container_file(number),
            action,
            0..CONTAINER_BYTES,
            Errno::EIO as i32,
        );
    }
}

#[test]
fn blocks_come_back_from_the_device() {
    let mut rig = filled();
    for round in 0..2 {
        for key in 0..60 {
            let bytes = rig.get(&name_of(key)).unwrap();
            assert_eq!(version_in(key, &bytes), 1, "round {round}");
        }
    }
    assert!(rig.stats().totals.loads_total > 0);
    assert_eq!(rig.stats().totals.spills_total, 60, "nothing is written twice");
}

#[test]
fn a_block_that_cannot_be_read_is_a_miss_and_so_is_a_rotten_one() {
    let mut rig = filled();
    break_containers(&rig, Action::Read);
    // Key 4 is large, and long out of memory.
    assert!(rig.get(&name_of(4)).is_err());
    assert_eq!(rig.health(), DeviceHealth::Ready);
    rig.control.heal();
    rig.control.set_faults(Faults { bit_rot: 1_000_000, ..Faults::default() });
    assert_eq!(rig.get(&name_of(5)).map(|_| ()), Err(MissReason::Corrupt));
    rig.control.heal();
    assert_eq!(version_in(10, &rig.get(&name_of(10)).unwrap()), 1, "others are fine");
    assert_eq!(rig.stats().totals.corrupt_total, 1);
    let meters = &rig.device.meters;
    assert_eq!(meters.corrupt.load(std::sync::atomic::Ordering::Relaxed), 1);
}

#[test]
fn lost_torn_and_misdirected_writes_never_become_wrong_bytes() {
    for seed in 0..20 {
        let faults = Faults {
            lost_writes: 100_000,
            torn_writes: 100_000,
            misdirected_writes: 100_000,
            ..Faults::default()
        };
        let mut rig =
            Rig::new(Durability::Relaxed, SimConfig { faults, ..SimConfig::from_seed(seed) });
        for key in 0..60 {
            rig.put(&name_of(key), &bytes_of(key, 1), Retention::Long);
            rig.settle();
        }
        let mut hits = 0;
        for key in 0..60 {
            if let Ok(bytes) = rig.get(&name_of(key)) {
                assert_eq!(version_in(key, &bytes), 1);
                hits += 1;
            }
        }
        assert!((20..60).contains(&hits), "{hits} of 60 with seed {seed}");
    }
}

#[test]
fn a_strict_block_that_cannot_be_written_is_not_acknowledged() {
    let mut rig = Rig::new(Durability::Strict, SimConfig::from_seed(3));
    let wait = rig.put(b"good", &bytes_of(4, 1), Retention::Long).unwrap();
    assert_eq!(rig.verdict(wait), Verdict::Met);
    break_containers(&rig, Action::Write);
    let wait = rig.put(b"bad", &bytes_of(4, 2), Retention::Long).unwrap();
    assert_eq!(rig.verdict(wait), Verdict::Failed);
    assert_eq!(rig.get(b"bad").map(|bytes| bytes.len()), Ok(bytes_of(4, 2).len()), "in memory");
}

#[test]
fn a_failed_sync_poisons_the_device_and_memory_goes_on() {
    let mut rig = Rig::new(Durability::Strict, SimConfig::from_seed(4));
    rig.control.set_faults(Faults { failed_syncs: 1_000_000, ..Faults::default() });
    let wait = rig.put(b"key", &bytes_of(4, 1), Retention::Long).unwrap();
    assert_eq!(rig.verdict(wait), Verdict::Failed);
    assert_eq!(rig.health(), DeviceHealth::Failed(DeviceFault::Sync));
    assert!(rig.get(b"key").is_ok());
    let wait = rig.put(b"more", &bytes_of(4, 1), Retention::Long);
    assert!(wait.is_none_or(|wait| rig.verdict(wait) == Verdict::Failed));
}

#[test]
fn a_journal_that_cannot_be_written_poisons_the_device() {
    let mut rig = Rig::new(Durability::Relaxed, SimConfig::from_seed(5));
    for half in [Half::A, Half::B] {
        let all = 0..super::RECORD_BYTES;
        rig.control.break_range(journal_file(half), Action::Write, all, Errno::EIO as i32);
    }
    rig.put(b"key", &bytes_of(4, 1), Retention::Long);
    assert!(rig.turn_until(|rig| matches!(rig.health(), DeviceHealth::Failed(_))));
    assert_eq!(rig.health(), DeviceHealth::Failed(DeviceFault::Journal));
    assert!(rig.get(b"key").is_ok());
}

#[test]
fn a_device_that_hangs_holds_up_nobody_and_can_be_left() {
    let mut rig = filled();
    rig.control.hold(true);
    for key in 100..160 {
        rig.put(&name_of(key), &bytes_of(key, 1), Retention::Long);
        rig.turn();
        assert_eq!(version_in(key, &rig.get(&name_of(key)).unwrap()), 1, "a hit in memory");
    }
    rig.control.hold(false);
    rig.turn_until(|rig| rig.stats().spills_in_flight == 0);
    assert_eq!(rig.health(), DeviceHealth::Ready);
}
