//! What only a device holds comes back, once for all who want it.

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::{DiskWork, Found, Hold, Input, Keys};

use crate::platter::{File, Trouble};
use crate::rig::{KIB, NAMESPACE, ONE, Rig, TWO, config, value};

fn rig() -> Rig {
    Rig::new(config(256, 1), 2048)
}

#[test]
fn one_read_serves_everybody_and_nothing_is_written_back() {
    let mut rig = rig();
    rig.put_below(b"k", 1, 5_000);
    let (reads, writes) = (rig.platters[0].reads, rig.platters[0].writes);
    assert_eq!(rig.fetch(ONE, b"k"), Found::Loading);
    rig.take(0);
    assert_eq!(rig.fetch(TWO, b"k"), Found::Loading, "joined while it is being read");
    assert_eq!(rig.disk().totals.loads_joined_total, 1);
    rig.run();
    assert_eq!(rig.woken, [ONE, TWO]);
    rig.hit(ONE, b"k", 1, 5_000);
    rig.hit(TWO, b"k", 1, 5_000);
    assert_eq!(rig.platters[0].reads, reads + 1);
    rig.evict(b"k");
    rig.run();
    assert!(rig.is_below(b"k"));
    assert_eq!(rig.platters[0].writes, writes, "it was there already");
    rig.load(b"k", 1, 5_000);
}

#[test]
fn only_the_final_answer_is_counted() {
    let mut rig = rig();
    rig.put_below(b"k", 1, 100);
    let before = rig.store.stats().totals;
    rig.fetch(ONE, b"k");
    rig.fetch(ONE, b"k");
    assert_eq!(rig.store.stats().totals, before);
    rig.run();
    rig.hit(ONE, b"k", 1, 100);
    let after = rig.store.stats().totals;
    assert_eq!(
        (after.gets_total, after.hits_total),
        (before.gets_total + 1, before.hits_total + 1)
    );
    assert_eq!(after.sets_total, before.sets_total + 1, "a promotion counts as a SET");
}

#[test]
fn a_batch_is_told_after_eight_and_at_the_end() {
    let mut rig = rig();
    let keys: Vec<Vec<u8>> = (0..10_u8).map(|number| vec![b'k', number]).collect();
    for (number, key) in (0..).zip(&keys) {
        rig.put(key, number, KIB, Retention::Long);
    }
    rig.run();
    rig.evict(&keys[0]);
    let slices: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let (namespace, hold) = (NAMESPACE, Hold::Lease);
    let all = Keys::slices(&slices);
    rig.apply(Input::Fetch { session: ONE, namespace, keys: all, prefix: true, hold });
    assert_eq!(rig.effects.found, [Found::Loading; 10], "loading ends no prefix");
    rig.take(0);
    for ended in 1..=10 {
        rig.finish(0, Trouble::None);
        let told = ended == 8 || ended == 10;
        assert_eq!(core::mem::take(&mut rig.woken), if told { vec![ONE] } else { vec![] });
    }
    for (number, key) in (0..).zip(&keys) {
        rig.hit(ONE, key, number, KIB);
    }
}

#[test]
fn who_finds_no_load_free_is_told_when_one_is() {
    let mut config = config(256, 1);
    config.disk.loads_max = 1;
    let mut rig = Rig::new(config, 2048);
    rig.put_below(b"a", 1, KIB);
    rig.put_below(b"b", 2, KIB);
    assert_eq!(rig.fetch(ONE, b"a"), Found::Loading);
    assert_eq!(rig.fetch(TWO, b"b"), Found::Loading);
    assert_eq!(rig.disk().totals.loads_starved_total, 1);
    rig.run();
    assert_eq!(rig.woken, [ONE, TWO]);
    rig.hit(ONE, b"a", 1, KIB);
    rig.load(b"b", 2, KIB);
}

#[test]
fn what_is_waited_for_comes_before_what_was_promised_or_hinted() {
    let mut rig = rig();
    for (number, key) in (1..).zip([b"hint", b"prom", b"need", b"both"]) {
        rig.put_below(key, number, KIB);
    }
    rig.prefetch(&[b"hint"], 1_000);
    rig.locate(NAMESPACE, b"prom", false);
    rig.locate(NAMESPACE, b"both", false);
    rig.fetch(ONE, b"need");
    rig.fetch(ONE, b"both");
    rig.take(0);
    let order = rig.pending.iter().filter_map(|(_, work)| match work {
        DiskWork::Load { key, .. } => Some(&**key),
        DiskWork::Spill { .. } | DiskWork::Journal { .. } | DiskWork::Snapshot { .. } => None,
    });
    assert_eq!(order.collect::<Vec<_>>(), [b"need", b"both", b"prom", b"hint"]);
}

