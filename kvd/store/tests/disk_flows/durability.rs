//! What was acknowledged as durable is; what is cleared or replaced does not come back.

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::{
    ClearScope, Commit, CommitRules, DeviceFault, DeviceId, Durability, Found, Input, StoreConfig,
    Verdict,
};

use crate::platter::{Trouble, checksum};
use crate::rig::{KIB, NAMESPACE, ONE, OTHER, Rig, config, value};

const SPACE_KIB: u64 = 1024;

fn with(durability: Durability) -> StoreConfig {
    let mut config = config(256, 1);
    config.disk.durability = durability;
    config
}

/// Power is lost, and everything unsynced with it; the daemon starts again.
fn cut(mut rig: Rig, config: StoreConfig) -> Rig {
    rig.platters.iter_mut().for_each(|platter| platter.crash(|| false));
    let devices = config.disk.devices;
    let mut rig = rig.restarted(config);
    (0..devices).for_each(|device| rig.bring_back(device, SPACE_KIB));
    rig
}

#[test]
fn strict_says_durable_when_it_is() {
    let config = with(Durability::Strict);
    let mut rig = Rig::new(config, SPACE_KIB);
    rig.put(b"k", 1, KIB, Retention::Long);
    let Some(wait) = rig.effects.wait else { panic!("nothing to wait for") };
    assert_eq!(rig.verdict(wait), Verdict::Pending);
    rig.take(0);
    rig.finish_all(Trouble::None);
    assert_eq!(rig.verdict(wait), Verdict::Pending, "written, but not synced");
    rig.run();
    assert_eq!(rig.decided, [wait]);
    assert_eq!(rig.verdict(wait), Verdict::Met);
    assert_eq!(rig.verdict(wait), Verdict::Failed, "asked for before");
    rig.put(b"short", 2, KIB, Retention::Short);
    assert_eq!(rig.effects.wait, None);
    let mut rig = cut(rig, config);
    rig.load(b"k", 1, KIB);
}

#[test]
fn relaxed_never_syncs_a_block_and_may_lose_it_but_not_by_lying() {
    let config = with(Durability::Relaxed);
    let mut rig = Rig::new(config, SPACE_KIB);
    rig.put(b"k", 1, KIB, Retention::Long);
    assert_eq!(rig.effects.wait, None);
    rig.run();
    assert_eq!(rig.platters[0].syncs, 0);
    // A killed daemon loses nothing that was written.
    rig.platters[0].crash(|| true);
    let mut rig = rig.restarted(config);
    rig.bring_back(0, SPACE_KIB);
    rig.load(b"k", 1, KIB);
    let mut rig = cut(rig, config);
    assert_eq!(rig.misses(b"other"), MissReason::NeverStored);
}

#[test]
fn group_syncs_now_and_then() {
    let mut rig = Rig::new(with(Durability::Group), SPACE_KIB);
    rig.now = 100;
    rig.put(b"a", 1, KIB, Retention::Long);
    assert_eq!(rig.effects.wait, None, "nobody waits");
    rig.run();
    let syncs = rig.platters[0].syncs;
    assert!(syncs >= 1);
    rig.put(b"b", 2, KIB, Retention::Long);
    rig.run();
    assert_eq!(rig.platters[0].syncs, syncs, "too soon");
    rig.to_wake = 0;
    rig.wait(20);
    assert_eq!(rig.to_wake, 1);
    rig.run();
    assert_eq!(rig.platters[0].syncs, syncs + 1);
    rig.to_wake = 0;
    rig.wait(1_000);
    rig.run();
    assert_eq!((rig.to_wake, rig.platters[0].syncs), (0, syncs + 1), "nothing new");
}

#[test]
fn whoever_replaced_the_row_before_it_was_written_takes_its_waits() {
    let mut rig = Rig::new(with(Durability::Strict), SPACE_KIB);
    rig.put(b"k", 1, KIB, Retention::Long);
    let first = rig.effects.wait.unwrap();
    rig.take(0);
    rig.put(b"k", 2, KIB, Retention::Long);
    let second = rig.effects.wait.unwrap();
    rig.finish_all(Trouble::None);
    rig.run();
    assert_eq!((rig.verdict(first), rig.verdict(second)), (Verdict::Met, Verdict::Met));
    rig.put(b"gone", 3, KIB, Retention::Long);
    let third = rig.effects.wait.unwrap();
    rig.clear(ClearScope::Everything);
    assert_eq!(rig.verdict(third), Verdict::Failed);
}

