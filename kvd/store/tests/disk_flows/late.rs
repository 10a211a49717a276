//! Requests are served while devices are still being recovered; what happens then holds.

use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{ClearScope, Durability, StoreConfig, Verdict};

use crate::rig::{KIB, NAMESPACE, Rig, config};

const SPACE_KIB: u64 = 1024;

/// A daemon that has just started over a device that holds `old`, 1 KiB of value 1 each.
fn started_over(config: StoreConfig, old: &[&[u8]]) -> Rig {
    let mut rig = Rig::new(config, SPACE_KIB);
    for key in old {
        rig.put(key, 1, KIB, Retention::Long);
    }
    rig.run();
    rig.platters[0].crash(|| true);
    rig.restarted(config)
}

#[test]
fn what_is_not_back_yet_is_a_miss_and_then_it_is_there() {
    let mut rig = started_over(config(256, 1), &[b"k"]);
    assert_eq!(rig.misses(b"k"), MissReason::NeverStored);
    rig.run();
    rig.bring_back(0, SPACE_KIB);
    rig.load(b"k", 1, KIB);
}

#[test]
fn a_value_stored_meanwhile_wins_whether_it_is_still_there_or_not() {
    let mut rig = started_over(config(256, 1), &[b"stays", b"leaves", b"fades", b"old"]);
    rig.put(b"leaves", 2, KIB, Retention::None);
    let stored = rig.put_with(NAMESPACE, b"fades", 2, KIB, |commit| commit.ttl_ms = Some(1));
    assert_eq!(stored, Ok(()));
    rig.evict(b"leaves");
    rig.put(b"stays", 2, KIB, Retention::Short);
    rig.bring_back(0, SPACE_KIB);
    rig.hit(crate::rig::ONE, b"stays", 2, KIB);
    assert_eq!(rig.misses(b"leaves"), MissReason::Evicted(Retention::None));
    assert_eq!(rig.misses(b"fades"), MissReason::Evicted(Retention::Long));
    rig.evict(b"stays");
    assert_eq!(rig.misses(b"stays"), MissReason::Evicted(Retention::Short), "never written");
    rig.load(b"old", 1, KIB);
    rig.run();
    // Nor after the next restart.
    rig.platters[0].crash(|| true);
    let mut rig = rig.restarted(config(256, 1));
    rig.bring_back(0, SPACE_KIB);
    for key in [&b"stays"[..], b"leaves", b"fades"] {
        assert_eq!(rig.misses(key), MissReason::NeverStored);
    }
}

#[test]
fn a_value_stored_meanwhile_is_written_in_the_place_of_the_old_one() {
    let mut rig = started_over(config(256, 1), &[b"k"]);
    rig.put(b"k", 2, KIB, Retention::Long);
    rig.bring_back(0, SPACE_KIB);
    rig.run();
    assert_eq!(rig.disk().entries, 1);
    rig.evict(b"k");
    rig.load(b"k", 2, KIB);
    assert_eq!(rig.disk().totals.superseded_total, 1);
}

#[test]
fn a_clear_meanwhile_holds_for_what_comes_back() {
    let mut rig = started_over(config(256, 1), &[b"k"]);
    let wait = rig.clear(ClearScope::Model("m")).unwrap();
    rig.put(b"new", 2, KIB, Retention::Long);
    assert_eq!(rig.verdict(wait), Verdict::Pending);
    rig.bring_back(0, SPACE_KIB);
    assert_eq!(rig.misses(b"k"), MissReason::Cleared);
    rig.run();
    assert_eq!(rig.verdict(wait), Verdict::Met);
    rig.platters[0].crash(|| false);
    let mut rig = rig.restarted(config(256, 1));
    rig.bring_back(0, SPACE_KIB);
    assert_eq!(rig.misses(b"k"), MissReason::NeverStored);
}

#[test]
fn strict_waits_until_the_device_is_there() {
    let mut config = config(256, 1);
    config.disk.durability = Durability::Strict;
    let mut rig = started_over(config, &[b"k"]);
    rig.put(b"k", 2, KIB, Retention::Long);
    let wait = rig.effects.wait.unwrap();
    rig.run();
    assert_eq!(rig.verdict(wait), Verdict::Pending);
    rig.bring_back(0, SPACE_KIB);
    rig.run();
    assert_eq!(rig.verdict(wait), Verdict::Met);
}

#[test]
fn a_block_on_a_device_forbids_a_lower_class_like_a_row() {
    let mut rig = started_over(config(256, 1), &[b"k"]);
    rig.bring_back(0, SPACE_KIB);
    let lower = |commit: &mut kvd_store::Commit<'_>| commit.retention = Retention::Short;
    assert_eq!(rig.put_with(NAMESPACE, b"k", 2, KIB, lower), Err(Refusal::Downgrade));
    rig.load(b"k", 1, KIB);
    // A commit of a reservation may.
    let stored = rig.put_with(NAMESPACE, b"k", 2, KIB, |commit| {
        commit.retention = Retention::Short;
        commit.rules = kvd_store::CommitRules::Lease;
    });
    assert_eq!(stored, Ok(()));
    assert!(!rig.is_below(b"k"));
}

#[test]
fn strict_lets_no_device_that_comes_bring_a_replaced_value_back() {
    for class in [Retention::None, Retention::Ephemeral, Retention::Short, Retention::Long] {
        let mut config = config(256, 1);
        config.disk.durability = Durability::Strict;
        let mut rig = started_over(config, &[b"k"]);
        rig.put(b"k", 2, KIB, class);
        let Some(wait) = rig.effects.wait else { panic!("{class:?}: acknowledged too early") };
        rig.run();
        assert_eq!(rig.verdict(wait), Verdict::Pending, "{class:?}");
        rig.bring_back(0, SPACE_KIB);
        assert_eq!(rig.verdict(wait), Verdict::Pending, "{class:?}: not written yet");
        rig.run();
        assert_eq!(rig.verdict(wait), Verdict::Met, "{class:?}");
        rig.platters[0].crash(|| false);
        let mut rig = rig.restarted(config);
        rig.bring_back(0, SPACE_KIB);
        if class == Retention::Long {
            rig.load(b"k", 2, KIB);
        } else {
            assert_eq!(rig.misses(b"k"), MissReason::NeverStored, "{class:?}");
        }
    }
}
