//! Messages that get lost, publishers that begin anew, replays that are short, late, or don't come: once the last message
//! arrived and every need was met, a view has what the publisher has, or says that it may not.

use crate::spelling::{BLOCK_SIZE, DEPTH, Form, Said, chain, label, payload, tokens};
use kvd_proto::events::{CacheTier, Replayed};
use proptest::collection::vec;
use proptest::prelude::*;
use router_core::fold::{EngineSource, EngineView, Moment, Need};
use router_core::index::{Budget, Chains, Fleet, Index, Query, TargetSpec};

#[derive(Clone, Debug)]
enum Step {
    Publish {
        said: Said,
        is_lost: bool,
    },
    /// What was asked for comes: from the publisher's window of so many messages, or not at all.
    Answer {
        window: usize,
        fails: bool,
    },
    Restart,
}

fn said() -> impl Strategy<Value = Said> {
    // Most begin at the root, so that most of what is stored can be asked for.
    let from = || prop_oneof![3 => Just(0), 1 => 0..DEPTH];
    let range = || (0..4_usize, from(), 1..DEPTH);
    prop_oneof![
        5 => range().prop_map(|(branch, from, len)| {
            let names = chain(branch);
            let end = (from + len).min(DEPTH);
            Said::Stored {
                hashes: names[from..end].iter().map(|name| label(*name, 0)).collect(),
                parent: from.checked_sub(1).map(|parent| label(names[parent], 0)),
                tokens: tokens(branch)[from * 2..end * 2].to_vec(),
                medium: "GPU",
            }
        }),
        3 => range().prop_map(|(branch, from, len)| Said::Removed {
            hashes: chain(branch)[from..(from + len).min(DEPTH)]
                .iter().map(|name| label(*name, 0)).collect(),
            medium: "GPU",
        }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (said(), prop::bool::weighted(0.2))
            .prop_map(|(said, is_lost)| Step::Publish { said, is_lost }),
        3 => (prop_oneof![Just(1000), 0..6_usize], prop::bool::weighted(0.1))
            .prop_map(|(window, fails)| Step::Answer { window, fails }),
        1 => Just(Step::Restart),
    ]
}

fn view(can_replay: bool) -> EngineView {
    EngineView::new(EngineSource {
        worker: "w".into(),
        rank: 0,
        model: "m".into(),
        block_size: Some(BLOCK_SIZE),
        names_content: false,
        can_replay,
    })
}

const FORM: Form = Form { is_map: true, has_digests: false };

struct Scene {
    index: Index,
    view: EngineView,
    log: Vec<Vec<u8>>,
    need: Option<Need>,
    /// What was there before the first message did not come.
    misses_first: bool,
}

impl Scene {
    fn publish(&mut self, said: &Said, is_lost: bool) {
        let payload = payload(said, FORM);
        self.log.push(payload.clone());
        if !is_lost {
            let seq = self.log.len() as u64 - 1;
            let need = self.view.live(&self.index, Some(seq), &payload, Moment(0));
            self.need = need.or(self.need);
        }
    }

    fn answer(&mut self, window: usize, fails: bool) {
        let Some(Need::Replay { from }) = self.need.take() else { return };
        let first = usize::try_from(from).unwrap().max(self.log.len().saturating_sub(window));
        self.misses_first |= from == 0 && (fails || first > 0);
        if fails {
            self.need = self.view.replay_failed(&self.index, Moment(0));
            return;
        }
        for seq in first..self.log.len() {
            let answer =
                Replayed::Message { seq: seq as u64, payload: &self.log[seq], epoch: None };
            let need = self.view.replayed(&self.index, &answer, Moment(0));
            assert_eq!(need, None, "an engine has no snapshots");
        }
        self.need = self.view.replayed(&self.index, &Replayed::End, Moment(0));
    }
}

/// What is held of each prompt, and how many blocks there are.
fn held(index: &Index) -> (Vec<u32>, u64) {
    let target = TargetSpec { worker: "w".into(), model: "m".into(), ..TargetSpec::default() };
    let fleet = Fleet::new(&index.roster(), &[target]);
    let mut query = Query::new();
    let prefixes = (0..4).map(|branch| {
        let names = chain(branch);
        let chains = Chains { router: &names, ..Chains::default() };
        query.ask(index, &fleet, &chains).held(0).device_blocks
    });
    (prefixes.collect(), index.entries(CacheTier::Device))
}

proptest! {
    #![proptest_config(crate::cases(150))]

    #[test]
    fn a_view_has_what_the_engine_has_or_says_that_it_may_not(
        can_replay in any::<bool>(),
        begins in any::<bool>(),
        steps in vec(step(), 1..60),
        last in said(),
    ) {
        let index = Index::new(Budget::default());
        let mut scene = Scene { index, view: view(can_replay), log: vec![], need: None, misses_first: !can_replay };
        if begins {
            scene.need = scene.view.begin();
        }
        for step in &steps {
            match step {
                Step::Publish { said, is_lost } => scene.publish(said, *is_lost),
                Step::Answer { window, fails } => scene.answer(*window, *fails),
                Step::Restart => {
                    // What was asked of the last life is answered by this one, and too late.
                    if scene.need.take().is_some() {
                        scene.need = scene.view.replay_failed(&scene.index, Moment(0));
                    }
                    scene.log.clear();
                    scene.misses_first = !can_replay;
                    scene.publish(&Said::Cleared, false);
                }
            }
        }
        for _ in 0..4 {
            scene.answer(1000, false);
        }
        scene.publish(&last, false);
        for _ in 0..4 {
            scene.answer(1000, false);
        }
        prop_assert_eq!(scene.need, None);
        let truth = Index::new(Budget::default());
        let mut fold = view(false);
        for (seq, payload) in scene.log.iter().enumerate() {
            fold.live(&truth, Some(seq as u64), payload, Moment(0));
        }
        let (found, blocks) = held(&scene.index);
        let (expected, all) = held(&truth);
        if scene.view.is_doubted() {
            return Ok(());
        }
        if scene.misses_first {
            // What was there before the first message is missing; nothing that is not there is claimed.
            prop_assert!(found.iter().zip(&expected).all(|(found, expected)| found <= expected));
            prop_assert!(blocks <= all);
        } else {
            prop_assert_eq!((found, blocks), (expected, all));
        }
    }
}

#[test]
fn a_replay_that_begins_late_does_not_overtake_what_came_live() {
    let index = Index::new(Budget::default());
    let mut scene = Scene { index, view: view(true), log: vec![], need: None, misses_first: false };
    let stored = |range: core::ops::Range<usize>| Said::Stored {
        hashes: chain(0)[range.clone()].iter().map(|name| label(*name, 0)).collect(),
        parent: range.start.checked_sub(1).map(|parent| label(chain(0)[parent], 0)),
        tokens: tokens(0)[range.start * 2..range.end * 2].to_vec(),
        medium: "GPU",
    };
    scene.publish(&Said::Cleared, true);
    for block in 0..5 {
        scene.publish(&stored(block..block + 1), false);
    }
    assert_eq!((scene.need, held(&scene.index).0[0]), (Some(Need::Replay { from: 0 }), 0));
    scene.answer(1, false);
    assert_eq!((scene.need, held(&scene.index).0[0]), (None, 5));
    assert!(!scene.view.is_doubted());
}

#[test]
fn a_gap_without_a_replay_halves_the_credit_for_ten_minutes() {
    let index = Index::new(Budget::default());
    let mut view = view(false);
    let stored = |depth: usize| Said::Stored {
        hashes: vec![label(chain(0)[depth], 0)],
        parent: depth.checked_sub(1).map(|parent| label(chain(0)[parent], 0)),
        tokens: tokens(0)[depth * 2..depth * 2 + 2].to_vec(),
        medium: "GPU",
    };
    let credit = |index: &Index| {
        let target = TargetSpec { worker: "w".into(), model: "m".into(), ..TargetSpec::default() };
        let fleet = Fleet::new(&index.roster(), &[target]);
        let names = chain(0);
        let chains = Chains { router: &names, ..Chains::default() };
        let mut query = Query::new();
        let held = query.ask(index, &fleet, &chains).held(0);
        (held.device_blocks, held.device_credit)
    };
    assert_eq!(view.live(&index, Some(7), &payload(&stored(0), FORM), Moment(0)), None);
    assert_eq!(credit(&index), (1, 1.0));
    assert_eq!(view.live(&index, Some(9), &payload(&stored(1), FORM), Moment(1)), None);
    assert_eq!((view.counts().gaps, credit(&index)), (1, (2, 0.5)));
    view.tick(&index, Moment(600_000));
    assert_eq!(credit(&index), (2, 0.5));
    view.tick(&index, Moment(600_001));
    assert_eq!(credit(&index), (2, 1.0));
    assert_eq!(view.live(&index, Some(12), b"\xc1", Moment(700_000)), None);
    assert_eq!(credit(&index), (2, 0.5), "what cannot be read is lost too");
    for _ in 0..3 {
        view.observe(&index, &chain(0), 2, 2);
    }
    assert_eq!(credit(&index), (2, 1.0), "the engine had it three times");
}

#[test]
fn a_prefix_that_the_engine_did_not_have_twice_is_dropped() {
    let index = Index::new(Budget::default());
    let mut view = view(false);
    let names = chain(0);
    let stored = Said::Stored {
        hashes: names[..10].iter().map(|name| label(*name, 0)).collect(),
        parent: None,
        tokens: tokens(0)[..20].to_vec(),
        medium: "GPU",
    };
    view.live(&index, Some(0), &payload(&stored, FORM), Moment(0));
    view.observe(&index, &names, 10, 4);
    assert_eq!(index.entries(CacheTier::Device), 10);
    view.observe(&index, &names, 10, 4);
    assert_eq!((index.entries(CacheTier::Device), view.counts().distrusted), (4, 1));
    view.live(&index, Some(1), &payload(&stored, FORM), Moment(0));
    assert_eq!(index.entries(CacheTier::Device), 10, "until it says so again");
    view.leave(&index);
    assert!(!index.has_cracks());
}

#[test]
fn a_block_that_was_removed_while_it_waited_does_not_come_back() {
    let index = Index::new(Budget::default());
    let mut view = view(false);
    let names = chain(0);
    let stored = |range: core::ops::Range<usize>| Said::Stored {
        hashes: names[range.clone()].iter().map(|name| label(*name, 0)).collect(),
        parent: range.start.checked_sub(1).map(|parent| label(names[parent], 0)),
        tokens: tokens(0)[range.start * 2..range.end * 2].to_vec(),
        medium: "GPU",
    };
    let removed = Said::Removed { hashes: vec![label(names[2], 0)], medium: "GPU" };
    for (seq, said) in [stored(1..4), removed, stored(0..1)].iter().enumerate() {
        view.live(&index, Some(seq as u64), &payload(said, FORM), Moment(0));
    }
    assert_eq!(index.entries(CacheTier::Device), 3);
    assert_eq!(held(&index).0[0], 2, "the removed one is missing in the middle");
    view.live(&index, Some(3), &payload(&stored(5..6), FORM), Moment(0));
    view.tick(&index, Moment(60_000));
    assert_eq!(view.counts().orphaned, 1, "and nobody waits for ever");
}

#[test]
fn an_engine_that_was_away_is_doubted_until_it_shows_who_it_is() {
    let index = Index::new(Budget::default());
    let mut scene = Scene { index, view: view(true), log: vec![], need: None, misses_first: false };
    let away = |scene: &mut Scene| scene.view.disconnected(&scene.index, Moment(0));
    let stored = Said::Stored {
        hashes: vec![label(chain(0)[0], 0)],
        parent: None,
        tokens: tokens(0)[..2].to_vec(),
        medium: "GPU",
    };
    // Nothing was said that could be wrong by now.
    away(&mut scene);
    assert!(!scene.view.is_doubted());
    scene.publish(&stored, false);
    away(&mut scene);
    // Another life may have published as much.
    scene.publish(&stored, false);
    assert!(scene.view.is_doubted());
    // What begins anew is another life for certain, and has what it says.
    scene.log.clear();
    scene.publish(&stored, false);
    assert!(!scene.view.is_doubted());
}
