//! A daemon's events against what it holds: moves, restarts, lost messages, snapshots that are read while it works, parts
//! of chunks that several ranks store, in every way a chunk can be named.

use std::collections::BTreeSet;

use crate::spelling::{chain, label};
use kvd_proto::events::snapshot::{put_end, put_header};
use kvd_proto::events::{
    BatchWriter, BlockHash, CacheTier, Chunk, Cleared, Digest, Event, Namespace, Owner, Place,
    Removed, Replayed, SnapshotReader, Stats, Stored, Tally,
};
use kvd_proto::pack::Array;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use router_core::fold::{HostSource, HostView, Moment, Need};
use router_core::index::{
    Budget, Chains, Fleet, Holder, Index, Kind, Name, Owner as Of, Query, TargetSpec,
};

/// How a daemon's entries are named.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Naming {
    /// By the router's hashes; two ranks.
    Router,
    /// A page's hash; one rank, an entry a block.
    Pages,
    /// By keys alone; two ranks.
    Keys,
}

const CHUNKS: usize = 12;
const STRIDE: usize = 4;
const TIERS: [CacheTier; 2] = [CacheTier::L2, CacheTier::L3];

impl Naming {
    fn ranks(self) -> usize {
        if self == Self::Pages { 1 } else { 2 }
    }

    fn stride(self) -> usize {
        if self == Self::Pages { 1 } else { STRIDE }
    }

    fn compat_key(self, rank: usize) -> String {
        if self == Self::Pages { "sg".to_owned() } else { format!("v_tp{rank}of2_pp0of1") }
    }
}

/// An entry: rank, tier (number), chunk.
type Entry = (usize, usize, usize);

#[derive(Clone, Debug)]
enum Step {
    Store(Entry),
    Remove(Entry),
    Move {
        rank: usize,
        chunk: usize,
        up: bool,
    },
    Clear {
        tier: Option<usize>,
    },
    Digests,
    Lose,
    Answer {
        window: usize,
        fails: bool,
    },
    /// A new life, in which what was on disk is there again.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let entry = || (0..2_usize, 0..TIERS.len(), 0..CHUNKS);
    prop_oneof![
        10 => entry().prop_map(Step::Store),
        4 => entry().prop_map(Step::Remove),
        2 => (0..2_usize, 0..CHUNKS, any::<bool>())
            .prop_map(|(rank, chunk, up)| Step::Move { rank, chunk, up }),
        1 => prop::option::of(0..TIERS.len()).prop_map(|tier| Step::Clear { tier }),
        2 => Just(Step::Digests),
        3 => Just(Step::Lose),
        4 => (prop_oneof![Just(1000), 0..4_usize], prop::bool::weighted(0.2))
            .prop_map(|(window, fails)| Step::Answer { window, fails }),
        1 => Just(Step::Restart),
    ]
}

struct Daemon {
    naming: Naming,
    epoch: u64,
    held: BTreeSet<Entry>,
    log: Vec<Vec<u8>>,
}

