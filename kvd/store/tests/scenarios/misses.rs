//! Misses explain themselves, and writing follows the reference's rules.

use kvd_proto::block_key::{KEY_BYTES_MAX, Namespace};
use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{Commit, CommitRules, Found, Hold, Input, Keys, StoreConfig, Timestamp, Why};

use crate::desk::{Desk, KIB, MIB, NAMESPACE, ONE};

fn desk() -> Desk {
    Desk::new(StoreConfig::new(MIB, MIB))
}

fn commit<'a>(desk: &mut Desk, key: &'a [u8], len_bytes: u64) -> Commit<'a> {
    Commit {
        session: ONE,
        ticket: desk.granted(len_bytes).ticket,
        namespace: NAMESPACE,
        key,
        len_bytes,
        retention: Retention::Short,
        ttl_ms: None,
        lineage: None,
        checksum: None,
        rules: CommitRules::Set,
    }
}

#[test]
fn the_classic_mistake_is_named() {
    let mut desk = desk();
    desk.store(b"k", 10, Retention::Short);
    let other = Namespace { model: "m", compat_key: "other seed" };
    let keys = Keys::one(b"k");
    let (prefix, hold) = (false, Hold::Lease);
    desk.apply(Input::Fetch { session: ONE, namespace: other, keys, prefix, hold });
    assert_eq!(desk.effects.found, [Found::Miss(MissReason::OtherNamespace)]);
    let why = desk.store.why(other, b"k", Timestamp(0));
    let elsewhere = Some(("m".into(), "0".into()));
    assert_eq!(why, Why::Missing { reason: MissReason::OtherNamespace, elsewhere });
}

#[test]
fn every_way_out_leaves_its_reason() {
    let mut desk = desk();
    assert_eq!(desk.fetch(ONE, b"k", Hold::Lease), Found::Miss(MissReason::NeverStored));
    let mut short_lived = commit(&mut desk, b"k", 10);
    short_lived.ttl_ms = Some(100);
    desk.commit_with(short_lived).unwrap();
    desk.now += 99;
    desk.hit(ONE, b"k", Hold::Inline);
    desk.now += 1;
    assert_eq!(desk.stats().entries, 1, "expired, but not touched yet");
    assert_eq!(desk.fetch(ONE, b"k", Hold::Lease), Found::Miss(MissReason::Expired));
    assert_eq!(desk.stats().entries, 0);
    desk.store(b"k", 400 * KIB, Retention::Ephemeral);
    desk.store(b"l", 400 * KIB, Retention::Short);
    desk.store(b"m", 400 * KIB, Retention::Short);
    let evicted = MissReason::Evicted(Retention::Ephemeral);
    assert_eq!(desk.fetch(ONE, b"k", Hold::Lease), Found::Miss(evicted));
}

#[test]
fn a_void_time_to_live_is_accepted_and_changes_nothing() {
    let mut desk = desk();
    desk.store(b"k", 10, Retention::Short);
    let mut void = commit(&mut desk, b"k", 20);
    void.ttl_ms = Some(0);
    desk.commit_with(void).unwrap();
    assert_eq!(desk.hit(ONE, b"k", Hold::Inline).len_bytes, 10);
    assert_eq!((desk.stats().totals.sets_total, desk.stats().tickets), (2, 0));
}

#[test]
fn a_set_may_not_lower_the_class_but_a_commit_may() {
    let mut desk = desk();
    desk.store(b"k", 10, Retention::Long);
    let lower = commit(&mut desk, b"k", 20);
    assert_eq!(desk.commit_with(lower), Err(Refusal::Downgrade));
    assert_eq!(desk.hit(ONE, b"k", Hold::Inline).len_bytes, 10);
    let mut lower = commit(&mut desk, b"k", 20);
    lower.rules = CommitRules::Lease;
    desk.commit_with(lower).unwrap();
    assert_eq!(desk.hit(ONE, b"k", Hold::Inline).retention, Retention::Short);
    assert_eq!(desk.stats().totals.sets_total, 3);
}

#[test]
fn bad_keys_and_lengths_leave_the_ticket_open() {
    let mut desk = desk();
    let long = vec![0; KEY_BYTES_MAX + 1];
    let bad = commit(&mut desk, &long, 10);
    assert_eq!(desk.commit_with(bad), Err(Refusal::BadKey));
    let oversize = Commit { key: b"k", len_bytes: 11, ..bad };
    assert_eq!(desk.commit_with(oversize), Err(Refusal::OversizeCommit));
    desk.commit_with(Commit { key: &long[1..], len_bytes: 9, ..bad }).unwrap();
    assert_eq!(desk.commit_with(Commit { key: b"k", ..bad }), Err(Refusal::UnknownTicket));
}

#[test]
fn an_overwritten_lease_keeps_its_bytes() {
    let mut desk = desk();
    desk.store(b"k", 100, Retention::Short);
    let old = desk.hit(ONE, b"k", Hold::Lease);
    desk.store(b"k", 200, Retention::Short);
    let new = desk.hit(ONE, b"k", Hold::Lease);
    assert_ne!(old.payload_offset, new.payload_offset);
    assert!(new.version > old.version);
    assert_eq!(desk.stats().space.orphaned_bytes, 192);
    assert_eq!(desk.stats().entries, 1);
}

#[test]
fn empty_values_are_values() {
    let mut desk = desk();
    desk.store(b"", 0, Retention::None);
    let hit = desk.hit(ONE, b"", Hold::Inline);
    assert_eq!((hit.len_bytes, hit.payload_offset), (0, 64));
    assert_eq!(desk.stats().host_bytes, 0);
}

#[test]
fn without_an_arena_there_is_no_room() {
    let mut desk = Desk::new(StoreConfig::new(0, 100));
    assert_eq!(desk.reserve(0, None), Err(Refusal::NoArena));
}