#[test]
fn a_new_value_wins_over_a_read_under_way() {
    let mut rig = rig();
    rig.put_below(b"k", 1, KIB);
    assert_eq!(rig.fetch(ONE, b"k"), Found::Loading);
    rig.take(0);
    rig.put(b"k", 2, 2 * KIB, Retention::Long);
    assert_eq!(rig.woken, [ONE], "it is there");
    rig.hit(ONE, b"k", 2, 2 * KIB);
    rig.finish_all(Trouble::None);
    rig.hit(ONE, b"k", 2, 2 * KIB);
    rig.run();
    rig.evict(b"k");
    rig.load(b"k", 2, 2 * KIB);
}

#[test]
fn a_read_that_failed_is_a_miss_and_is_not_repeated() {
    for (trouble, quarantined) in [(Trouble::Io, 4 * KIB), (Trouble::None, 0)] {
        let mut rig = rig();
        rig.put_below(b"k", 1, KIB);
        if trouble == Trouble::None {
            rig.platters[0].file_mut(File::Containers).fill(0);
        }
        rig.fetch(ONE, b"k");
        rig.take(0);
        rig.finish_all(trouble);
        assert_eq!(rig.woken, [ONE]);
        assert_eq!(rig.misses(b"k"), MissReason::Corrupt);
        rig.run();
        assert_eq!(rig.store.devices()[0].quarantined_bytes, quarantined);
        assert_eq!(rig.platters[0].reads, 1);
        let totals = rig.disk().totals;
        let corrupt = u64::from(trouble == Trouble::None);
        assert_eq!((totals.corrupt_total, totals.load_faults_total), (corrupt, 1 - corrupt));
    }
}

#[test]
fn a_block_whose_read_took_too_long_rests() {
    let mut rig = rig();
    rig.put_below(b"k", 1, KIB);
    rig.fetch(ONE, b"k");
    rig.take(0);
    rig.finish_all(Trouble::TimedOut);
    assert_eq!(rig.misses(b"k"), MissReason::Deadline);
    rig.wait(10_000);
    rig.load(b"k", 1, KIB);
}

#[test]
fn who_stops_waiting_is_counted_and_leaves_nothing_behind() {
    let mut rig = rig();
    rig.put_below(b"a", 1, KIB);
    rig.put_below(b"b", 2, KIB);
    rig.fetch(ONE, b"a");
    rig.take(0);
    rig.fetch(ONE, b"b");
    let before = rig.store.stats().totals;
    rig.apply(Input::StopWaiting { session: ONE, given_up: 2 });
    let after = rig.store.stats().totals;
    assert_eq!(after.misses_total, before.misses_total + 2);
    assert_eq!(rig.disk().totals.loads_cancelled_total, 1, "the other is under way");
    rig.finish_all(Trouble::None);
    assert_eq!(rig.disk().landed_rows, 0);
    rig.hit(ONE, b"a", 1, KIB);
    rig.load(b"b", 2, KIB);
}

#[test]
fn a_loaded_block_is_kept_until_all_who_waited_have_it() {
    let mut rig = rig();
    rig.put_below(b"k", 1, KIB);
    rig.fetch(ONE, b"k");
    rig.fetch(TWO, b"k");
    rig.run();
    rig.hit(ONE, b"k", 1, KIB);
    rig.flood(KIB);
    assert_eq!(rig.disk().landed_rows, 1);
    rig.hit(TWO, b"k", 1, KIB);
    assert_eq!(rig.disk().landed_rows, 0);
    rig.flood(KIB);
    assert!(!rig.is_in_arena(b"k"));
}

#[test]
fn a_session_that_ends_is_waited_for_no_longer() {
    let mut rig = rig();
    rig.put_below(b"a", 1, KIB);
    rig.put_below(b"b", 2, KIB);
    rig.fetch(TWO, b"a");
    rig.run();
    rig.fetch(TWO, b"b");
    assert_eq!((rig.disk().landed_rows, rig.disk().loads_waiting), (1, 1));
    rig.apply(Input::Close { session: TWO });
    rig.apply(Input::PeerGone { session: TWO });
    assert_eq!((rig.disk().landed_rows, rig.disk().loads_waiting), (0, 0));
}

