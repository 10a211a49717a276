//! A value that was stored while its device was still being recovered, and the older one that the
//! device turns out to hold: there is never a second row beside the first.

use kvd_proto::retention::Retention;

use crate::rig::{KIB, NAMESPACE, ONE, OTHER, Rig, config};

const SPACE_KIB: u64 = 1024;

/// A daemon that has just started over a device that holds `k` in two namespaces, the first one of
/// this size.
fn started_over(len: u64) -> Rig {
    let config = config(256, 1);
    let mut rig = Rig::new(config, SPACE_KIB);
    for (namespace, len) in [(NAMESPACE, len), (OTHER, KIB)] {
        assert_eq!(rig.put_with(namespace, b"k", 1, len, |_| {}), Ok(()));
    }
    rig.run();
    rig.platters[0].crash(|| true);
    rig.restarted(config)
}

#[test]
fn a_promise_for_the_family_loads_no_value_that_was_replaced_meanwhile() {
    let mut rig = started_over(KIB);
    rig.put(b"k", 2, KIB, Retention::Short);
    rig.bring_back(0, SPACE_KIB);
    rig.locate(OTHER, b"k", true);
    rig.run();
    assert_eq!(rig.store.stats().entries, 2, "one for each name");
    rig.hit(ONE, b"k", 2, KIB);
    // The promise is over.
    rig.wait(60_000);
    rig.evict(b"k");
    assert!(!rig.is_below(b"k"));
}

#[test]
fn a_promise_for_the_family_evicts_no_value_for_the_one_that_it_replaced() {
    let mut rig = started_over(100 * KIB);
    rig.put(b"k", 2, 200 * KIB, Retention::Short);
    rig.bring_back(0, SPACE_KIB);
    rig.locate(OTHER, b"k", true);
    rig.run();
    rig.hit(ONE, b"k", 2, 200 * KIB);
}

#[test]
fn a_hint_loads_no_value_that_was_replaced_by_one_whose_time_is_over() {
    let mut rig = started_over(KIB);
    let stored = rig.put_with(NAMESPACE, b"k", 2, KIB, |commit| commit.ttl_ms = Some(1));
    assert_eq!(stored, Ok(()));
    rig.bring_back(0, SPACE_KIB);
    // Its time is over, and no tick has come by.
    rig.now += 5;
    rig.prefetch(&[b"k"], 1_000);
    rig.run();
    rig.misses(b"k");
    assert!(!rig.is_below(b"k"));
}
