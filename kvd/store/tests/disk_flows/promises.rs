//! What was reported present on a device stays loadable.

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_proto::tier::Tier;
use kvd_store::{ClearScope, DeviceId, Input, Located};

use crate::rig::{KIB, NAMESPACE, ONE, OTHER, Rig, config};

fn rig() -> Rig {
    Rig::new(config(256, 1), 256)
}

/// Writes so much that everything that can leave the device does.
fn churn(rig: &mut Rig) {
    for number in 0..64_u64 {
        let key = format!("churn{number}");
        rig.put(key.as_bytes(), 5_000 + number, 16 * KIB, Retention::Long);
        rig.run();
    }
}

fn is_on_disk(located: Located) -> bool {
    matches!(located, Located::Present { tier: Tier::Disk, .. })
}

#[test]
fn a_promised_block_outlives_the_churn_of_both_tiers() {
    let mut rig = rig();
    rig.put_below(b"k", 1, KIB);
    rig.put_below(b"lost", 2, KIB);
    let located = rig.locate(NAMESPACE, b"k", false);
    let Located::Present { tier, len_bytes, load_us, retention } = located else {
        panic!("{located:?}");
    };
    assert_eq!((tier, len_bytes, retention), (Tier::Disk, 1_024, Retention::Long));
    assert!(load_us > 0);
    assert_eq!(rig.disk().loads_waiting, 1, "its way up has begun");
    churn(&mut rig);
    assert!(rig.is_in_arena(b"k"), "promised there, too");
    assert!(!rig.is_below(b"lost") && !rig.is_in_arena(b"lost"));
    rig.wait(29_000);
    churn(&mut rig);
    rig.hit(ONE, b"k", 1, KIB);
    rig.wait(5_000);
    churn(&mut rig);
    churn(&mut rig);
    assert!(!rig.is_below(b"k"), "the window is over");
}

#[test]
fn no_more_than_a_quarter_of_a_device_is_promised() {
    let mut rig = rig();
    let keys: Vec<String> = (0..8).map(|number| format!("k{number}")).collect();
    for (number, key) in (0..).zip(&keys) {
        rig.put(key.as_bytes(), number, 12 * KIB, Retention::Long);
    }
    rig.run();
    rig.evict(b"k0");
    let answers: Vec<Located> =
        keys.iter().map(|key| rig.locate(NAMESPACE, key.as_bytes(), false)).collect();
    let refused = answers.iter().filter(|&&answer| answer == Located::Miss(MissReason::Shed));
    assert_eq!(answers.iter().filter(|&&answer| is_on_disk(answer)).count(), 5, "60 of 64 KiB");
    assert_eq!(refused.count() as u64, rig.disk().totals.promises_refused_total);
}

#[test]
fn the_estimate_grows_with_what_has_to_be_loaded_before() {
    for loads_max in [1_024, 4] {
        let mut config = config(256, 1);
        (config.disk.loads_max, config.disk.load_bytes_max) = (loads_max, 256 * KIB);
        let mut rig = Rig::new(config, 256);
        let names: Vec<String> = (0..6).map(|number| format!("k{number}")).collect();
        let keys: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        for (number, key) in (0..).zip(&keys) {
            rig.put(key, number, 8 * KIB, Retention::Long);
        }
        rig.run();
        rig.evict(b"k0");
        // A gibibyte a second as long as nothing was measured, whether or not loads could be begun.
        let us = |blocks: u64| u32::try_from(blocks * 8 * KIB * 1_000_000 / (1 << 30));
        let expected: Vec<u32> = (1..=6).map(|blocks| us(blocks).expect("a moment")).collect();
        assert_eq!(rig.load_us(&keys), expected, "at most {loads_max} loads");
        let begun = u64::from(loads_max / 2).min(6);
        assert_eq!(rig.disk().loads_waiting, begun, "a half of them for promises");
    }
}

#[test]
fn the_first_estimate_goes_by_what_the_device_was_seen_to_do() {
    let mut rig = rig();
    rig.put(b"k", 1, KIB, Retention::Long);
    rig.run();
    rig.evict(b"k");
    rig.apply(Input::DeviceReads { device: DeviceId(0), bytes_per_s: 1_024_000 });
    assert_eq!(rig.load_us(&[b"k"]), [1_000]);
}

#[test]
fn a_family_is_promised_on_the_device_as_well() {
    let mut rig = rig();
    let key = b"8 bytes!";
    for (number, namespace) in [(1, NAMESPACE), (2, OTHER)] {
        assert_eq!(rig.put_with(namespace, key, number, KIB, |_| {}), Ok(()));
    }
    rig.run();
    rig.evict(key);
    assert!(is_on_disk(rig.locate(NAMESPACE, key, true)));
    churn(&mut rig);
    assert!(rig.store.entry(OTHER, key, kvd_store::Timestamp(rig.now)).is_some());
}

#[test]
fn time_to_live_and_clear_beat_promises() {
    let mut rig = rig();
    let stored = rig.put_with(NAMESPACE, b"ttl", 1, KIB, |commit| commit.ttl_ms = Some(500));
    assert_eq!(stored, Ok(()));
    rig.put(b"k", 2, KIB, Retention::Long);
    rig.run();
    rig.evict(b"k");
    assert!(is_on_disk(rig.locate(NAMESPACE, b"k", false)));
    assert!(is_on_disk(rig.locate(NAMESPACE, b"ttl", false)));
    rig.wait(500);
    assert_eq!(rig.misses(b"ttl"), MissReason::Expired);
    rig.clear(ClearScope::Everything);
    assert_eq!(rig.misses(b"k"), MissReason::Cleared);
    assert_eq!(rig.disk().entries, 0);
}

#[test]
fn nothing_is_promised_that_no_row_in_the_arena_may_go_for() {
    let mut rig = rig();
    rig.put(b"k", 1, 40 * KIB, Retention::Short);
    rig.apply(Input::Drain { on: true });
    rig.run();
    for number in 0..8_u64 {
        rig.put(format!("long{number}").as_bytes(), number, 30 * KIB, Retention::Long);
    }
    assert!(!rig.is_in_arena(b"k") && rig.is_below(b"k"));
    assert_eq!(rig.misses(b"k"), MissReason::Shed);
    assert_eq!(rig.locate(NAMESPACE, b"k", false), Located::Miss(MissReason::Shed));
    rig.evict(b"long0");
    assert!(is_on_disk(rig.locate(NAMESPACE, b"k", false)));
    rig.run();
    rig.hit(ONE, b"k", 1, 40 * KIB);
}