#[test]
fn what_nobody_picks_up_is_let_go_after_the_window() {
    let mut rig = rig();
    rig.put_below(b"k", 1, KIB);
    rig.fetch(ONE, b"k");
    rig.run();
    rig.wait(29_999);
    assert_eq!(rig.disk().landed_rows, 1);
    rig.wait(1);
    assert_eq!(rig.disk().landed_rows, 0);
}

#[test]
fn without_any_room_in_the_arena_it_is_a_miss() {
    let mut rig = rig();
    rig.put_below(b"k", 1, 64);
    rig.run();
    // A lease on all that there is.
    let len = 252 * KIB;
    rig.put(b"all", 2, len, Retention::Long);
    assert!(matches!(rig.fetch(TWO, b"all"), Found::Hit(_)));
    assert_eq!(rig.misses(b"k"), MissReason::Shed);
    assert!(rig.is_below(b"k"));
}

/// Right after a start: a block that somebody waits for, and no memory yet.
fn cold_rig() -> Rig {
    let mut before = rig();
    before.put_below(b"k", 1, 64 * KIB);
    let mut rig = before.restarted_cold(config(256, 1));
    rig.bring_back(0, 2048);
    assert_eq!(rig.fetch(ONE, b"k"), Found::Loading);
    rig
}

#[test]
fn memory_that_is_still_to_come_is_waited_for() {
    let mut rig = cold_rig();
    rig.apply(Input::ArenaReady { bytes: 32 * KIB });
    assert_eq!(rig.woken, [ONE]);
    assert_eq!(rig.fetch(ONE, b"k"), Found::Loading, "it is too little");
    rig.apply(Input::ArenaReady { bytes: 256 * KIB });
    assert_eq!(rig.woken, [ONE, ONE]);
    rig.load(b"k", 1, 64 * KIB);
}

#[test]
fn memory_that_does_not_come_is_not_waited_for() {
    let mut rig = cold_rig();
    rig.apply(Input::ArenaGivenUp);
    assert_eq!(rig.woken, [ONE]);
    assert_eq!(rig.misses(b"k"), MissReason::Shed);
}

#[test]
fn an_empty_value_and_its_lineage_come_back() {
    let mut rig = rig();
    let stored = rig.put_with(NAMESPACE, b"k", 1, 0, |commit| commit.lineage = Some(b"line"));
    assert_eq!(stored, Ok(()));
    rig.run();
    rig.evict(b"k");
    rig.load(b"k", 1, 0);
    let why = rig.store.why(NAMESPACE, b"k", kvd_store::Timestamp(rig.now));
    let kvd_store::Why::Present(row) = why else { panic!("{why:?}") };
    assert_eq!((row.lineage_bytes, row.device), (4, Some(kvd_store::DeviceId(0))));
    assert_eq!(value(1, 0), []);
}

#[test]
fn a_device_that_hangs_starves_no_other() {
    let mut rig = Rig::new(config(256, 2), 2048);
    let keys: Vec<Vec<u8>> = (0..24_u8).map(|number| vec![b'k', number]).collect();
    for (number, key) in (0..).zip(&keys) {
        rig.put(key, number, 8 * KIB, Retention::Long);
        // Each device in its turn.
        rig.take(u8::from(number % 2 == 1));
        rig.finish_all(Trouble::None);
    }
    rig.run();
    rig.evict(&keys[0]);
    let now = kvd_store::Timestamp(rig.now);
    let device_of = |key: &[u8]| rig.store.entry(NAMESPACE, key, now).unwrap().device.0;
    let (hung, good): (Vec<_>, Vec<_>) = (0..).zip(&keys).partition(|(_, key)| device_of(key) == 0);
    // As much as may be loaded at once.
    for (_, key) in &hung[..6] {
        assert_eq!(rig.fetch(ONE, key), Found::Loading);
    }
    rig.take(0);
    rig.apply(Input::StopWaiting { session: ONE, given_up: 6 });
    for (number, key) in &good[..3] {
        assert_eq!(rig.fetch(TWO, key), Found::Loading);
        assert_eq!(rig.take_some(1, 64, 0), 1, "the first device has everything");
        rig.finish(rig.pending.len() - 1, Trouble::None);
        rig.hit(TWO, key, *number, 8 * KIB);
    }
}
