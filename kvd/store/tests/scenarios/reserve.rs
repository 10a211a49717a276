//! The reserve of large arenas: for values whose class comes after their bytes.

use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::StoreConfig;

use crate::desk::{Desk, KIB, MIB};

const ARENA: u64 = 100 * MIB;

/// Filled with rows of 1 MiB until something was evicted.
fn full(class: Retention) -> Desk {
    let mut desk = Desk::new(StoreConfig::new(ARENA, ARENA));
    for number in 0..120_u64 {
        desk.store(&number.to_le_bytes(), MIB, class);
    }
    assert!(desk.stats().totals.evictions_total > 0);
    desk
}

#[test]
fn normal_work_leaves_the_reserve_free() {
    let desk = full(Retention::Short);
    let space = desk.stats().space;
    assert_eq!(space.reserve_bytes, ARENA / 1000 * 20);
    assert!(space.free_bytes >= space.reserve_bytes);
    assert!(space.free_bytes < space.reserve_bytes + 2 * MIB, "more than needed went");
}

#[test]
fn a_value_of_unknown_class_evicts_nothing_until_its_class_is_known() {
    let mut desk = full(Retention::Short);
    let before = desk.stats();
    let granted = desk.reserve(MIB, None).unwrap();
    assert_eq!(desk.stats().totals.evictions_total, before.totals.evictions_total);
    assert!(desk.stats().space.free_bytes < before.space.reserve_bytes);
    desk.commit(granted.ticket, b"new", MIB, Retention::Short).unwrap();
    assert!(desk.is_stored(b"new"));
    let after = desk.stats();
    assert!(after.space.free_bytes >= after.space.reserve_bytes, "the reserve is whole again");
    assert_eq!(after.totals.evictions_total, before.totals.evictions_total + 1);
}

#[test]
fn it_leaves_a_hole_for_the_next_value_of_its_size() {
    let mut desk = full(Retention::Short);
    for number in 0..50_u64 {
        let granted = desk.reserve(MIB + number, None).unwrap();
        desk.commit(granted.ticket, &number.to_be_bytes(), MIB, Retention::Short).unwrap();
    }
}

#[test]
fn a_low_class_cannot_keep_what_it_borrowed() {
    let mut desk = full(Retention::Long);
    let before = desk.stats();
    let granted = desk.reserve(MIB, None).unwrap();
    let refused = desk.commit(granted.ticket, b"new", MIB, Retention::Short);
    assert_eq!(refused, Err(Refusal::HigherPriority));
    let after = desk.stats();
    assert_eq!(after.space, before.space, "the extent is given back, nothing is evicted");
    assert_eq!(after.tickets, 0);
    assert_eq!(desk.reserve(MIB, Some(Retention::Short)), Err(Refusal::HigherPriority));
}

#[test]
fn the_reserve_ends_somewhere() {
    let mut desk = full(Retention::Short);
    let refused = (0..4).find_map(|_| desk.reserve(MIB, None).err());
    assert_eq!(refused, Some(Refusal::ArenaFull));
    desk.reserve(MIB, Some(Retention::Short)).unwrap();
}

#[test]
fn a_small_arena_keeps_nothing_back() {
    let mut desk = Desk::new(StoreConfig::new(64 * KIB, 10));
    assert_eq!(desk.stats().space.reserve_bytes, 0);
    desk.store(b"k", 10, Retention::Short);
    assert_eq!(desk.put(b"l", 11, Retention::Short), Err(Refusal::ValueLargerThanStore));
    assert_eq!(desk.put(b"l", 4, Retention::Ephemeral), Err(Refusal::HigherPriority));
    desk.store(b"k", 9, Retention::Short);
    desk.store(b"l", 4, Retention::Short);
    assert!(!desk.is_stored(b"k") && desk.is_stored(b"l"));
    let all = desk.reserve(64 * KIB, Some(Retention::Long));
    assert_eq!(all, Err(Refusal::Oversize));
    assert_eq!(desk.reserve(u64::MAX, None), Err(Refusal::Oversize));
}

#[test]
fn asking_for_the_impossible_again_costs_one_search() {
    let mut desk = full(Retention::Short);
    // One row of a higher class, or a pin, in every window of 2 MiB.
    for number in 20..120_u64 {
        if desk.is_stored(&number.to_le_bytes()) && number % 2 == 0 {
            desk.store(&number.to_le_bytes(), MIB, Retention::Long);
        }
    }
    let ask = |desk: &mut Desk| desk.reserve(30 * MIB, Some(Retention::Short));
    assert_eq!(ask(&mut desk), Err(Refusal::HigherPriority));
    let searches = desk.stats().totals.full_scans_total;
    for _ in 0..10 {
        assert_eq!(ask(&mut desk), Err(Refusal::HigherPriority));
    }
    assert_eq!(desk.stats().totals.full_scans_total, searches);
    desk.reserve(30 * MIB, Some(Retention::Long)).unwrap();
}
