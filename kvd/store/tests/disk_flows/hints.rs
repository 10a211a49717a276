//! Hints: whole, in order, and never in the way.

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::{DiskWork, Found};

use crate::platter::Trouble;
use crate::rig::{KIB, NAMESPACE, ONE, Rig, config};

fn rig() -> Rig {
    let mut rig = Rig::new(config(256, 1), 2048);
    for (number, key) in (1..).zip([b"a", b"b", b"c"]) {
        rig.put(key, number, KIB, Retention::Long);
    }
    rig.run();
    rig.evict(b"a");
    rig
}

#[test]
fn a_hint_is_followed_in_order_and_holds_no_room_before() {
    let mut rig = rig();
    rig.prefetch(&[b"c", b"nothing", b"a", b"b"], 1_000);
    assert_eq!((rig.disk().hints_waiting, rig.disk().load_bytes), (3, 0));
    rig.take(0);
    let order = rig.pending.iter().filter_map(|(_, work)| match work {
        DiskWork::Load { key, .. } => Some(&**key),
        DiskWork::Spill { .. } | DiskWork::Journal { .. } | DiskWork::Snapshot { .. } => None,
    });
    assert_eq!(order.collect::<Vec<_>>(), [b"c", b"a", b"b"]);
    rig.finish_all(Trouble::None);
    rig.hit(ONE, b"a", 1, KIB);
    assert_eq!(rig.disk().landed_rows, 0, "nobody waits");
}

#[test]
fn the_copy_ends_with_the_deadline_and_the_block_stays() {
    let mut rig = rig();
    rig.prefetch(&[b"a"], 50);
    rig.run();
    assert!(rig.is_in_arena(b"a"));
    rig.wait(50);
    assert!(!rig.is_in_arena(b"a") && rig.is_below(b"a"));
    rig.load(b"a", 1, KIB);
    rig.wait(100);
    assert!(rig.is_in_arena(b"a"), "fetched without a hint, it stays");
}

#[test]
fn a_stale_hint_is_dropped_unread() {
    let mut rig = rig();
    let reads = rig.platters[0].reads;
    rig.prefetch(&[b"a", b"b"], 50);
    rig.take_some(0, 1, 0);
    rig.now += 50;
    rig.run();
    assert_eq!(rig.platters[0].reads, reads + 1);
    // The second was never read, and the first came too late.
    assert_eq!(rig.disk().totals.hints_stale_total, 2);
    assert!(!rig.is_in_arena(b"a"));
}

#[test]
fn a_hint_that_somebody_waits_for_lasts() {
    let mut rig = rig();
    rig.prefetch(&[b"a"], 50);
    rig.take(0);
    assert_eq!(rig.fetch(ONE, b"a"), Found::Loading);
    rig.now += 60;
    rig.finish_all(Trouble::None);
    rig.hit(ONE, b"a", 1, KIB);
    rig.wait(1_000);
    assert!(rig.is_in_arena(b"a"));
}

#[test]
fn a_copy_made_by_a_hint_and_then_promised_keeps_the_promise() {
    let mut rig = rig();
    rig.prefetch(&[b"a"], 50);
    rig.run();
    rig.locate(NAMESPACE, b"a", false);
    rig.wait(1_000);
    assert!(rig.is_in_arena(b"a"));
}

#[test]
fn hints_are_bounded_and_forget_what_changed() {
    let mut config = config(256, 1);
    config.disk.hints_max = 1;
    let mut rig = Rig::new(config, 2048);
    rig.put_below(b"a", 1, KIB);
    rig.put_below(b"b", 2, KIB);
    rig.prefetch(&[b"a", b"b"], 1_000);
    assert_eq!((rig.disk().hints_waiting, rig.disk().totals.hints_dropped_total), (1, 1));
    let stored = rig.put_with(NAMESPACE, b"a", 3, KIB, |commit| commit.ttl_ms = Some(1));
    assert_eq!(stored, Ok(()));
    rig.wait(1);
    let reads = rig.platters[0].reads;
    rig.run();
    assert_eq!(rig.platters[0].reads, reads);
    assert_eq!(rig.misses(b"a"), MissReason::Expired);
}
