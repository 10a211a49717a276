//! Several devices, and devices that fail.

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::{DeviceFault, DeviceHealth, DeviceId, Found, Input};

use crate::platter::Trouble;
use crate::rig::{KIB, ONE, Rig, config};

const SPACE_KIB: u64 = 1024;

#[test]
fn blocks_of_a_failed_device_are_misses_and_the_others_go_on() {
    let mut rig = Rig::new(config(256, 2), SPACE_KIB);
    rig.put(b"a", 1, KIB, Retention::Long);
    rig.take(0);
    rig.finish_all(Trouble::None);
    rig.put(b"b", 2, KIB, Retention::Long);
    rig.take(1);
    rig.finish_all(Trouble::None);
    rig.run();
    rig.evict(b"a");
    assert_eq!(rig.fetch(ONE, b"a"), Found::Loading);
    assert_eq!(rig.fetch(ONE, b"b"), Found::Loading);
    rig.take(0);
    rig.apply(Input::DeviceFailed { device: DeviceId(0), fault: DeviceFault::Sync });
    assert_eq!(rig.effects.retired.len(), 1);
    assert_eq!(rig.misses(b"a"), MissReason::Evicted(Retention::Long));
    rig.finish_all(Trouble::None);
    rig.run();
    rig.hit(ONE, b"b", 2, KIB);
    let health: Vec<_> = rig.store.devices().iter().map(|info| info.health).collect();
    assert_eq!(health, [DeviceHealth::Failed(DeviceFault::Sync), DeviceHealth::Ready]);
    rig.put(b"c", 3, KIB, Retention::Long);
    rig.run();
    assert!(rig.platters[1].written_keys.contains(&b"c"[..]));
}

#[test]
fn failures_in_a_row_end_a_device() {
    let mut config = config(256, 1);
    config.disk.faults_max = 4;
    let mut rig = Rig::new(config, SPACE_KIB);
    for number in 0..5_u64 {
        rig.put(&number.to_le_bytes(), number, KIB, Retention::Long);
    }
    rig.take(0);
    let blocks =
        rig.pending.iter().filter(|(_, work)| matches!(work, kvd_store::DiskWork::Spill { .. }));
    assert_eq!(blocks.count(), 5);
    for _ in 0..3 {
        rig.finish(0, Trouble::Io);
    }
    assert_eq!(rig.store.devices()[0].faults_in_a_row, 3);
    rig.finish(0, Trouble::None);
    assert_eq!(rig.store.devices()[0].faults_in_a_row, 0);
    rig.finish(0, Trouble::Io);
    rig.finish_all(Trouble::None);
    rig.take(0);
    rig.finish_all(Trouble::Io);
    assert_eq!(rig.store.devices()[0].health, DeviceHealth::Failed(DeviceFault::Io));
    for number in 0..5_u64 {
        rig.hit(ONE, &number.to_le_bytes(), number, KIB);
    }
}

#[test]
fn a_journal_that_cannot_be_written_ends_a_device() {
    for (trouble, fault) in
        [(Trouble::Io, DeviceFault::Journal), (Trouble::TimedOut, DeviceFault::Sync)]
    {
        let mut rig = Rig::new(config(256, 1), SPACE_KIB);
        rig.put(b"k", 1, KIB, Retention::Long);
        rig.take(0);
        rig.finish_all(Trouble::None);
        rig.take(0);
        rig.finish(0, trouble);
        assert_eq!(rig.store.devices()[0].health, DeviceHealth::Failed(fault));
        rig.run();
        rig.hit(ONE, b"k", 1, KIB);
    }
}

#[test]
fn a_journal_without_room_is_tried_again() {
    let mut rig = Rig::new(config(256, 1), SPACE_KIB);
    rig.run();
    rig.put(b"k", 1, KIB, Retention::Long);
    rig.take(0);
    rig.finish_all(Trouble::None);
    rig.take(0);
    rig.finish(0, Trouble::NoSpace);
    assert_eq!(rig.take(0), 0, "not at once");
    rig.wait(1_000);
    rig.run();
    rig.platters[0].crash(|| true);
    let mut rig = rig.restarted(config(256, 1));
    rig.bring_back(0, SPACE_KIB);
    rig.load(b"k", 1, KIB);
}