#[test]
fn a_short_value_that_replaces_a_block_waits_for_the_end_of_that() {
    let mut rig = Rig::new(with(Durability::Strict), SPACE_KIB);
    rig.put(b"k", 1, KIB, Retention::Short);
    rig.apply(Input::Drain { on: true });
    rig.run();
    rig.apply(Input::Drain { on: false });
    assert!(rig.is_below(b"k"));
    rig.put(b"k", 2, KIB, Retention::Short);
    let wait = rig.effects.wait.unwrap();
    assert!(!rig.is_below(b"k"));
    rig.run();
    assert_eq!(rig.verdict(wait), Verdict::Met);
    let mut rig = cut(rig, with(Durability::Strict));
    assert_eq!(rig.misses(b"k"), MissReason::NeverStored, "neither of them");
}

#[test]
fn waits_fail_with_the_device_and_with_writes_that_fail_for_good() {
    let mut rig = Rig::new(with(Durability::Strict), SPACE_KIB);
    rig.put(b"io", 1, KIB, Retention::Long);
    let io = rig.effects.wait.unwrap();
    for _ in 0..3 {
        rig.take(0);
        rig.finish_all(Trouble::Io);
    }
    assert_eq!(rig.verdict(io), Verdict::Failed);
    rig.put(b"full", 2, KIB, Retention::Long);
    let full = rig.effects.wait.unwrap();
    rig.take(0);
    rig.finish_all(Trouble::NoSpace);
    assert_eq!(rig.verdict(full), Verdict::Failed);
    rig.put(b"dead", 3, KIB, Retention::Long);
    let dead = rig.effects.wait.unwrap();
    rig.apply(Input::DeviceFailed { device: DeviceId(0), fault: DeviceFault::Unusable });
    assert_eq!(rig.verdict(dead), Verdict::Failed);
    rig.put(b"late", 4, KIB, Retention::Long);
    let late = rig.effects.wait.unwrap();
    assert_eq!(rig.verdict(late), Verdict::Failed);
}

#[test]
fn a_clear_is_durable_before_its_verdict_whatever_the_durability() {
    let config = with(Durability::Relaxed);
    let mut rig = Rig::new(config, SPACE_KIB);
    for (number, namespace) in [(1, NAMESPACE), (2, OTHER)] {
        assert_eq!(rig.put_with(namespace, b"k", number, KIB, |_| {}), Ok(()));
    }
    rig.run();
    rig.platters[0].crash(|| true);
    let wait = rig.clear(ClearScope::Namespace(NAMESPACE)).unwrap();
    assert_eq!(rig.misses(b"k"), MissReason::Cleared);
    assert_eq!(rig.verdict(wait), Verdict::Pending);
    rig.run();
    assert_eq!(rig.verdict(wait), Verdict::Met);
    let mut rig = cut(rig, config);
    assert_eq!(rig.misses(b"k"), MissReason::NeverStored);
    assert!(rig.store.entry(OTHER, b"k", kvd_store::Timestamp(rig.now)).is_some());
}

#[test]
fn a_clear_stops_what_is_under_way() {
    let mut rig = Rig::new(with(Durability::Relaxed), SPACE_KIB);
    rig.put_below(b"below", 1, KIB);
    rig.fetch(ONE, b"below");
    rig.put(b"above", 2, KIB, Retention::Long);
    rig.take(0);
    rig.clear(ClearScope::Model("m"));
    assert_eq!(rig.woken, [ONE]);
    rig.finish_all(Trouble::None);
    rig.run();
    for key in [&b"below"[..], b"above"] {
        assert_eq!(rig.misses(key), MissReason::Cleared);
    }
    assert_eq!((rig.disk().entries, rig.disk().dirty_rows), (0, 0));
}

#[test]
fn time_to_live_goes_on_while_the_daemon_is_down() {
    let config = with(Durability::Strict);
    let mut rig = Rig::new(config, SPACE_KIB);
    for (key, ttl_ms) in [(b"a", 100), (b"b", 10_000)] {
        let stored = rig.put_with(NAMESPACE, key, 1, KIB, |commit| commit.ttl_ms = Some(ttl_ms));
        assert_eq!(stored, Ok(()));
    }
    rig.run();
    rig.now += 5_000;
    let mut rig = cut(rig, config);
    assert_eq!(rig.misses(b"a"), MissReason::NeverStored);
    rig.load(b"b", 1, KIB);
    rig.wait(5_000);
    assert_eq!(rig.misses(b"b"), MissReason::Expired);
    rig.run();
    assert_eq!(rig.disk().entries, 0);
}

