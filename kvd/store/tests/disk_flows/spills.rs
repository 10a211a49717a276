//! What goes down to devices, when, and what does not.

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::{Input, StoreConfig};

use crate::platter::{Trouble, checksum};
use crate::rig::{KIB, NAMESPACE, ONE, Rig, config, value};

fn rig() -> Rig {
    Rig::new(config(256, 1), 2048)
}

fn is_written(rig: &Rig, key: &[u8]) -> bool {
    rig.platters[0].written_keys.contains(key)
}

#[test]
fn long_is_written_at_once_and_the_lowest_classes_never() {
    let mut rig = rig();
    rig.put(b"long", 1, KIB, Retention::Long);
    rig.put(b"short", 2, KIB, Retention::Short);
    rig.put(b"ephemeral", 3, KIB, Retention::Ephemeral);
    rig.put(b"none", 4, KIB, Retention::None);
    assert_eq!(rig.to_wake, 1);
    rig.run();
    assert!(is_written(&rig, b"long") && !is_written(&rig, b"short"));
    rig.flood(KIB);
    rig.run();
    for key in [&b"ephemeral"[..], b"none"] {
        assert!(!rig.is_in_arena(key) && !is_written(&rig, key));
    }
}

/// Stores more `short` rows than fit, with devices that keep up.
fn overfill(rig: &mut Rig, touch: bool) {
    for number in 0..64_u64 {
        let key = number.to_le_bytes();
        rig.put(&key, number, 8 * KIB, Retention::Short);
        if touch {
            rig.hit(ONE, &key, number, 8 * KIB);
        }
        rig.run();
    }
}

#[test]
fn short_is_written_before_it_must_go() {
    let mut rig = rig();
    overfill(&mut rig, false);
    let totals = rig.disk().totals;
    assert_eq!(totals.dropped_unwritten_total, 0);
    assert!(totals.demotions_total >= 32, "{totals:?}");
    assert!(totals.spills_total <= 48, "the warm ones are not written: {totals:?}");
    rig.load(&0_u64.to_le_bytes(), 0, 8 * KIB);
}

#[test]
fn a_short_row_that_no_device_took_in_time_is_dropped_and_counted() {
    let mut rig = rig();
    for number in 0..64_u64 {
        rig.put(&number.to_le_bytes(), number, 8 * KIB, Retention::Short);
    }
    let totals = rig.disk().totals;
    assert_eq!(totals.dropped_unwritten_total, rig.store.stats().totals.evictions_total);
    assert_eq!(rig.misses(&0_u64.to_le_bytes()), MissReason::Evicted(Retention::Short));
}

#[test]
fn a_second_touch_is_asked_for_where_it_is_wanted() {
    for touch in [false, true] {
        let mut config = config(256, 1);
        config.disk.second_touch = true;
        let mut rig = Rig::new(config, 2048);
        overfill(&mut rig, touch);
        let totals = rig.disk().totals;
        assert_eq!(totals.spills_total > 0, touch);
        assert_eq!(totals.untouched_total > 0, !touch);
        // Stored again after it was lost: that is a touch, too.
        overfill(&mut rig, false);
        assert!(rig.disk().totals.spills_total > 0);
    }
}

#[test]
fn a_row_that_is_replaced_while_it_is_written_is_not_believed() {
    let mut rig = rig();
    rig.put(b"k", 1, KIB, Retention::Long);
    rig.take(0);
    rig.put(b"k", 2, KIB, Retention::Long);
    rig.finish_all(Trouble::None);
    assert_eq!(rig.disk().totals.spills_void_total, 1);
    assert!(!rig.is_below(b"k"));
    rig.run();
    rig.evict(b"k");
    rig.load(b"k", 2, KIB);
}

#[test]
fn a_row_that_is_being_written_stays_where_it_is() {
    let mut rig = rig();
    rig.put(b"k", 1, 16 * KIB, Retention::Long);
    rig.take(0);
    rig.flood(KIB);
    assert!(rig.is_in_arena(b"k"));
    rig.finish_all(Trouble::None);
    rig.evict(b"k");
    rig.load(b"k", 1, 16 * KIB);
}

#[test]
fn a_write_is_tried_three_times_at_most() {
    let mut rig = rig();
    rig.put(b"k", 1, KIB, Retention::Long);
    for attempt in 1..=3 {
        assert_eq!(rig.disk().dirty_rows, 1);
        assert!(rig.take(0) > 0, "attempt {attempt}");
        rig.finish_all(Trouble::Io);
        assert_eq!(rig.store.devices()[0].quarantined_bytes, attempt * 4 * KIB);
    }
    assert_eq!(rig.disk().dirty_rows, 0);
    assert_eq!(rig.disk().totals.given_up_total, 1);
    rig.run();
    rig.hit(ONE, b"k", 1, KIB);
    assert!(!is_written(&rig, b"k"));
}

