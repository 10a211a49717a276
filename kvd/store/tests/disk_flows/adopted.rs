//! Rows that were adopted meet the blocks that their daemon had written of them.

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::{
    ClearScope, CommitRules, Durability, Holder, Input, LedgerLayout, Peer, StoreConfig, Verdict,
};

use crate::platter::checksum;
use crate::rig::{self, KIB, NAMESPACE, ONE, Rig, value};

const SPACE_KIB: u64 = 1024;

fn config() -> StoreConfig {
    let mut config = rig::config(256, 1);
    config.ledger = Some(LedgerLayout {
        sessions: 16,
        rights: 64,
        reads: 16,
        namespaces: 4,
        rows: 256,
        tails: 64,
    });
    config
}

/// Keys on the device and in the arena, with value 1.
fn lived(config: StoreConfig, keys: &[&[u8]]) -> Rig {
    let mut rig = Rig::new(config, SPACE_KIB);
    for key in keys {
        rig.put(key, 1, KIB, Retention::Long);
    }
    rig.run();
    rig
}

#[test]
fn what_the_device_has_is_not_written_again() {
    let rig = lived(config(), &[b"a", b"b", b"c"]);
    let writes = rig.platters[0].writes;
    let (mut rig, adopted) = rig.succeeded(config());
    assert_eq!((adopted.rows, adopted.dropped.total()), (3, 0));
    rig.hit(ONE, b"a", 1, KIB);
    assert_eq!(rig.disk().dirty_rows, 3);
    rig.bring_back(0, SPACE_KIB);
    rig.run();
    rig.wait(1);
    assert_eq!((rig.disk().dirty_rows, rig.disk().totals.spills_total), (0, 0));
    assert_eq!(rig.disk().entries, 3);
    assert!(rig.platters[0].writes >= writes);
    rig.evict(b"b");
    rig.load(b"b", 1, KIB);
    // A successor of the successor.
    let (mut rig, adopted) = rig.succeeded(config());
    assert_eq!(adopted.dropped.total(), 0);
    rig.bring_back(0, SPACE_KIB);
    rig.hit(ONE, b"b", 1, KIB);
    rig.load(b"a", 1, KIB);
    assert_eq!(rig.disk().totals.spills_total, 0);
}

#[test]
fn a_row_that_leaves_before_its_device_is_back_leaves_its_block_there() {
    let (mut rig, _) = lived(config(), &[b"a", b"b"]).succeeded(config());
    rig.evict(b"a");
    assert_eq!(rig.misses(b"a"), MissReason::Evicted(Retention::Long));
    rig.bring_back(0, SPACE_KIB);
    rig.run();
    rig.load(b"a", 1, KIB);
    rig.load(b"b", 1, KIB);
}

#[test]
fn another_value_takes_the_place_of_the_block() {
    let mut rig = lived(config(), &[b"a", b"b", b"c"]);
    rig.put(b"b", 2, KIB, Retention::Long);
    let stored = rig.put_with(NAMESPACE, b"c", 2, KIB, |commit| {
        (commit.retention, commit.rules) = (Retention::None, CommitRules::Lease);
    });
    assert_eq!(stored, Ok(()));
    // Whether that it goes is written before the daemon dies or not.
    let (mut rig, adopted) = rig.succeeded(config());
    assert_eq!(adopted.rows, 3);
    rig.put(b"a", 3, KIB, Retention::Long);
    rig.bring_back(0, SPACE_KIB);
    rig.run();
    for (key, number) in [(&b"a"[..], 3), (b"b", 2), (b"c", 2)] {
        rig.hit(ONE, key, number, KIB);
    }
    rig.evict(b"c");
    assert_eq!(rig.misses(b"c"), MissReason::Evicted(Retention::None), "not the old one");
    rig.load(b"a", 3, KIB);
    rig.load(b"b", 2, KIB);
}

#[test]
fn what_is_cleared_stays_cleared() {
    let (mut rig, _) = lived(config(), &[b"a", b"b"]).succeeded(config());
    rig.evict(b"a");
    let wait = rig.clear(ClearScope::Everything);
    rig.bring_back(0, SPACE_KIB);
    rig.run();
    for key in [b"a", b"b"] {
        assert_eq!(rig.misses(key), MissReason::Cleared);
    }
    assert_eq!(wait.map(|wait| rig.verdict(wait)), Some(Verdict::Met));
    assert_eq!(rig.disk().entries, 0);
}

#[test]
fn a_strict_block_survives_although_its_row_was_adopted() {
    let mut strict = config();
    strict.disk.durability = Durability::Strict;
    let mut rig = lived(strict, &[b"a", b"b"]);
    let sum = checksum(&value(1, KIB), b"c");
    let stored = rig.put_with(NAMESPACE, b"c", 1, KIB, |commit| commit.checksum = Some(sum));
    assert_eq!(stored, Ok(()));
    rig.run();
    let (mut rig, _) = rig.succeeded(strict);
    rig.evict(b"a");
    rig.bring_back(0, SPACE_KIB);
    rig.run();
    rig.evict(b"b");
    rig.platters[0].crash(|| false);
    let mut rig = rig.restarted(strict);
    rig.bring_back(0, SPACE_KIB);
    for key in [b"a", b"b", b"c"] {
        rig.load(key, 1, KIB);
    }
}

#[test]
fn bytes_that_the_kernel_may_still_write_are_nobodys() {
    let mut rig = lived(config(), &[b"a"]);
    rig.evict(b"a");
    let _loading = rig.fetch(ONE, b"a");
    assert_eq!(rig.take_some(0, 1, 0), 1);
    let (mut rig, adopted) = rig.succeeded(config());
    let kernel = adopted.sessions.iter().find(|at| at.holder == Holder::Kernel).copied();
    let Some(kernel) = kernel else { panic!("{adopted:?}") };
    assert_eq!((kernel.peer, kernel.open, kernel.process), (Peer::Watched, false, None));
    assert_eq!(rig.store.stats().space.ticketed_bytes, kernel.held_bytes);
    // So it is for the next one, under the same name.
    let (mut again, second) = {
        let (next, second) = rig.succeeded(config());
        rig = next;
        (rig, second)
    };
    assert!(second.sessions.contains(&kernel), "{second:?}");
    again.apply(Input::PeerGone { session: kernel.session });
    assert_eq!(again.store.stats().space.ticketed_bytes, 0);
    again.bring_back(0, SPACE_KIB);
    again.load(b"a", 1, KIB);
}