#[test]
fn a_killed_daemon_brings_no_replaced_value_back_whatever_the_durability() {
    for durability in [Durability::Relaxed, Durability::Group, Durability::Strict] {
        let config = with(durability);
        let mut rig = Rig::new(config, SPACE_KIB);
        rig.put(b"k", 1, KIB, Retention::Long);
        rig.run();
        rig.put_with(NAMESPACE, b"k", 2, KIB, |commit| {
            commit.retention = Retention::None;
            commit.rules = CommitRules::Lease;
        })
        .unwrap();
        let wait = rig.effects.wait.unwrap();
        assert_eq!(rig.verdict(wait), Verdict::Pending, "{durability:?}: not in the journal yet");
        rig.run();
        assert_eq!(rig.verdict(wait), Verdict::Met, "{durability:?}");
        // What was written outlives the process.
        rig.platters[0].crash(|| true);
        let mut rig = rig.restarted(config);
        rig.bring_back(0, SPACE_KIB);
        assert_eq!(rig.misses(b"k"), MissReason::NeverStored, "{durability:?}");
    }
}

#[test]
fn the_end_of_a_replaced_value_is_waited_for_in_vain_on_a_device_that_fails() {
    let mut rig = Rig::new(with(Durability::Relaxed), SPACE_KIB);
    rig.put(b"k", 1, KIB, Retention::Long);
    rig.run();
    rig.put(b"k", 2, KIB, Retention::Long);
    let wait = rig.effects.wait.unwrap();
    rig.apply(Input::DeviceFailed { device: DeviceId(0), fault: DeviceFault::Unusable });
    assert_eq!(rig.verdict(wait), Verdict::Failed);
}

#[test]
fn the_same_value_again_is_neither_removed_nor_written() {
    for durability in [Durability::Relaxed, Durability::Strict] {
        let config = with(durability);
        let mut rig = Rig::new(config, SPACE_KIB);
        let sum = checksum(&value(1, KIB), b"k");
        let again = |rig: &mut Rig, change: &dyn Fn(&mut Commit<'_>)| {
            let stored = rig.put_with(NAMESPACE, b"k", 1, KIB, |commit| {
                commit.checksum = Some(sum);
                change(commit);
            });
            assert_eq!(stored, Ok(()));
            if let Some(wait) = rig.effects.wait {
                rig.run();
                assert_eq!(rig.verdict(wait), Verdict::Met);
            }
            rig.run();
        };
        rig.put_below(b"k", 1, KIB);
        let spills = rig.disk().totals.spills_total;
        let written = |rig: &Rig| rig.disk().totals.spills_total - spills;
        // Once beside the block alone, once over a row that is linked to it.
        again(&mut rig, &|_| {});
        again(&mut rig, &|_| {});
        let totals = rig.disk().totals;
        assert_eq!((written(&rig), totals.stored_again_total, totals.superseded_total), (0, 2, 0));
        assert_eq!((rig.disk().entries, rig.disk().dirty_rows), (1, 0));
        rig.evict(b"k");
        rig.load(b"k", 1, KIB);
        // Whatever else is said about it makes it another block.
        again(&mut rig, &|commit| commit.ttl_ms = Some(1_000_000));
        again(&mut rig, &|_| {});
        again(&mut rig, &|commit| commit.lineage = Some(b"lineage"));
        assert_eq!((written(&rig), rig.disk().totals.superseded_total), (3, 3));
        again(&mut rig, &|commit| commit.lineage = Some(b"lineage"));
        again(&mut rig, &|commit| commit.checksum = None);
        assert_eq!((written(&rig), rig.disk().totals.stored_again_total), (4, 3));
    }
}

#[test]
fn the_same_value_again_beside_a_load_of_it_is_a_new_one() {
    let mut rig = Rig::new(with(Durability::Relaxed), SPACE_KIB);
    rig.put_below(b"k", 1, KIB);
    assert_eq!(rig.fetch(ONE, b"k"), Found::Loading);
    let sum = checksum(&value(1, KIB), b"k");
    let stored = rig.put_with(NAMESPACE, b"k", 1, KIB, |commit| commit.checksum = Some(sum));
    assert_eq!((stored, rig.disk().totals.superseded_total), (Ok(()), 1));
    rig.run();
    rig.hit(ONE, b"k", 1, KIB);
}