#[test]
fn a_full_file_system_is_left_alone_for_a_while() {
    let mut rig = rig();
    rig.put(b"k", 1, KIB, Retention::Long);
    rig.take(0);
    rig.finish_all(Trouble::NoSpace);
    rig.run();
    assert!(!is_written(&rig, b"k"));
    assert_eq!(rig.disk().totals.spill_faults_total, 1);
    rig.to_wake = 0;
    rig.wait(1_000);
    assert_eq!(rig.to_wake, 1);
    rig.run();
    assert!(is_written(&rig, b"k"));
}

#[test]
fn a_stray_write_is_caught_and_not_made_durable() {
    let mut rig = rig();
    for (key, damage) in [(b"good", false), (b"evil", true)] {
        let sum = checksum(&value(1, KIB), key);
        let stored = rig.put_with(NAMESPACE, key, 1, KIB, |commit| commit.checksum = Some(sum));
        assert_eq!(stored, Ok(()));
        let kvd_store::Found::Hit(hit) = rig.fetch(ONE, key) else { panic!("just stored") };
        assert_eq!(rig.store.checksum_of(NAMESPACE, key, hit.version), Some(sum));
        if damage {
            rig.arena[crate::platter::index(hit.payload_offset) + 7] ^= 1;
        }
        rig.read(ONE, hit);
        rig.run();
    }
    rig.hit(ONE, b"good", 1, KIB);
    assert_eq!(rig.misses(b"evil"), MissReason::Corrupt);
    assert_eq!(rig.disk().totals.mismatches_total, 1);
    assert!(rig.is_below(b"good") && !rig.is_below(b"evil"));
}

#[test]
fn damage_found_by_a_reader_drops_the_row_but_not_the_block() {
    let mut rig = rig();
    rig.put(b"k", 1, KIB, Retention::Long);
    rig.run();
    let kvd_store::Found::Hit(hit) = rig.fetch(ONE, b"k") else { panic!("just stored") };
    let sum = checksum(&value(1, KIB), b"k");
    assert_eq!(rig.store.checksum_of(NAMESPACE, b"k", hit.version), Some(sum), "from the device");
    rig.read(ONE, hit);
    let (namespace, key) = (NAMESPACE, b"k");
    rig.apply(Input::DropCorrupt { namespace, key, version: hit.version + 2 });
    assert!(rig.is_in_arena(b"k"), "another row");
    rig.apply(Input::DropCorrupt { namespace, key, version: hit.version });
    assert!(!rig.is_in_arena(b"k"));
    rig.load(b"k", 1, KIB);
}

#[test]
fn the_budget_holds_and_a_drain_ignores_it() {
    let mut config = config(256, 1);
    config.disk.write_budget_bytes_per_s = 4 * KIB;
    let mut rig = Rig::new(config, 2048);
    for number in 0..10_u64 {
        rig.put(&number.to_le_bytes(), number, 4 * KIB, Retention::Long);
    }
    rig.run();
    assert_eq!(rig.disk().totals.spills_total, 1);
    assert!(rig.disk().totals.budget_waits_total > 0);
    rig.wait(2_000);
    rig.run();
    assert_eq!(rig.disk().totals.spills_total, 2, "one second's worth is the most at once");
    rig.apply(Input::Drain { on: true });
    rig.run();
    assert_eq!(rig.disk().totals.spills_total, 10);
    assert_eq!((rig.disk().dirty_rows, rig.disk().dirty_bytes), (0, 0));
}

#[test]
fn a_drain_writes_long_then_short_from_the_warmest_on() {
    let mut rig = rig();
    for (number, key) in (1..).zip([b"s1", b"s2", b"s3"]) {
        rig.put(key, number, KIB, Retention::Short);
    }
    rig.put(b"l1", 4, KIB, Retention::Long);
    rig.hit(ONE, b"s1", 1, KIB);
    rig.apply(Input::Drain { on: true });
    let mut order = Vec::new();
    loop {
        rig.take_some(0, 0, 1);
        let spill = rig.pending.iter().find_map(|(_, work)| match work {
            kvd_store::DiskWork::Spill { key, .. } => Some(key.to_vec()),
            kvd_store::DiskWork::Load { .. }
            | kvd_store::DiskWork::Journal { .. }
            | kvd_store::DiskWork::Snapshot { .. } => None,
        });
        rig.finish_all(Trouble::None);
        match spill {
            Some(key) => order.push(key),
            None => break,
        }
    }
    assert_eq!(order, [b"l1", b"s1", b"s3", b"s2"]);
    rig.run();
    assert_eq!((rig.disk().dirty_bytes, rig.disk().unsynced_devices), (0, 0));
}