#[test]
fn a_device_with_room_is_taken_before_one_that_must_evict() {
    let mut rig = Rig::without_devices(config(256, 2), SPACE_KIB);
    rig.bring_up(0, 64);
    rig.bring_up(1, SPACE_KIB);
    for number in 0..20_u64 {
        rig.put(&number.to_le_bytes(), number, 8 * KIB, Retention::Long);
    }
    rig.run();
    let infos = rig.store.devices();
    assert_eq!(infos[0].entries + infos[1].entries, 20, "{infos:?}");
    assert!(infos[0].entries <= 8);
}

#[test]
fn the_newest_of_two_values_wins_after_a_crash_that_kept_both() {
    let config = config(256, 2);
    let mut rig = Rig::new(config, SPACE_KIB);
    rig.put(b"k", 1, KIB, Retention::Long);
    rig.take(0);
    rig.finish_all(Trouble::None);
    rig.take(0);
    rig.finish_all(Trouble::None);
    // The end of the old value, on device 0, is lost; the new one, on device 1, is not.
    rig.platters[0].crash(|| true);
    rig.put(b"k", 2, KIB, Retention::Long);
    rig.take(1);
    rig.finish_all(Trouble::None);
    rig.run();
    rig.platters[0].crash(|| false);
    rig.platters[1].crash(|| true);
    for order in [[0, 1], [1, 0]] {
        let platters = rig.platters;
        let mut again = Rig::without_devices(config, SPACE_KIB);
        again.platters = platters;
        for device in order {
            again.bring_back(device, SPACE_KIB);
        }
        again.wait(1);
        assert_eq!(again.disk().entries, 1);
        again.load(b"k", 2, KIB);
        rig = again;
    }
}

#[test]
fn a_growing_device_is_waited_for() {
    let mut rig = Rig::without_devices(config(256, 1), SPACE_KIB);
    let settings =
        kvd_store::tablespace::Settings { space_bytes: 0, ..crate::rig::settings(SPACE_KIB, 0) };
    let tablespace = Box::new(kvd_store::tablespace::Tablespace::new(settings));
    let device = DeviceId(0);
    rig.apply(Input::TablespaceReady { device, tablespace });
    rig.put(b"k", 1, KIB, Retention::Long);
    rig.run();
    assert!(!rig.is_below(b"k"));
    let (bytes, expected_bytes) = (64 * KIB, SPACE_KIB * KIB);
    rig.apply(Input::DeviceSpace { device, bytes, expected_bytes });
    rig.run();
    assert!(rig.is_below(b"k"));
    assert_eq!(rig.store.devices()[0].capacity_bytes, 64 * KIB);
}

#[test]
fn what_was_on_a_failed_device_and_is_still_in_the_arena_goes_to_another() {
    let mut rig = Rig::new(config(256, 2), SPACE_KIB);
    for number in 0..20_u64 {
        rig.put(&number.to_le_bytes(), number, KIB, Retention::Long);
    }
    rig.take(0);
    rig.finish_all(Trouble::None);
    assert_eq!((rig.disk().dirty_rows, rig.platters[1].writes), (0, 0));
    rig.apply(Input::DeviceFailed { device: DeviceId(0), fault: DeviceFault::Journal });
    rig.run();
    assert_eq!((rig.disk().dirty_rows, rig.platters[1].writes), (0, 20));
    rig.evict(&7_u64.to_le_bytes());
    rig.load(&7_u64.to_le_bytes(), 7, KIB);
}

#[test]
fn equal_inputs_have_equal_effects() {
    let life = || {
        let mut config = config(256, 2);
        config.disk.loads_max = 3;
        let mut rig = Rig::new(config, 256);
        rig.log = Some(String::new());
        let mut refused = 0;
        for number in 0..48_u64 {
            let class = if number % 2 == 0 { Retention::Short } else { Retention::Long };
            let (key, namespace) = (number.to_le_bytes(), crate::rig::NAMESPACE);
            let stored = rig.put_with(namespace, &key, number, 12 * KIB, |commit| {
                commit.retention = class;
            });
            refused += u64::from(stored.is_err());
            if let Found::Hit(hit) = rig.fetch(ONE, &(number / 2).to_le_bytes()) {
                rig.read(ONE, hit);
            }
            rig.locate(crate::rig::NAMESPACE, &(number / 3).to_le_bytes(), true);
            rig.prefetch(&[&(number / 5).to_le_bytes()], 100);
            rig.take_some(u8::from(number % 2 == 0), 2, 3);
            if number % 3 == 0 {
                rig.finish_all(Trouble::None);
            }
            rig.wait(7);
        }
        rig.run();
        (rig.log, refused)
    };
    assert_eq!(life(), life());
}
