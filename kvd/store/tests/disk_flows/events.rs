//! What is told of tiers, and in which order.

use kvd_proto::events::{CacheTier, Reason};
use kvd_proto::retention::Retention;
use kvd_store::{ClearScope, DeviceFault, DeviceId, Input, StoreConfig, TierChange, TierChanges};

use crate::fold::Fold;
use crate::platter::Trouble;
use crate::rig::{NAMESPACE, ONE, Rig, config};

/// A tier, and `+` for what came or the reason for what went.
type Told = Vec<(CacheTier, &'static str, Vec<u8>)>;

fn told(changes: &TierChanges) -> Told {
    let told = changes.iter().map(|change| match change {
        TierChange::Stored(block) => (block.tier, "+", block.key.to_vec()),
        TierChange::Removed(block, reason) => {
            (block.tier, reason.map_or("-", Reason::as_str), block.key.to_vec())
        }
        TierChange::Cleared(tier) => (tier, "cleared", Vec::new()),
        TierChange::Untold => (CacheTier::L3, "untold", Vec::new()),
        TierChange::Digest(..) => panic!("nobody asked for {change:?}"),
    });
    told.collect()
}

fn rig() -> Rig {
    Rig::new(config(64, 1), 1_024)
}

const L2: CacheTier = CacheTier::L2;
const L3: CacheTier = CacheTier::L3;

#[test]
fn a_block_is_told_with_each_tier_that_it_reaches() {
    let mut rig = rig();
    rig.put(b"a", 1, 5_000, Retention::Long);
    assert_eq!(told(&rig.effects.tiers), [(L2, "+", b"a".to_vec())]);
    rig.take(0);
    assert_eq!(told(&rig.effects.tiers), [], "nothing can be read before it is written");
    let at =
        rig.pending.iter().position(|(_, work)| matches!(work, kvd_store::DiskWork::Spill { .. }));
    rig.finish(at.unwrap(), Trouble::None);
    assert_eq!(told(&rig.effects.tiers), [(L3, "+", b"a".to_vec())]);
    rig.run();
    rig.put(b"large", 2, 62_000, Retention::Long);
    let last = told(&rig.effects.tiers);
    assert_eq!(last.last(), Some(&(L2, "+", b"large".to_vec())));
    rig.run();
    rig.fetch(ONE, b"a");
    assert!(told(&rig.effects.tiers).iter().any(|told| *told == (L2, "demote", b"large".to_vec())));
    rig.take(0);
    rig.finish(0, Trouble::None);
    assert_eq!(told(&rig.effects.tiers), [(L2, "+", b"a".to_vec())]);
}

#[test]
fn the_reason_says_what_became_of_a_block() {
    let mut rig = rig();
    rig.put(b"gone", 1, 60_000, Retention::Ephemeral);
    rig.put(b"next", 2, 60_000, Retention::Ephemeral);
    let stored = told(&rig.effects.tiers);
    assert_eq!(stored, [(L2, "+", b"next".to_vec())], "it went when room was made for the next");
    rig.clear(ClearScope::Namespace(NAMESPACE));
    assert_eq!(told(&rig.effects.tiers), [(L2, "clear", b"next".to_vec())]);
    let short = rig.put_with(NAMESPACE, b"ttl", 3, 10, |commit| commit.ttl_ms = Some(5));
    assert_eq!(short, Ok(()));
    rig.now += 6;
    rig.apply(Input::Tick);
    assert_eq!(told(&rig.effects.tiers), [(L2, "ttl", b"ttl".to_vec())]);
}

#[test]
fn a_new_value_takes_the_place_of_the_old_one_in_every_tier() {
    let mut rig = rig();
    rig.put(b"a", 1, 100, Retention::Long);
    rig.run();
    rig.put(b"a", 2, 100, Retention::Long);
    let expected = [(L3, "-", b"a".to_vec()), (L2, "+", b"a".to_vec())];
    assert_eq!(told(&rig.effects.tiers), expected);
}

#[test]
fn a_device_that_fails_clears_its_tier() {
    let mut rig = Rig::new(config(64, 2), 1_024);
    for number in 0..8_u8 {
        rig.put(&[b'k', number], number.into(), 100, Retention::Long);
        rig.take(number % 2);
        rig.finish_all(Trouble::None);
    }
    rig.apply(Input::DeviceFailed { device: DeviceId(0), fault: DeviceFault::Io });
    let cleared = [(L3, "cleared", vec![]), (L3, "untold", vec![])];
    assert_eq!(told(&rig.effects.tiers), cleared, "the other device has blocks as well");
    rig.apply(Input::DeviceFailed { device: DeviceId(1), fault: DeviceFault::Io });
    assert_eq!(told(&rig.effects.tiers), cleared[..1]);
}

#[test]
fn a_device_that_comes_up_is_not_told_block_by_block() {
    let mut rig = rig();
    rig.put(b"a", 1, 100, Retention::Long);
    rig.run();
    let mut rig = rig.restarted(config(64, 1));
    assert!(rig.effects.tiers.is_empty());
    rig.bring_back(0, 1_024);
    assert_eq!(told(&rig.effects.tiers), [(L3, "untold", vec![])]);
}

#[test]
fn nothing_is_told_that_nobody_asked_for() {
    let quiet = StoreConfig { events: false, ..config(64, 1) };
    let mut store = kvd_store::Store::new(quiet);
    let mut effects = kvd_store::Effects::default();
    let now = kvd_store::Timestamp(0);
    store.apply(Input::ArenaReady { bytes: quiet.arena_bytes }, now, &mut effects);
    store.apply(
        Input::Clear { scope: ClearScope::Everything, cursor: kvd_store::ClearCursor::START },
        now,
        &mut effects,
    );
    assert!(effects.tiers.is_empty());
    assert_eq!(store.tier_digest(NAMESPACE).l2, kvd_proto::events::Tally::default());
}

#[test]
#[should_panic(expected = "but there is")]
fn a_change_that_is_not_told_is_found() {
    let mut rig = rig();
    rig.put(b"a", 1, 100, Retention::Long);
    let mut fold = Fold::default();
    fold.follow(&rig.store, &TierChanges::default());
}
