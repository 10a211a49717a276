//! Journals that no tablespace would write: what recovery makes of entries that exclude each other.

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;
use proptest::prelude::*;

use super::files::settings;
use crate::disk::Half;
use crate::input::ClearScope;
use crate::tablespace::WallTime;
use crate::tablespace::journal::{Insert, Journal, Position, Reason, Record};
use crate::tablespace::recovery::{Recovery, Report};

const NAMESPACE: Namespace<'static> = Namespace { model: "m", compat_key: "c" };

/// A block of this generation and key, at this place, of so many blocks of 4096 bytes.
fn insert(generation: u64, key: u8, place: u64, blocks: u32) -> (u64, Vec<u8>, u64, u32) {
    (generation, vec![key], place * 4096, blocks * 4096)
}

enum Said {
    Insert((u64, Vec<u8>, u64, u32)),
    Evict(u64),
    Clear(u64),
}

/// Generations that are there after a journal that says these things.
fn recovered(said: &[Said]) -> (Vec<u64>, Report) {
    let at = Position {
        number: 1,
        offset: 0,
        sequence: 1,
        vitals: 0,
        vitals_at_start: 0,
        generation: 0,
    };
    let mut journal = Journal::new(settings(0).tag, 1 << 20, at);
    for said in said {
        match said {
            Said::Insert((generation, key, start, len_bytes)) => {
                let insert = Insert {
                    namespace: 0,
                    start: *start,
                    generation: *generation,
                    checksum: 0,
                    expires_at: WallTime::NEVER,
                    len_bytes: *len_bytes,
                    class: Retention::Short,
                    key,
                    lineage: &[],
                };
                journal.push_insert(NAMESPACE.model, NAMESPACE.compat_key, insert);
            }
            Said::Evict(generation) => {
                let (start, reason) = (0, Reason::Evicted);
                journal.push(&Record::Remove { start, generation: *generation, reason });
            }
            Said::Clear(below_generation) => {
                let scope = ClearScope::Namespace(NAMESPACE);
                journal.push(&Record::Clear { scope, below_generation: *below_generation });
            }
        }
    }
    let mut recovery = Recovery::new(settings(0));
    recovery.begin_journal(Half::B);
    recovery.feed_journal(&journal.next(true).unwrap().bytes);
    let (back, report) = recovery.finish();
    back.assert_consistent();
    (back.entries_from(0).map(|(_, entry)| entry.generation()).collect(), report)
}

#[test]
fn of_two_entries_with_one_name_the_later_one_stays_in_whatever_order() {
    let older = || Said::Insert(insert(1, 7, 0, 2));
    let newer = || Said::Insert(insert(2, 7, 8, 2));
    assert_eq!(recovered(&[older(), newer()]).0, [2]);
    let (there, report) = recovered(&[newer(), older()]);
    assert_eq!((there, report.dropped.superseded), (vec![2], 1));
    // The later one is gone; the older one was gone before.
    assert!(recovered(&[older(), newer(), Said::Evict(2)]).0.is_empty());
    assert_eq!(recovered(&[older(), newer(), Said::Evict(1)]).0, [2]);
}

#[test]
fn of_entries_that_overlap_the_later_one_stays() {
    let all = [
        insert(5, 1, 0, 10),
        insert(3, 2, 5, 10),
        insert(9, 3, 12, 8),
        insert(4, 4, 15, 1),
        insert(2, 5, 20, 1),
    ];
    let forward = all.iter().cloned().map(Said::Insert).collect::<Vec<_>>();
    let (mut there, report) = recovered(&forward);
    there.sort_unstable();
    assert_eq!((there, report.dropped.overlapping), (vec![2, 5, 9], 2));
    let backward = all.into_iter().rev().map(Said::Insert).collect::<Vec<_>>();
    let mut there = recovered(&backward).0;
    there.sort_unstable();
    assert_eq!(there, [2, 5, 9]);
}

#[test]
fn an_entry_excludes_what_it_overlaps_even_if_another_one_took_its_own_place() {
    // 4 was evicted for 5, and that record was lost; then a small one took the beginning of 5.
    let all = [insert(4, 1, 1, 7), insert(5, 2, 0, 11), insert(6, 3, 0, 1)];
    let (there, report) = recovered(&all.map(Said::Insert));
    assert_eq!((there, report.dropped.overlapping), (vec![6], 2));
}

proptest! {
    #[test]
    fn entries_stay_that_no_later_one_overlaps(
        places in proptest::collection::vec((0_u64..40, 1_u32..12), 1..24),
        order in any::<u64>(),
    ) {
        let count = places.len() as u64;
        let all: Vec<_> = (0..count)
            .zip(&places)
            .map(|(number, &(place, blocks))| (1 + (number + order % count) % count, place, blocks))
            .collect();
        let overlap = |(_, one, length): (u64, u64, u32), (_, other, blocks): (u64, u64, u32)| {
            one < other + u64::from(blocks) && other < one + u64::from(length)
        };
        let mut stay: Vec<_> = all
            .iter()
            .filter(|&&one| !all.iter().any(|&other| other.0 > one.0 && overlap(one, other)))
            .map(|&(generation, ..)| generation)
            .collect();
        stay.sort_unstable();
        let said = all.iter().map(|&(generation, place, blocks)| {
            let key = u8::try_from(generation).expect("a few");
            Said::Insert(insert(generation, key, place, blocks))
        });
        let (mut there, _) = recovered(&said.collect::<Vec<_>>());
        there.sort_unstable();
        prop_assert_eq!(there, stay);
    }
}

#[test]
fn an_entry_that_is_said_twice_is_there_once() {
    let twice = [Said::Insert(insert(1, 7, 0, 2)), Said::Insert(insert(1, 7, 0, 2))];
    let (there, report) = recovered(&twice);
    assert_eq!((there, report.dropped.superseded, report.dropped.overlapping), (vec![1], 0, 0));
}

#[test]
fn a_clear_counts_by_generation_wherever_it_stands() {
    let (old, new) = (|| Said::Insert(insert(4, 1, 0, 1)), || Said::Insert(insert(5, 2, 1, 1)));
    assert_eq!(recovered(&[old(), new(), Said::Clear(5)]).0, [5]);
    assert_eq!(recovered(&[Said::Clear(5), old(), new()]).0, [5]);
}

#[test]
fn a_place_without_sense_is_no_entry() {
    let mut crooked = insert(1, 1, 0, 1);
    crooked.2 = 100;
    let mut endless = insert(2, 2, 0, 1);
    endless.2 = u64::MAX - 4095;
    let beyond = insert(4, 4, 1 << 40, 1);
    let (there, report) =
        recovered(&[crooked, endless, beyond, insert(5, 5, 5, 1)].map(Said::Insert));
    assert_eq!((there, report.dropped.malformed, report.dropped.outside), (vec![5], 2, 1));
    assert_eq!(report.generation_max, 5);
}

#[test]
fn a_record_that_nobody_knows_puts_everything_in_doubt() {
    let mut long = insert(3, 3, 3, 1);
    long.1 = vec![3; 257];
    let (there, report) = recovered(&[insert(1, 1, 0, 1), long].map(Said::Insert));
    assert_eq!((there.len(), report.vitals_lost, report.dropped.doubtful), (0, 1, 1));
}
