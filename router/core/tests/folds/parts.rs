//! Parts of blocks as the ranks of our connectors store them, and the way back from a prompt to the daemon's keys.

use core::ops::Range;

use crate::spelling::chain;
use kvd_proto::events::{
    BatchWriter, BlockHash, CacheTier, Chunk, Event, Namespace, Owner, Place, Removed, Stored,
};
use kvd_proto::pack::Array;
use router_core::fold::{Ahead, HostSource, HostView, Keys, Moment};
use router_core::index::{Budget, Chains, Fleet, Index, Query, TargetSpec};

/// As `shim/python/tests_connector/test_keys.py` has them.
const TWO_RANKS: [&str; 2] = [
    "vllm-1-99d3a35bb3e3d5e3f1dbb1c0a9f1d2b7c0ffee00-tp0of2_pp0of1",
    "vllm-1-99d3a35bb3e3d5e3f1dbb1c0a9f1d2b7c0ffee00-tp1of2_pp0of1",
];
const TWO_STAGES_OF_TWO: [&str; 4] = [
    "vllm-1-5e3f1dbb1c0a9f1d2b7c0ffee0099d3a35bb3e3d-tp0of2_pp0of2_own0011223344556677",
    "vllm-1-5e3f1dbb1c0a9f1d2b7c0ffee0099d3a35bb3e3d-tp1of2_pp0of2_own0011223344556677",
    "vllm-1-5e3f1dbb1c0a9f1d2b7c0ffee0099d3a35bb3e3d-tp0of2_pp1of2_own8899aabbccddeeff",
    "vllm-1-5e3f1dbb1c0a9f1d2b7c0ffee0099d3a35bb3e3d-tp1of2_pp1of2_own8899aabbccddeeff",
];
const WHOLE: &str = "sglang-1-bb1c0a9f1d2b7c0ffee0099d3a35bb3e3d5e3f1d";

/// What one daemon says, and what is made of it.
struct Scene {
    index: Index,
    view: HostView,
    seq: u64,
}

impl Scene {
    fn new() -> Self {
        let source = HostSource { host: "h".into(), can_replay: false, can_snapshot: false };
        let mut view = HostView::new(source);
        assert_eq!(view.begin(), None);
        Self { index: Index::new(Budget::default()), view, seq: 0 }
    }

    fn hear(&mut self, event: Event<'_>) {
        let mut payload = Vec::new();
        let mut batch = BatchWriter::begin(&mut payload, 0.0);
        batch.push(&event);
        batch.finish();
        self.seq += 1;
        assert_eq!(self.view.live(&self.index, self.seq, &payload, Moment(0)), None);
    }

    /// One entry a block: its key is its hash and a group, as the connector has it.
    fn store(&mut self, compat_key: &str, tier: CacheTier, block: usize) {
        with_entry(compat_key, tier, block, |stored| self.hear(Event::Stored(stored)));
    }

    fn remove(&mut self, compat_key: &str, tier: CacheTier, block: usize) {
        with_entry(compat_key, tier, block, |stored| {
            let Stored { block_hashes, chunk, place, owner, namespace, .. } = stored;
            let removed =
                Removed { block_hashes, chunk, place, owner, namespace, ..Removed::default() };
            self.hear(Event::Removed(removed));
        });
    }

    /// Blocks that a worker on the host can load, from the first one on.
    fn loadable(&self) -> u32 {
        let target = TargetSpec {
            worker: "w".into(),
            model: "org/m".into(),
            host: Some("h".into()),
            ..TargetSpec::default()
        };
        let fleet = Fleet::new(&self.index.roster(), &[target]);
        let names = chain(0);
        let mut query = Query::new();
        let answer =
            query.ask(&self.index, &fleet, &Chains { router: &names, ..Chains::default() });
        answer.held(0).below().map(|run| run.end).last().unwrap_or(0)
    }

    fn ahead(&self, blocks: &[Range<u32>]) -> Vec<Keys> {
        let names = chain(0);
        let chains = Chains { router: &names, ..Chains::default() };
        let ahead = Ahead::Blocks { chains: &chains, blocks };
        let mut keys = self.view.keys_ahead(&["other".into(), "org/m".into()], &ahead).unwrap();
        keys.sort_by(|one, other| one.compat_key.cmp(&other.compat_key));
        keys
    }

