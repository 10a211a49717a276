//! What was reported present stays loadable for the window, whatever is written meanwhile.

use kvd_proto::block_key::Namespace;
use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{ClearCursor, ClearScope, Commit, CommitRules, Hold, Input, Located, StoreConfig};

use crate::desk::{Desk, MIB, NAMESPACE, ONE};

fn desk() -> Desk {
    Desk::new(StoreConfig::new(16 * MIB, 16 * MIB))
}

fn is_present(located: Located) -> bool {
    matches!(located, Located::Present { .. })
}

#[test]
fn a_promised_row_outlives_write_pressure_until_the_window_ends() {
    let mut desk = desk();
    desk.store(b"promised", MIB, Retention::None);
    assert!(is_present(desk.locate(b"promised", false)));
    for number in 0..40_u64 {
        desk.now += 700;
        desk.store(&number.to_le_bytes(), MIB, Retention::Long);
    }
    assert_eq!(desk.now, 28_000);
    desk.hit(ONE, b"promised", Hold::Inline);
    // The window, and the eighth of it that saves renewals.
    desk.wait(2_000 + 3_750);
    assert_eq!(desk.stats().promised_rows, 0);
    for number in 40..80_u64 {
        desk.store(&number.to_le_bytes(), MIB, Retention::Long);
    }
    // The lease of the hit still pins it; only its name may go.
    assert_eq!(desk.stats().promised_bytes, 0);
}

#[test]
fn a_promise_changes_neither_recency_nor_counters() {
    let mut desk = desk();
    desk.store(b"cold", 7 * MIB, Retention::Short);
    desk.store(b"warm", 7 * MIB, Retention::Short);
    let before = desk.stats().totals;
    // Too large for a quarter of the arena: not promised, and said so.
    assert_eq!(desk.locate(b"cold", false), Located::Miss(MissReason::Shed));
    let after = desk.stats().totals;
    assert_eq!(after.promises_refused_total, 1);
    assert_eq!((after.gets_total, after.misses_total), (before.gets_total, before.misses_total));
    desk.store(b"new", 7 * MIB, Retention::Short);
    assert!(!desk.is_stored(b"cold") && desk.is_stored(b"warm"));
}

#[test]
fn every_answer_leaves_a_whole_window() {
    let mut desk = desk();
    desk.store(b"k", MIB, Retention::Short);
    for pause in [0, 1, 14_000, 10_000, 3_000] {
        desk.wait(pause);
        desk.locate(b"k", false);
    }
    desk.wait(29_999);
    assert_eq!(desk.stats().promised_rows, 1, "counted from the last answer");
    desk.wait(3_751);
    assert_eq!(desk.stats().promised_rows, 0);
    assert_eq!(desk.stats().totals.promises_total, 1);
}

#[test]
fn a_family_is_promised_across_compatibility_keys() {
    let mut desk = desk();
    let other = Namespace { model: "m", compat_key: "1" };
    let foreign = Namespace { model: "n", compat_key: "0" };
    for (namespace, key) in [
        (NAMESPACE, b"chunk__0"),
        (other, b"chunk__0"),
        (other, b"chunk__1"),
        (foreign, b"chunk__0"),
        (NAMESPACE, b"chunk_X0"),
    ] {
        let granted = desk.reserve(1_000, None).unwrap();
        let commit = Commit {
            session: ONE,
            ticket: granted.ticket,
            namespace,
            key,
            len_bytes: 1_000,
            retention: Retention::Short,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Set,
        };
        desk.commit_with(commit).unwrap();
    }
    desk.locate(b"chunk__0", true);
    assert_eq!(desk.stats().promised_rows, 3);
}

#[test]
fn promises_yield_to_clear_and_to_time_to_live() {
    let mut desk = desk();
    desk.store(b"cleared", 100, Retention::Short);
    let granted = desk.reserve(100, None).unwrap();
    let commit = Commit {
        session: ONE,
        ticket: granted.ticket,
        namespace: NAMESPACE,
        key: b"short-lived",
        len_bytes: 100,
        retention: Retention::Short,
        ttl_ms: Some(500),
        lineage: None,
        checksum: None,
        rules: CommitRules::Set,
    };
    desk.commit_with(commit).unwrap();
    desk.locate(b"cleared", false);
    desk.locate(b"short-lived", false);
    desk.apply(Input::Clear {
        scope: ClearScope::Namespace(Namespace { model: "m", compat_key: "1" }),
        cursor: ClearCursor::START,
    });
    assert_eq!(desk.stats().promised_rows, 2);
    desk.now += 500;
    assert_eq!(desk.locate(b"short-lived", false), Located::Miss(MissReason::Expired));
    let scope = ClearScope::Namespace(NAMESPACE);
    desk.apply(Input::Clear { scope, cursor: ClearCursor::START });
    assert_eq!((desk.stats().promised_rows, desk.stats().entries), (0, 0));
}

#[test]
fn with_everything_promised_or_pinned_a_reserve_is_refused_and_then_not() {
    let mut config = StoreConfig::new(16 * MIB, 16 * MIB);
    config.session_limits.in_flight_bytes_max = 32 * MIB;
    let mut desk = Desk::new(config);
    desk.store(b"promised", 3 * MIB, Retention::Short);
    desk.store(b"leased", 10 * MIB, Retention::Short);
    desk.locate(b"promised", false);
    let lease = desk.lease(ONE, b"leased");
    let refused = desk.reserve(4 * MIB, Some(Retention::Long)).err();
    assert_eq!(refused, Some(Refusal::ArenaFull));
    desk.release(ONE, lease);
    desk.reserve(4 * MIB, Some(Retention::Long)).unwrap();
    assert!(desk.is_stored(b"promised") && !desk.is_stored(b"leased"));
}