#[test]
fn what_the_device_had_to_evict_is_written_again_before_it_leaves_the_arena() {
    // The device holds less than the arena.
    let mut config: StoreConfig = config(256, 1);
    config.promise_window_ms = 0;
    let mut rig = Rig::new(config, 64);
    for number in 0..24_u64 {
        rig.put(&number.to_le_bytes(), number, 8 * KIB, Retention::Long);
        rig.run();
    }
    let info = &rig.store.devices()[0];
    assert!(info.entries <= 8);
    assert_eq!(rig.disk().dirty_rows, 0, "written once, that is all");
    for number in 0..24_u64 {
        rig.hit(ONE, &number.to_le_bytes(), number, 8 * KIB);
    }
    for number in 24..40_u64 {
        rig.put(&number.to_le_bytes(), number, 8 * KIB, Retention::Long);
        rig.run();
    }
    assert!(rig.disk().totals.spills_total > 40, "the cold ones were written again");
}

#[test]
fn a_drain_ends_even_where_the_device_is_too_small() {
    let mut rig = Rig::new(config(256, 1), 64);
    for number in 0..24_u64 {
        rig.put(&number.to_le_bytes(), number, 8 * KIB, Retention::Short);
    }
    rig.apply(Input::Drain { on: true });
    assert!(rig.disk().is_draining);
    rig.run();
    let stats = rig.disk();
    assert_eq!((stats.is_draining, stats.dirty_rows, stats.unsynced_devices), (false, 0, 0));
    assert_eq!(stats.entries, 7, "seven eighths of the device");
    for number in 0..24_u64 {
        let is_warm = number >= 17;
        assert_eq!(rig.is_below(&number.to_le_bytes()), is_warm, "{number}");
    }
    assert_eq!(stats.drain_no_room_rows, 17);
}

#[test]
fn a_drain_leaves_nothing_out_for_room_that_is_still_to_come() {
    let mut rig = Rig::new(config(256, 1), 0);
    let space = |bytes, expected_bytes| Input::DeviceSpace {
        device: kvd_store::DeviceId(0),
        bytes,
        expected_bytes,
    };
    rig.apply(space(0, 2048 * KIB));
    rig.put(b"k", 1, 8 * KIB, Retention::Short);
    rig.apply(Input::Drain { on: true });
    rig.run();
    assert_eq!(rig.disk().dirty_rows, 1);
    rig.apply(space(2048 * KIB, 2048 * KIB));
    rig.run();
    assert!(rig.is_below(b"k"));
    assert_eq!((rig.disk().dirty_rows, rig.disk().drain_no_room_rows), (0, 0));
}

#[test]
fn a_drain_leaves_nothing_out_while_a_device_is_still_to_come() {
    let mut rig = Rig::without_devices(config(256, 2), 2048);
    rig.put(b"warm", 1, 8 * KIB, Retention::Short);
    rig.put(b"also", 2, 8 * KIB, Retention::Short);
    rig.apply(Input::Drain { on: true });
    rig.bring_up(0, 16);
    rig.run();
    assert_eq!((rig.disk().dirty_rows, rig.disk().is_draining), (1, true));
    rig.bring_up(1, 2048);
    rig.run();
    let stats = rig.disk();
    assert_eq!((stats.dirty_rows, stats.is_draining, stats.drain_no_room_rows), (0, false, 0));
    assert!(rig.is_below(b"warm") && rig.is_below(b"also"));
}

#[test]
fn a_clean_row_goes_before_one_that_is_not_written_yet() {
    let mut rig = rig();
    rig.put(b"dirty", 1, 8 * KIB, Retention::Long);
    rig.put(b"clean", 2, 8 * KIB, Retention::Long);
    rig.take_some(0, 0, 1);
    rig.run();
    rig.put(b"dirty", 3, 8 * KIB, Retention::Long);
    rig.put(b"warm", 4, 8 * KIB, Retention::Long);
    rig.hit(ONE, b"clean", 2, 8 * KIB);
    let mut number = 10_u64;
    while rig.is_in_arena(b"clean") {
        number += 1;
        rig.put(&number.to_le_bytes(), number, 8 * KIB, Retention::Long);
    }
    rig.hit(ONE, b"dirty", 3, 8 * KIB);
    rig.hit(ONE, b"warm", 4, 8 * KIB);
    assert_eq!(rig.disk().totals.dropped_unwritten_total, 0);
}