    fn ahead_of_keys(&self, compat_key: &str, blocks: &[usize]) -> Option<Vec<Keys>> {
        let keys: Vec<Vec<u8>> = blocks.iter().map(|block| key_of(*block)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let mut found =
            self.view.keys_ahead(&["m".into()], &Ahead::Keys { compat_key, keys: &keys })?;
        found.sort_by(|one, other| one.compat_key.cmp(&other.compat_key));
        Some(found)
    }
}

fn key_of(block: usize) -> Vec<u8> {
    [&chain(0)[block].rotate_left(9).to_be_bytes()[..], &[0; 4]].concat()
}

fn with_entry(compat_key: &str, tier: CacheTier, block: usize, then: impl FnOnce(Stored<'_>)) {
    let (routed, key) = ([chain(0)[block]], key_of(block));
    then(Stored {
        block_hashes: Array::Slice(&[BlockHash::Bits(routed[0].rotate_left(5))]),
        router_hashes: Array::Slice(&routed),
        chunk: Some(Chunk { key: &key, blocks: 1, bytes: 4096 }),
        place: Place::of(tier),
        owner: Owner { id: Some("h"), epoch: Some(7) },
        namespace: Namespace { model: Some("m"), compat_key: Some(compat_key), engine: None },
        ..Stored::default()
    });
}

fn of(compat_key: &str, blocks: &[usize]) -> Keys {
    let keys = blocks.iter().map(|block| key_of(*block).into()).collect();
    Keys { model: "m".into(), compat_key: compat_key.into(), keys }
}

#[test]
fn a_block_counts_when_all_ranks_have_stored_their_parts() {
    for ranks in [&TWO_RANKS[..], &TWO_STAGES_OF_TWO] {
        let mut scene = Scene::new();
        for (number, rank) in ranks.iter().enumerate() {
            assert_eq!(scene.loadable(), 0, "{number} of {} parts", ranks.len());
            scene.store(rank, CacheTier::L2, 0);
        }
        assert_eq!(scene.loadable(), 1);
        scene.store(ranks[0], CacheTier::L2, 1);
        assert_eq!(scene.loadable(), 1);
        scene.remove(ranks[1], CacheTier::L2, 0);
        assert_eq!(scene.loadable(), 0);
    }
    // Parts of one engine and parts of another are no whole.
    let mut scene = Scene::new();
    scene.store(TWO_RANKS[0], CacheTier::L2, 0);
    scene.store(&TWO_RANKS[1].replace("99d3", "88d3"), CacheTier::L2, 0);
    assert_eq!(scene.loadable(), 0);
    // Who stores for all ranks stores all of it.
    scene.store(WHOLE, CacheTier::L2, 0);
    assert_eq!(scene.loadable(), 1);
}

#[test]
fn keys_are_found_by_names_rank_by_rank_and_not_where_memory_has_them() {
    let mut scene = Scene::new();
    let empty = scene.index.bytes();
    for (rank, block) in TWO_RANKS.iter().flat_map(|rank| (0..4).map(move |block| (rank, block))) {
        scene.store(rank, CacheTier::L3, block);
    }
    let with_links = scene.index.bytes() - empty;
    assert_eq!(scene.ahead(&[0..2, 3..9]), TWO_RANKS.map(|rank| of(rank, &[0, 1, 3])));
    assert_eq!(scene.ahead(&[]), []);
    assert_eq!(scene.ahead(&[4..9, 9..9]), []);
    // One rank's part is in memory already.
    scene.store(TWO_RANKS[0], CacheTier::L2, 0);
    let some = [of(TWO_RANKS[0], &[1]), of(TWO_RANKS[1], &[0, 1])];
    assert_eq!(scene.ahead(&[0..2, 9..9]), some);
    scene.remove(TWO_RANKS[0], CacheTier::L2, 0);
    // The same entries again, as a snapshot tells them.
    scene.store(TWO_RANKS[0], CacheTier::L3, 0);
    assert_eq!(scene.index.bytes() - empty, with_links);
    scene.remove(TWO_RANKS[0], CacheTier::L3, 1);
    assert_eq!(scene.ahead(&[0..2, 9..9]), [of(TWO_RANKS[0], &[0]), of(TWO_RANKS[1], &[0, 1])]);
    assert!(scene.index.bytes() - empty < with_links);
    scene.view.leave(&scene.index);
    assert_eq!(scene.index.bytes(), empty, "what is gone takes nothing");
}

#[test]
fn keys_of_a_prewarm_go_to_all_ranks_that_have_them_on_disk_only() {
    let mut scene = Scene::new();
    assert_eq!(scene.ahead_of_keys("", &[0]), None, "nothing is known");
    for rank in TWO_RANKS {
        scene.store(rank, CacheTier::L3, 0);
        scene.store(rank, CacheTier::L3, 1);
    }
    scene.store(WHOLE, CacheTier::L3, 1);
    scene.store(TWO_RANKS[0], CacheTier::L2, 1);
    let of_two = vec![of(TWO_RANKS[0], &[0]), of(TWO_RANKS[1], &[0, 1])];
    for rank in TWO_RANKS {
        assert_eq!(scene.ahead_of_keys(rank, &[0, 1, 2]).as_ref(), Some(&of_two));
    }
    let all = [vec![of(WHOLE, &[1])], of_two].concat();
    assert_eq!(scene.ahead_of_keys("", &[0, 1, 2]), Some(all));
    assert_eq!(scene.ahead_of_keys("other", &[0]), Some(Vec::new()));
}
