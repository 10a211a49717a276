//! Memory beside the arena is bounded, whatever clients store.

use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{Commit, CommitRules, StoreConfig};

use crate::desk::{Desk, MIB, NAMESPACE, ONE};

fn desk() -> Desk {
    let config = StoreConfig { rows_max: 3, lineage_bytes_max: 10, ..StoreConfig::new(MIB, MIB) };
    Desk::new(config)
}

#[test]
fn one_row_too_many_displaces_the_coldest_of_a_class_that_may_go() {
    let mut desk = desk();
    desk.store(b"a", 0, Retention::Short);
    desk.store(b"b", 0, Retention::Long);
    desk.store(b"c", 0, Retention::Short);
    desk.store(b"d", 0, Retention::Short);
    assert!(!desk.is_stored(b"a"), "the coldest of the lowest class");
    desk.store(b"d", 0, Retention::Long);
    assert_eq!(desk.stats().entries, 3, "an overwrite needs no further row");
    assert_eq!(desk.put(b"e", 0, Retention::None), Err(Refusal::HigherPriority));
    assert!(desk.is_stored(b"b") && desk.is_stored(b"c") && desk.is_stored(b"d"));
}

#[test]
fn a_lineage_too_many_is_not_kept_but_the_block_is() {
    let mut desk = desk();
    for (key, dropped) in [(b"a", 0), (b"b", 1)] {
        let ticket = desk.granted(1).ticket;
        let stored = desk.commit_with(Commit {
            session: ONE,
            ticket,
            namespace: NAMESPACE,
            key,
            len_bytes: 1,
            retention: Retention::Short,
            ttl_ms: None,
            lineage: Some(b"sixsix"),
            checksum: None,
            rules: CommitRules::Lease,
        });
        assert_eq!(stored, Ok(()));
        assert_eq!(desk.stats().totals.lineages_dropped_total, dropped);
    }
    assert!(desk.is_stored(b"b"));
    assert_eq!(desk.stats().lineage_bytes, 6);
}