impl Daemon {
    /// Hands the entry's fields to `then`.
    fn with_fields<T>(&self, (rank, tier, chunk): Entry, then: impl FnOnce(Stored<'_>) -> T) -> T {
        let names = chain(0);
        let blocks = &names[chunk * self.naming.stride()..][..self.naming.stride()];
        let key = [blocks[blocks.len() - 1].to_le_bytes(), (rank as u64).to_le_bytes()].concat();
        let hashes: Vec<_> = blocks.iter().map(|name| BlockHash::Bits(label(*name, 0))).collect();
        let compat_key = self.naming.compat_key(rank);
        let key = if self.naming == Naming::Keys { &key[..8] } else { &key };
        let wire = Chunk { key, blocks: u32::try_from(blocks.len()).unwrap(), bytes: 4096 };
        let engine = (self.naming == Naming::Pages).then_some("sglang");
        then(Stored {
            block_hashes: Array::Slice(if self.naming == Naming::Keys { &[] } else { &hashes }),
            router_hashes: Array::Slice(if self.naming == Naming::Router { blocks } else { &[] }),
            chunk: (self.naming != Naming::Pages).then_some(wire),
            place: Place::of(TIERS[tier]),
            owner: Owner { id: Some("h"), epoch: Some(self.epoch) },
            namespace: Namespace { model: Some("m"), compat_key: Some(&compat_key), engine },
            ..Stored::default()
        })
    }

    fn publish(&mut self, put: impl FnOnce(&Self, &mut BatchWriter<'_>)) {
        let mut out = Vec::new();
        let mut batch = BatchWriter::begin(&mut out, 0.0);
        put(self, &mut batch);
        batch.finish();
        self.log.push(out);
    }

    fn store(&self, entry: Entry, batch: &mut BatchWriter<'_>) {
        self.with_fields(entry, |stored| batch.push(&Event::Stored(stored)));
    }

    fn remove(&self, entry: Entry, batch: &mut BatchWriter<'_>) {
        self.with_fields(entry, |stored| {
            let Stored { block_hashes, chunk, place, owner, namespace, .. } = stored;
            let removed =
                Removed { block_hashes, chunk, place, owner, namespace, ..Removed::default() };
            batch.push(&Event::Removed(removed));
        });
    }

    fn digests(&self, batch: &mut BatchWriter<'_>) {
        for rank in 0..self.naming.ranks() {
            for (number, tier) in TIERS.into_iter().enumerate() {
                let mut tally = Tally::default();
                for entry in self.held.iter().filter(|it| (it.0, it.1) == (rank, number)) {
                    tally.add(self.with_fields(*entry, |stored| {
                        let hashes = stored.block_hashes.iter().map(|hash| hash.bits());
                        let key = stored.chunk.map_or(&[][..], |chunk| chunk.key);
                        Tally::of_row(hashes, key)
                    }));
                }
                let compat_key = self.naming.compat_key(rank);
                batch.push(&Event::Digest(Digest {
                    owner: Owner { id: Some("h"), epoch: Some(self.epoch) },
                    namespace: Namespace {
                        model: Some("m"),
                        compat_key: Some(&compat_key),
                        engine: None,
                    },
                    tier: Some(tier),
                    tally,
                }));
            }
        }
    }
}

struct Scene {
    index: Index,
    daemon: Daemon,
    view: HostView,
    need: Option<Need>,
    /// Messages up to here were sent, or lost.
    sent: usize,
    loses_next: bool,
    /// A snapshot of which the first half was read, and how many rows that were.
    half_read: Option<(SnapshotReader, u64)>,
}

impl Scene {
    fn deliver(&mut self) {
        while self.sent < self.daemon.log.len() {
            let seq = self.sent;
            self.sent += 1;
            if core::mem::take(&mut self.loses_next) {
                continue;
            }
            let payload = &self.daemon.log[seq];
            let need = self.view.live(&self.index, seq as u64, payload, Moment(0));
            self.need = need.or(self.need);
        }
    }

    fn take(&mut self, step: &Step) {
        let naming = self.daemon.naming;
        let fold = |(rank, tier, chunk): Entry| (rank % naming.ranks(), tier, chunk);
        match step {
            Step::Store(entry) => {
                let entry = fold(*entry);
                self.daemon.held.insert(entry);
                self.daemon.publish(|daemon, batch| daemon.store(entry, batch));
            }
            Step::Remove(entry) => {
                let entry = fold(*entry);
                if self.daemon.held.remove(&entry) {
                    self.daemon.publish(|daemon, batch| daemon.remove(entry, batch));
                }
            }
            Step::Move { rank, chunk, up } => {
                let (from, to) = if *up { (1, 0) } else { (0, 1) };
                let (from, to) = (fold((*rank, from, *chunk)), fold((*rank, to, *chunk)));
                if self.daemon.held.remove(&from) {
                    self.daemon.held.insert(to);
                    self.daemon.publish(|daemon, batch| {
                        daemon.store(to, batch);
                        daemon.remove(from, batch);
                    });
                }
            }
            Step::Clear { tier } => {
                self.daemon.held.retain(|entry| tier.is_some_and(|tier| entry.1 != tier));
                let scope = if tier.is_some() {
                    kvd_proto::events::Scope::Tier
                } else {
                    Default::default()
                };
                let cleared = Cleared {
                    scope,
                    tier: tier.map(|tier| TIERS[tier]),
                    owner: Owner { id: Some("h"), epoch: Some(self.daemon.epoch) },
                    ..Cleared::default()
                };
                self.daemon.publish(|_, batch| batch.push(&Event::Cleared(cleared)));
            }
            Step::Digests => self.daemon.publish(|daemon, batch| daemon.digests(batch)),
            Step::Lose => self.loses_next = true,
            Step::Answer { window, fails } => self.answer(*window, *fails),
            Step::Restart => {
                self.daemon.epoch += 1;
                self.daemon.held.retain(|entry| entry.1 == 1);
                self.daemon.log.clear();
                self.sent = 0;
                self.half_read = None;
                self.daemon.publish(|daemon, batch| daemon.digests(batch));
            }
        }
        self.deliver();
    }

    fn answer(&mut self, window: usize, fails: bool) {
        match self.need {
            None => {}
            Some(Need::Replay { .. }) if fails => {
                self.need = self.view.replay_failed(&self.index, Moment(0));
            }
            Some(Need::Replay { from }) => {
                self.need = None;
                let from = usize::try_from(from).unwrap();
                let first = self.daemon.log.len().saturating_sub(window);
                if from < first {
                    self.need = self.view.replayed(&self.index, &Replayed::TooOld, Moment(0));
                    return;
                }
                let mut epoch = Some(self.daemon.epoch);
                for seq in from..self.daemon.log.len() {
                    let payload = &self.daemon.log[seq];
                    let answer =
                        Replayed::Message { seq: seq as u64, payload, epoch: epoch.take() };
                    let need = self.view.replayed(&self.index, &answer, Moment(0));
                    self.need = need.or(self.need);
                }
                let need = self.view.replayed(&self.index, &Replayed::End, Moment(0));
                self.need = need.or(self.need);
            }
            Some(Need::Snapshot) => self.snapshot(fails),
        }
    }

    /// Half of a snapshot, or what is left of it.
    fn snapshot(&mut self, fails: bool) {
        let mut bytes = Vec::new();
        let first_half = |entry: &Entry| entry.2 < CHUNKS / 2;
        let (mut reader, mut rows, is_first) = match self.half_read.take() {
            None => {
                let seq = self.daemon.log.len() as u64 - 1;
                put_header(&mut bytes, self.daemon.epoch, seq, 0.0);
                (SnapshotReader::new(), 0, true)
            }
            Some((reader, rows)) => (reader, rows, false),
        };
        for entry in self.daemon.held.iter().filter(|entry| first_half(entry) == is_first) {
            self.daemon.with_fields(*entry, |stored| stored.encode(&mut bytes));
            rows += 1;
        }
        if !is_first && !fails {
            put_end(&mut bytes, rows);
        }
        let mut need = None;
        for piece in bytes.chunks(100) {
            reader.push(piece);
            while let Some(item) = reader.next_item().unwrap() {
                need = self.view.snapshot(&self.index, &item, Moment(0)).or(need);
            }
        }
        assert!(!reader.is_inside_an_item());
        if is_first {
            assert_eq!(need, None);
            self.half_read = Some((reader, rows));
        } else if fails {
            self.need = self.view.snapshot_failed();
            assert_eq!(self.need, Some(Need::Snapshot));
        } else {
            self.need = need;
        }
    }
}

/// The tier of each block, from the first one on.
fn found(index: &Index, naming: Naming) -> Vec<CacheTier> {
    let target = TargetSpec {
        worker: "w".into(),
        model: "org/m".into(),
        host: Some("h".into()),
        ..TargetSpec::default()
    };
    let fleet = Fleet::new(&index.roster(), &[target]);
    let names = chain(0);
    let labels: Vec<u64> = names.iter().map(|name| label(*name, 0)).collect();
    let keys: Vec<_> = names
        .chunks_exact(STRIDE)
        .map(|blocks| Name::of_chunk_key(&blocks[STRIDE - 1].to_le_bytes()))
        .collect();
    let stride = u32::try_from(STRIDE).unwrap();
    let chains = Chains {
        router: if naming == Naming::Router { &names } else { &[] },
        sglang: if naming == Naming::Pages { &labels } else { &[] },
        chunk_keys: &[(stride, &keys)],
        ..Chains::default()
    };
    let mut query = Query::new();
    let held = query.ask(index, &fleet, &chains).held(0);
    held.below().flat_map(|run| (run.start..run.end).map(move |_| run.tier)).collect()
}

fn expected(daemon: &Daemon) -> Vec<CacheTier> {
    let has = |tier: usize, chunk: usize, rank: usize| daemon.held.contains(&(rank, tier, chunk));
    let ranks = 0..daemon.naming.ranks();
    let chunks = (0..CHUNKS).map_while(|chunk| {
        if ranks.clone().all(|rank| has(0, chunk, rank)) {
            Some(CacheTier::L2)
        } else if ranks.clone().all(|rank| has(0, chunk, rank) || has(1, chunk, rank)) {
            Some(CacheTier::L3)
        } else {
            None
        }
    });
    chunks.flat_map(|tier| core::iter::repeat_n(tier, daemon.naming.stride())).collect()
}

fn scene(naming: Naming, can_replay: bool) -> Scene {
    let source = HostSource { host: "h".into(), can_replay, can_snapshot: true };
    Scene {
        index: Index::new(Budget::default()),
        daemon: Daemon { naming, epoch: 1, held: BTreeSet::new(), log: Vec::new() },
        view: HostView::new(source),
        need: None,
        sent: 0,
        loses_next: false,
        half_read: None,
    }
}

proptest! {
    #![proptest_config(crate::cases(200))]

    #[test]
    fn a_view_comes_to_hold_what_the_daemon_holds(
        naming in select(&[Naming::Router, Naming::Pages, Naming::Keys][..]),
        can_replay in any::<bool>(),
        steps in vec(step(), 1..60),
    ) {
        let mut scene = scene(naming, can_replay);
        for step in &steps {
            scene.take(step);
            if !scene.view.is_doubted() && scene.need.is_none() && !scene.loses_next {
                prop_assert!(found(&scene.index, naming).len() <= naming.stride() * CHUNKS);
            }
        }
        scene.loses_next = false;
        // The first round finds what was lost without a trace, the second one that nothing is left.
        for _ in 0..3 {
            scene.take(&Step::Digests);
            for _ in 0..6 {
                scene.answer(1000, false);
            }
        }
        prop_assert_eq!(scene.need, None);
        prop_assert!(!scene.view.is_doubted());
        prop_assert_eq!(found(&scene.index, naming), expected(&scene.daemon));
        let mismatches = scene.view.counts().digest_mismatches;
        scene.take(&Step::Digests);
        prop_assert_eq!(scene.view.counts().digest_mismatches, mismatches);
        scene.view.leave(&scene.index);
        prop_assert!(scene.index.roster().holders.is_empty());
        prop_assert!(CacheTier::ALL.into_iter().all(|tier| scene.index.entries(tier) == 0));
    }
}

#[test]
fn figures_of_another_life_are_enough_to_forget_the_one_before() {
    let mut scene = scene(Naming::Pages, false);
    scene.take(&Step::Digests);
    scene.answer(0, false);
    scene.answer(0, false);
    scene.take(&Step::Store((0, 0, 0)));
    let figures = |epoch| {
        let mut payload = Vec::new();
        let mut batch = BatchWriter::begin(&mut payload, 0.0);
        let owner = Owner { id: Some("h"), epoch: Some(epoch) };
        batch.push(&Event::Stats(Stats { owner, ..Stats::default() }));
        batch.finish();
        payload
    };
    let mut hear = |epoch| {
        assert!(scene.view.figure(&figures(epoch)));
        let need = scene.view.tick(&scene.index, Moment(0));
        (need, found(&scene.index, Naming::Pages))
    };
    assert_eq!(hear(1), (None, vec![CacheTier::L2]));
    assert_eq!(hear(2), (Some(Need::Snapshot), vec![]));
    // Those of the former life come too late.
    assert_eq!(hear(1), (None, vec![]));
}

#[test]
fn a_missing_part_gives_no_credit_and_parts_in_two_tiers_count_as_the_slower_one() {
    let mut scene = scene(Naming::Router, false);
    scene.take(&Step::Digests);
    scene.answer(0, false);
    scene.answer(0, false);
    scene.take(&Step::Store((0, 0, 0)));
    assert_eq!(found(&scene.index, Naming::Router), []);
    scene.take(&Step::Store((1, 1, 0)));
    assert_eq!(found(&scene.index, Naming::Router), [CacheTier::L3; STRIDE]);
    scene.take(&Step::Move { rank: 1, chunk: 0, up: true });
    assert_eq!(found(&scene.index, Naming::Router), [CacheTier::L2; STRIDE]);
}

#[test]
fn a_tier_without_room_is_left_out_and_comes_back() {
    let empty = Index::new(Budget::default()).bytes();
    let mut scene = scene(Naming::Keys, false);
    scene.index = Index::new(Budget { bytes_max: 4 * empty });
    scene.take(&Step::Digests);
    scene.answer(0, false);
    scene.answer(0, false);
    for rank in 0..2 {
        scene.take(&Step::Store((rank, 1, 0)));
    }
    assert_eq!(found(&scene.index, Naming::Keys), [CacheTier::L3; STRIDE]);
    let device = Holder {
        owner: Of::Rank { worker: "other".into(), rank: 0 },
        tier: CacheTier::Device,
        model: "m".into(),
        family: "".into(),
        kind: Kind::Router,
        stride: 1,
    };
    let device = scene.index.open(device).unwrap();
    let names =
        || (1..9000_u64).map(|n| Name::new(Kind::Router, n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    names().for_each(|name| assert!(scene.index.insert(device, name)));
    assert!(!scene.index.admits(CacheTier::L3));
    scene.take(&Step::Store((0, 1, 1)));
    assert_eq!(found(&scene.index, Naming::Keys), []);
    scene.take(&Step::Digests);
    assert_eq!(scene.need, None, "what is left out is not missing");
    assert_eq!(scene.view.tick(&scene.index, Moment(1)), None);
    names().for_each(|name| scene.index.remove(device, name));
    scene.need = scene.view.tick(&scene.index, Moment(2));
    assert_eq!(scene.need, Some(Need::Snapshot));
    scene.answer(0, false);
    scene.answer(0, false);
    assert_eq!(found(&scene.index, Naming::Keys), [CacheTier::L3; STRIDE]);
    assert_eq!(scene.view.tally("m", "v_tp0of2_pp0of1", CacheTier::L3).count, 2);
}

#[test]
fn a_removal_that_was_never_said_is_found_by_the_digest() {
    let mut scene = scene(Naming::Keys, true);
    scene.take(&Step::Digests);
    scene.answer(0, false);
    scene.answer(0, false);
    for rank in 0..2 {
        scene.take(&Step::Store((rank, 0, 0)));
    }
    scene.daemon.held.remove(&(1, 0, 0));
    assert_eq!(found(&scene.index, Naming::Keys).len(), STRIDE, "nobody knows");
    scene.take(&Step::Digests);
    assert_eq!((scene.need, scene.view.is_doubted()), (Some(Need::Snapshot), true));
    scene.answer(0, false);
    scene.answer(0, false);
    assert_eq!(found(&scene.index, Naming::Keys), []);
    assert!(!scene.view.is_doubted());
}
