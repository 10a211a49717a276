//! Engines' events against an oracle that folds them one by one into sets: every form, aliases, parents that come late,
//! removals in the middle, and what a question then finds for each rank.

use std::collections::{BTreeMap, BTreeSet};

use crate::spelling::{BLOCK_SIZE, DEPTH, Form, Said, chain, label, payload, tokens};
use kvd_proto::events::CacheTier;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use router_core::fold::{EngineSource, EngineView, Moment};
use router_core::hash;
use router_core::index::{Budget, Chains, Fleet, Index, Query, TargetSpec};

const RANKS: usize = 3;
const TIERS: [(CacheTier, &str); 3] =
    [(CacheTier::Device, "GPU"), (CacheTier::L2, "CPU"), (CacheTier::L3, "STORAGE")];

/// What one rank says.
#[derive(Clone, Debug)]
struct Step {
    rank: usize,
    form: Form,
    tier: usize,
    branch: usize,
    variant: u8,
    act: Act,
}

#[derive(Clone, Debug)]
enum Act {
    Store { from: usize, len: usize },
    StoreByName { from: usize, len: usize },
    Remove { from: usize, len: usize },
    Clear,
}

fn act() -> impl Strategy<Value = Act> {
    let from = || prop_oneof![Just(0), 0..DEPTH];
    let len = || prop_oneof![Just(1), 1..DEPTH];
    prop_oneof![
        8 => (from(), len()).prop_map(|(from, len)| Act::Store { from, len }),
        1 => (from(), len()).prop_map(|(from, len)| Act::StoreByName { from, len }),
        3 => (from(), prop_oneof![Just(1), 1..20_usize]).prop_map(|(from, len)| Act::Remove { from, len }),
        1 => (from(), Just(DEPTH)).prop_map(|(from, len)| Act::Remove { from, len }),
        1 => Just(Act::Clear),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let form = (any::<bool>(), any::<bool>())
        .prop_map(|(is_map, has_digests)| Form { is_map, has_digests });
    let tier = prop_oneof![4 => Just(0_usize), 1 => 1..TIERS.len()];
    let variant = prop_oneof![5 => Just(0_u8), 1 => Just(1_u8)];
    (0..RANKS, form, tier, 0..4_usize, variant, act()).prop_map(
        |(rank, form, tier, branch, variant, act)| Step { rank, form, tier, branch, variant, act },
    )
}

/// An event that waits: tier, parent, then name and tokens of each block.
type Waiting = (usize, u64, Vec<(Option<u64>, [u32; 2])>);

#[derive(Default)]
struct Oracle {
    names: BTreeMap<(usize, u64), u64>,
    waiting: Vec<Waiting>,
}

impl Oracle {
    fn has(&self, tier: usize) -> BTreeSet<u64> {
        self.names.iter().filter(|((at, _), _)| *at == tier).map(|(_, name)| *name).collect()
    }

    fn resolve(&self, label: u64) -> Option<u64> {
        (0..TIERS.len()).find_map(|tier| self.names.get(&(tier, label)).copied())
    }

    fn take(&mut self, tier: usize, said: &Said) {
        match said {
            Said::Stored { hashes, tokens, .. } if tokens.is_empty() => {
                for hash in hashes {
                    if let Some(name) = self.resolve(*hash) {
                        self.names.insert((tier, *hash), name);
                    }
                }
            }
            Said::Stored { hashes, parent, tokens, .. } => {
                let tokens = tokens.chunks_exact(2).map(|pair| [pair[0], pair[1]]);
                let blocks: Vec<_> = hashes.iter().map(|hash| Some(*hash)).zip(tokens).collect();
                match parent.map(|parent| (parent, self.resolve(parent))) {
                    None => self.put(tier, hash::ROOT, &blocks),
                    Some((_, Some(parent))) => self.put(tier, parent, &blocks),
                    Some((parent, None)) => {
                        for (label, _) in &blocks {
                            self.strike(tier, label.unwrap());
                        }
                        self.waiting.push((tier, parent, blocks));
                    }
                }
            }
            Said::Removed { hashes, .. } => {
                for hash in hashes {
                    self.names.remove(&(tier, *hash));
                    self.strike(tier, *hash);
                }
            }
            Said::Cleared => *self = Self::default(),
        }
    }

    fn strike(&mut self, tier: usize, label: u64) {
        for (_, _, blocks) in self.waiting.iter_mut().filter(|(at, ..)| *at == tier) {
            blocks.iter_mut().filter(|(it, _)| *it == Some(label)).for_each(|it| it.0 = None);
        }
    }

    fn put(&mut self, tier: usize, mut parent: u64, blocks: &[(Option<u64>, [u32; 2])]) {
        for (label, tokens) in blocks {
            let [name] = hash::chain(parent, tokens, BLOCK_SIZE)[..] else { unreachable!() };
            if let Some(label) = label {
                self.names.insert((tier, *label), name);
                let (ready, rest) = core::mem::take(&mut self.waiting)
                    .into_iter()
                    .partition(|(_, parent, _)| parent == label);
                self.waiting = rest;
                for (tier, _, blocks) in ready {
                    self.put(tier, name, &blocks);
                }
            }
            parent = name;
        }
    }
}

fn said(step: &Step) -> Said {
    let names = chain(step.branch);
    let labels = |from: usize, len: usize, variant: u8| -> Vec<u64> {
        names[from..(from + len).min(DEPTH)].iter().map(|name| label(*name, variant)).collect()
    };
    let medium = TIERS[step.tier].1;
    match step.act {
        Act::Store { from, len } => {
            let hashes = labels(from, len, step.variant);
            let range = from * 2..(from + hashes.len()) * 2;
            let parent = from.checked_sub(1).map(|parent| label(names[parent], 0));
            Said::Stored { hashes, parent, tokens: tokens(step.branch)[range].to_vec(), medium }
        }
        Act::StoreByName { from, len } => {
            let hashes = labels(from, len, step.variant);
            Said::Stored { hashes, parent: None, tokens: vec![], medium }
        }
        Act::Remove { from, len } => {
            Said::Removed { hashes: labels(from, len, step.variant), medium }
        }
        Act::Clear => Said::Cleared,
    }
}

fn view(rank: usize) -> EngineView {
    EngineView::new(EngineSource {
        worker: "w".into(),
        rank: u32::try_from(rank).unwrap(),
        model: "m".into(),
        block_size: Some(BLOCK_SIZE),
        names_content: false,
        can_replay: false,
    })
}

fn fleet(index: &Index) -> Fleet {
    let targets: Vec<_> = (0..RANKS)
        .map(|rank| TargetSpec {
            worker: "w".into(),
            rank: u32::try_from(rank).unwrap(),
            model: "m".into(),
            ..TargetSpec::default()
        })
        .collect();
    Fleet::new(&index.roster(), &targets)
}

fn compare(index: &Index, oracles: &[Oracle], query: &mut Query) -> Result<(), TestCaseError> {
    let fleet = fleet(index);
    for branch in 0..4 {
        let names = chain(branch);
        let answer = query.ask(index, &fleet, &Chains { router: &names, ..Chains::default() });
        for (rank, oracle) in oracles.iter().enumerate() {
            let has: Vec<_> = (0..TIERS.len()).map(|tier| oracle.has(tier)).collect();
            let prefix = names.iter().take_while(|name| has[0].contains(name)).count();
            let held = answer.held(rank);
            prop_assert_eq!(held.device_blocks as usize, prefix, "rank {} branch {}", rank, branch);
            let expected: Vec<_> = (prefix..DEPTH)
                .map_while(|at| {
                    let tier = (1..TIERS.len()).find(|tier| has[*tier].contains(&names[at]))?;
                    Some((at, TIERS[tier].0))
                })
                .collect();
            let found: Vec<_> = held
                .below()
                .flat_map(|run| {
                    (run.start as usize..run.end as usize).map(move |at| (at, run.tier))
                })
                .collect();
            prop_assert_eq!(found, expected, "rank {} branch {}", rank, branch);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::cases(80))]

    #[test]
    fn a_question_finds_what_the_events_said(steps in vec(step(), 1..40)) {
        let index = Index::new(Budget::default());
        let mut views: Vec<_> = (0..RANKS).map(view).collect();
        let mut oracles: Vec<_> = (0..RANKS).map(|_| Oracle::default()).collect();
        let mut query = Query::new();
        for (seq, step) in steps.iter().enumerate() {
            let said = said(step);
            let need = views[step.rank].live(
                &index, None, &payload(&said, step.form), Moment(seq as u64));
            prop_assert_eq!(need, None);
            oracles[step.rank].take(step.tier, &said);
            compare(&index, &oracles, &mut query)?;
        }
        for view in &mut views {
            prop_assert_eq!(view.counts().malformed, 0);
            view.leave(&index);
        }
        for tier in CacheTier::ALL {
            prop_assert_eq!(index.entries(tier), 0);
        }
        prop_assert!(index.roster().holders.is_empty());
        prop_assert!(!index.has_cracks(), "whoever leaves takes its marks along");
    }

    #[test]
    fn media_without_a_meaning_give_no_credit(medium in select(&["TPU", "", "CPU_TIER9", "gpu0"][..])) {
        let index = Index::new(Budget::default());
        let mut view = view(0);
        let said = Said::Stored {
            hashes: vec![1], parent: None, tokens: tokens(0)[..2].to_vec(), medium,
        };
        let form = Form { is_map: true, has_digests: false };
        view.live(&index, Some(0), &payload(&said, form), Moment(0));
        prop_assert_eq!(view.counts().unknown_media, 1);
        prop_assert!(CacheTier::ALL.into_iter().all(|tier| index.entries(tier) == 0));
        prop_assert!(!view.is_doubted());
    }
}
