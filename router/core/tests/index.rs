//! The index: many holders, a small budget, and questions while others come and go.

use core::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use kvd_proto::events::CacheTier;
use router_core::fold::{EngineSource, EngineView, Moment};
use router_core::index::{
    Budget, Chains, Fleet, Holder, Index, Kind, Name, Owner, Query, TargetSpec,
};

fn holder(number: u32, tier: CacheTier) -> Holder {
    Holder {
        owner: Owner::Rank { worker: "w".into(), rank: number },
        tier,
        model: "m".into(),
        family: "".into(),
        kind: Kind::Router,
        stride: 1,
    }
}

/// Numbers that look like hashes.
fn hash(number: u64) -> u64 {
    let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 32)
}

fn name(number: u64) -> Name {
    Name::new(Kind::Router, hash(number))
}

#[test]
fn one_question_tells_hundreds_of_targets_apart() {
    const TARGETS: u32 = 1300;
    const BLOCKS: u32 = 300;
    let index = Index::new(Budget::default());
    let prefix = |target: u32| target.wrapping_mul(7919) % (BLOCKS + 1);
    let mut specs = Vec::new();
    for target in 0..TARGETS {
        let id = index.open(holder(target, CacheTier::Device)).unwrap();
        for block in 0..prefix(target) {
            assert!(index.insert(id, name(block.into())));
        }
        specs.push(TargetSpec {
            worker: "w".into(),
            rank: target,
            model: "m".into(),
            ..TargetSpec::default()
        });
    }
    let chain: Vec<u64> = (0..BLOCKS).map(|block| hash(block.into())).collect();
    let fleet = Fleet::new(&index.roster(), &specs);
    let mut query = Query::new();
    let answer = query.ask(&index, &fleet, &Chains { router: &chain, ..Chains::default() });
    for target in 0..TARGETS {
        assert_eq!(answer.held(target as usize).device_blocks, prefix(target), "{target}");
    }
}

#[test]
fn readers_find_what_stays_while_others_come_and_go() {
    const STAY: u64 = 500;
    let index = Index::new(Budget::default());
    let [stays, goes] = [0, 1].map(|rank| index.open(holder(rank, CacheTier::Device)).unwrap());
    for number in 0..STAY {
        assert!(index.insert(stays, name(number)));
    }
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let writer = thread::Builder::new().name("writer".to_owned());
        let writer = writer.spawn_scoped(scope, || {
            for round in 0..20 {
                // Shards fill up, are built anew, and are emptied; among the names are those that stay.
                for number in 0..40_000 {
                    assert!(index.insert(goes, name(number + round % 3 * 10_000)));
                }
                for number in 0..40_000 {
                    index.remove(goes, name(number + round % 3 * 10_000));
                }
            }
            is_over.store(true, Ordering::Release);
        });
        let chain: Vec<u64> = (0..STAY).map(hash).collect();
        let spec = TargetSpec { worker: "w".into(), model: "m".into(), ..TargetSpec::default() };
        let fleet = Fleet::new(&index.roster(), &[spec]);
        let mut query = Query::new();
        while !is_over.load(Ordering::Acquire) {
            let answer = query.ask(&index, &fleet, &Chains { router: &chain, ..Chains::default() });
            assert_eq!(answer.held(0).device_blocks, 500);
            assert!(index.contains(stays, name(7)));
            assert!(!index.contains(stays, name(STAY)));
        }
        writer.unwrap().join().unwrap();
    });
    assert_eq!((index.blocks_of(stays), index.blocks_of(goes)), (STAY, 0));
    assert_eq!(index.entries(CacheTier::Device), STAY);
}

#[test]
fn numbers_of_holders_that_left_come_back_with_full_credit() {
    let index = Index::new(Budget::default());
    let first = index.open(holder(0, CacheTier::L2)).unwrap();
    index.set_credit(first, 0.5);
    index.close(first);
    assert!(index.roster().holders.is_empty());
    let second = index.open(holder(1, CacheTier::L2)).unwrap();
    assert_eq!((first, index.credit(second).to_bits()), (second, 1.0_f32.to_bits()));
    let device = index.open(holder(2, CacheTier::Device)).unwrap();
    assert_ne!(device, second);
}

#[test]
fn lower_tiers_are_turned_away_first_and_thrown_out_first() {
    let empty = Index::new(Budget::default()).bytes();
    let index = Index::new(Budget { bytes_max: empty + (1 << 20) });
    let ids = CacheTier::ALL.map(|tier| index.open(holder(tier as u32, tier)).unwrap());
    let turned_away = |index: &Index| {
        let away = CacheTier::ALL.into_iter().filter(|tier| !index.admits(*tier));
        away.collect::<Vec<_>>()
    };
    assert!(index.insert(ids[3], name(0)) && index.insert(ids[1], name(0)));
    assert_eq!((turned_away(&index), index.must_shed()), (vec![], None));
    let mut seen = vec![turned_away(&index)];
    let mut shed = Vec::new();
    for number in 1.. {
        assert!(index.insert(ids[0], name(number)));
        let now = turned_away(&index);
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        if let Some(tier) = index.must_shed() {
            shed.push(tier);
            index.remove(ids[tier as usize - 1], name(0));
        }
        if !index.admits(CacheTier::Device) {
            break;
        }
    }
    let [_, l2, l3, l4] = CacheTier::ALL;
    assert_eq!(shed, [l4, l2], "the lowest first, and never the device");
    for pair in seen.windows(2) {
        assert!(pair[0].iter().all(|tier| pair[1].contains(tier)), "{pair:?}");
    }
    assert!(seen.iter().any(|away| *away == [l4] || *away == [l3, l4] || *away == [l2, l3, l4]));
}

#[test]
fn a_view_without_room_says_so_and_claims_nothing() {
    let index = Index::new(Budget { bytes_max: 0 });
    let mut view = EngineView::new(EngineSource {
        worker: "w".into(),
        rank: 0,
        model: "m".into(),
        block_size: Some(1),
        names_content: false,
        can_replay: false,
    });
    // [1.5, [["BlockStored", [7], nil, [1], 1, nil]]]
    let payload =
        b"\x92\xcb\x3f\xf8\0\0\0\0\0\0\x91\x96\xabBlockStored\x91\x07\xc0\x91\x01\x01\xc0";
    assert_eq!(view.live(&index, Some(0), payload, Moment(0)), None);
    assert_eq!((view.counts().stored, view.counts().turned_away), (1, 1));
    assert_eq!(index.entries(CacheTier::Device), 0);
}
