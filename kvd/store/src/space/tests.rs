//! The line of ranges under random work, and windows against a search that tries everything.

use kvd_proto::retention::Retention;
use proptest::prelude::*;

use super::{ExtentId, Layout, Search, Space, State};
use crate::rows::RowId;

const ARENA: u64 = 1 << 20;

#[derive(Clone, Debug)]
enum Step {
    Take { len: u64, class: usize },
    Drop { pick: usize },
    Trim { len: u64, less: u64 },
    Pin { pick: usize },
    Unpin { pick: usize },
    Promise { pick: usize, promised: bool },
    Grow { by: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let len = prop_oneof![0..5_000_u64, 60_000..200_000_u64];
    prop_oneof![
        6 => (len.clone(), 0..4_usize).prop_map(|(len, class)| Step::Take { len, class }),
        4 => any::<usize>().prop_map(|pick| Step::Drop { pick }),
        1 => (len, 0..100_000_u64).prop_map(|(len, less)| Step::Trim { len, less }),
        1 => any::<usize>().prop_map(|pick| Step::Pin { pick }),
        1 => any::<usize>().prop_map(|pick| Step::Unpin { pick }),
        1 => any::<(usize, bool)>().prop_map(|(pick, promised)| Step::Promise { pick, promised }),
        1 => (0..100_000_u64).prop_map(|by| Step::Grow { by }),
    ]
}

fn picked(list: &[ExtentId], pick: usize) -> Option<ExtentId> {
    (!list.is_empty()).then(|| list[pick % list.len()])
}

fn work(space: &mut Space, stored: &mut Vec<ExtentId>, pinned: &mut Vec<ExtentId>, step: Step) {
    match step {
        Step::Take { len, class } => {
            let need = space.layout().footprint(len);
            let fits = space.has_hole(need);
            let taken = space.take(need, 2);
            assert_eq!(taken.is_some(), fits);
            if let Some(id) = taken {
                assert!(space.capacity_bytes(id) >= len);
                space.store(id, RowId(id.0), Retention::ALL[class]);
                stored.push(id);
            }
        }
        Step::Drop { pick } => {
            if !stored.is_empty() {
                let id = stored.swap_remove(pick % stored.len());
                space.let_go(id);
            }
        }
        Step::Trim { len, less } => {
            let need = space.layout().footprint(len);
            if let Some(id) = space.take(need, 2) {
                let bytes = space.layout().bytes_for(len.saturating_sub(less), need.large);
                space.trim(id, bytes);
                space.store(id, RowId(id.0), Retention::Short);
                stored.push(id);
            }
        }
        Step::Pin { pick } => {
            if let Some(id) = picked(stored, pick) {
                space.pin(id);
                pinned.push(id);
            }
        }
        Step::Unpin { pick } => {
            if !pinned.is_empty() {
                let id = pinned.swap_remove(pick % pinned.len());
                space.unpin(id);
                space.loosened(Retention::None);
            }
        }
        Step::Promise { pick, promised } => {
            if let Some(id) = picked(stored, pick) {
                space.set_promised(id, promised);
                space.loosened(Retention::None);
            }
        }
        Step::Grow { by } => space.grow_to(space.end() + by),
    }
    space.assert_consistent();
}

/// Every run of passable ranges, tried one by one.
fn cheapest_by_trying(
    space: &Space,
    len: u64,
    class: Retention,
    center: Option<ExtentId>,
) -> Option<u64> {
    let need = space.layout().footprint(len);
    let mut line = Vec::new();
    space.each(|id, extent| {
        let free = extent.state() == State::Free;
        let passable = free || (extent.is_evictable() && extent.class() <= class);
        line.push((
            id,
            extent.start,
            extent.end(),
            if free { 0 } else { extent.bytes() },
            passable,
        ));
    });
    let mut best = None;
    for from in 0..line.len() {
        let mut cost = 0;
        let mut has_center = center.is_none();
        for &(id, _, end, bytes, passable) in &line[from..] {
            if !passable {
                break;
            }
            cost += bytes;
            has_center |= Some(id) == center;
            if has_center && space.layout().place(line[from].1, end, need).is_some() {
                best = Some(best.map_or(cost, |best: u64| best.min(cost)));
                break;
            }
        }
    }
    best
}

proptest! {
    #[test]
    fn ranges_tile_the_arena_and_windows_are_the_cheapest(
        steps in proptest::collection::vec(step(), 1..120),
        len in prop_oneof![0..5_000_u64, 60_000..400_000_u64],
        class in 0..4_usize,
    ) {
        let mut space: Space = Space::new(Layout::ARENA);
        space.grow_to(ARENA);
        let (mut stored, mut pinned) = (Vec::new(), Vec::new());
        for step in steps {
            work(&mut space, &mut stored, &mut pinned, step);
        }
        let class = Retention::ALL[class];
        let need = space.layout().footprint(len);
        let mut search = Search::default();
        for &center in &stored {
            search.begin();
            let found = space.window_around(center, need, class, &mut search);
            let expected = cheapest_by_trying(&space, len, class, Some(center));
            prop_assert_eq!(found.map(|window| window.cost_bytes), expected);
        }
        let found = space.window_anywhere(need, class);
        let expected = cheapest_by_trying(&space, len, class, None);
        prop_assert_eq!(found.is_some(), expected.is_some());
        if let (Some(found), Some(expected)) = (found, expected) {
            prop_assert!(found.cost_bytes == expected || found.is_cheap_for(need));
            let rows = space.ranges_of(found).filter(|&id| space[id].state() == State::Stored);
            let cost: u64 = rows.map(|id| space[id].bytes()).sum();
            prop_assert_eq!(cost, found.cost_bytes);
        }
    }
}

#[test]
fn everything_freed_is_one_hole_again() {
    let mut space: Space = Space::new(Layout::ARENA);
    space.grow_to(ARENA);
    let mut all = Vec::new();
    for len in (0..40).map(|index| index * 3_000) {
        all.extend(space.take(space.layout().footprint(len), 2));
    }
    for id in all {
        space.let_go(id);
    }
    space.assert_consistent();
    assert_eq!((space.holes(), space.largest_hole_bytes()), (1, ARENA));
}

#[test]
fn a_pinned_range_stays_until_the_last_pin_goes() {
    let mut space: Space = Space::new(Layout::ARENA);
    space.grow_to(ARENA);
    let id = space.take(space.layout().footprint(100), 2).unwrap();
    space.store(id, RowId(0), Retention::Short);
    space.pin(id);
    space.pin(id);
    space.let_go(id);
    assert_eq!(space[id].state(), State::Orphaned);
    space.unpin(id);
    assert_eq!(space.bytes_in(State::Orphaned), 192);
    space.unpin(id);
    assert_eq!(space.bytes_in(State::Free), ARENA);
    space.assert_consistent();
}

/// The check itself must be able to fail.
#[test]
#[should_panic(expected = "figures by state are wrong")]
fn negative_control_a_wrong_figure_is_caught() {
    let mut space: Space = Space::new(Layout::ARENA);
    space.grow_to(ARENA);
    space.bytes_by_state[State::Free.index()] -= 64;
    space.assert_consistent();
}
