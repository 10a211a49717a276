//! What goes into a block's name besides its tokens, and what becomes of blocks whose name can't be told.

use kvd_proto::events::{
    BatchWriter, BlockHash, CacheTier, Cleared, Event, ExtraKeys, Owner as Whose, Parent, Place,
    Removed, SnapshotItem, Stored, Token,
};
use kvd_proto::pack::{Array, Reader, Value};
use router_core::fold::{EngineSource, EngineView, HostSource, HostView, Moment, Need};
use router_core::hash::{chain, root, sglang};
use router_core::index::{Budget, Chains, Fleet, Index, Query, TargetSpec};

const TOKENS: [Token; 4] = [Token(1), Token(2), Token(3), Token(4)];
const HASHES: [BlockHash<'static>; 1] = [BlockHash::Bits(77)];

fn view(names_content: bool) -> EngineView {
    EngineView::new(EngineSource {
        worker: "w".into(),
        rank: 0,
        model: "m".into(),
        block_size: Some(4),
        names_content,
        can_replay: false,
    })
}

fn payload(events: &[Event<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut batch = BatchWriter::begin(&mut out, 0.0);
    events.iter().for_each(|event| batch.push(event));
    batch.finish();
    out
}

fn stored() -> Stored<'static> {
    Stored {
        block_hashes: Array::Slice(&HASHES),
        parent: Parent::Root,
        tokens: Array::Slice(&TOKENS),
        block_size: 4,
        place: Place { medium: Some("GPU"), ..Place::default() },
        ..Stored::default()
    }
}

fn target() -> TargetSpec {
    TargetSpec {
        worker: "w".into(),
        model: "m".into(),
        host: Some("h".into()),
        pools: vec!["p".into()],
        ..TargetSpec::default()
    }
}

fn prefix(index: &Index, chains: &Chains<'_>) -> u32 {
    let fleet = Fleet::new(&index.roster(), &[target()]);
    Query::new().ask(index, &fleet, chains).held(0).device_blocks
}

/// The one block that `stored` brings is found by this name.
fn is_found_by(stored: Stored<'_>, name: u64) -> bool {
    let index = Index::new(Budget::default());
    view(false).live(&index, None, &payload(&[Event::Stored(stored)]), Moment(0));
    prefix(&index, &Chains { router: &[name], ..Chains::default() }) == 1
}

#[test]
fn adapter_salt_and_media_change_the_name() {
    let plain = chain(0, &[1, 2, 3, 4], 4)[0];
    assert!(is_found_by(stored(), plain));
    let adapted = Stored { lora_name: Some("sql"), lora_id: Some(1), ..stored() };
    assert!(is_found_by(adapted, 0x73d9_e46c_cec1_5134));
    assert!(!is_found_by(adapted, plain), "an adapter's blocks are nobody else's");
    let numbered = Stored { lora_id: Some(7), ..stored() };
    assert!(is_found_by(numbered, chain(root(Some("7"), None), &[1, 2, 3, 4], 4)[0]));
    let salted = Stored { extra_keys: Some(ExtraKeys::Salt("t1")), ..stored() };
    assert!(is_found_by(salted, 0xff51_3499_6972_a6d8));
    let Ok(Value::Array(items)) = Reader::new(b"\x91\x91\x92\xa7img-abc\x00").value() else {
        panic!("a list")
    };
    let seen = Stored { extra_keys: Some(ExtraKeys::Frame(items)), ..stored() };
    assert!(is_found_by(seen, 0x5ba1_37c5_e93c_8490));
    let Ok(Value::Array(items)) = Reader::new(b"\x91\x91\xa3sql").value() else { panic!("a list") };
    let named_twice = Stored { extra_keys: Some(ExtraKeys::Frame(items)), ..adapted };
    assert!(is_found_by(named_twice, 0x73d9_e46c_cec1_5134), "the adapter counts once");
}

#[test]
fn windows_and_blocks_elsewhere_give_no_credit() {
    let plain = chain(0, &[1, 2, 3, 4], 4)[0];
    assert!(is_found_by(Stored { spec_kind: Some("mla_attention"), ..stored() }, plain));
    assert!(!is_found_by(Stored { spec_kind: Some("sliding_window"), ..stored() }, plain));
    let elsewhere = Place { locality: Some("REMOTE"), ..stored().place };
    assert!(!is_found_by(Stored { place: elsewhere, ..stored() }, plain));
    assert!(!is_found_by(Stored { parent: Parent::Unknown, ..stored() }, plain));
}

#[test]
fn the_events_block_size_wins() {
    let index = Index::new(Budget::default());
    let mut view = view(false);
    let hashes = [BlockHash::Bits(1), BlockHash::Bits(2)];
    let smaller = Stored { block_hashes: Array::Slice(&hashes), block_size: 2, ..stored() };
    view.live(&index, None, &payload(&[Event::Stored(smaller)]), Moment(0));
    assert_eq!((view.block_size(), view.counts().block_sizes), (Some(2), 1));
    let names = chain(0, &[1, 2, 3, 4], 2);
    assert_eq!(prefix(&index, &Chains { router: &names, ..Chains::default() }), 2);
}

#[test]
fn groups_are_apart_and_a_block_leaves_with_its_last_name() {
    let index = Index::new(Budget::default());
    let mut view = view(false);
    let name = chain(0, &[1, 2, 3, 4], 4);
    let chains = Chains { router: &name, ..Chains::default() };
    let of = |group| Event::Stored(Stored { group, ..stored() });
    view.live(&index, None, &payload(&[of(Some(0)), of(Some(1)), of(Some(1))]), Moment(0));
    let removed = |group| {
        let place = stored().place;
        Event::Removed(Removed {
            block_hashes: Array::Slice(&HASHES),
            group,
            place,
            ..Removed::default()
        })
    };
    view.live(&index, None, &payload(&[removed(Some(1))]), Moment(0));
    assert_eq!(prefix(&index, &chains), 1);
    view.live(&index, None, &payload(&[removed(Some(0))]), Moment(0));
    assert_eq!(prefix(&index, &chains), 0);
    view.live(&index, None, &payload(&[of(Some(2)), removed(None)]), Moment(0));
    assert_eq!(prefix(&index, &chains), 0, "older engines name no group when they remove");
    let cleared = Event::Cleared(Cleared::default());
    view.live(&index, None, &payload(&[of(None), cleared]), Moment(0));
    assert_eq!(prefix(&index, &chains), 0);
}

#[test]
fn blocks_that_cannot_be_paired_leave_by_time() {
    let index = Index::new(Budget::default());
    let mut view = view(false);
    let odd = Stored { block_size: 2, ..stored() };
    view.live(&index, None, &payload(&[Event::Stored(odd)]), Moment(0));
    let names = chain(0, &[1, 2, 3, 4], 2);
    let chains = Chains { router: &names, ..Chains::default() };
    assert_eq!((prefix(&index, &chains), view.counts().unpaired), (2, 2));
    view.tick(&index, Moment(599_999));
    assert_eq!(prefix(&index, &chains), 2);
    view.tick(&index, Moment(600_000));
    assert_eq!(prefix(&index, &chains), 0);
    assert!(!index.has_cracks());
}

#[test]
fn pages_of_sglang_are_found_though_their_parent_was_never_seen() {
    let index = Index::new(Budget::default());
    let mut view = view(true);
    let tokens: Vec<u32> = (0..16).collect();
    let pages = sglang::chain(&tokens, 4);
    let event = |page: usize| {
        let hash = [BlockHash::Bits(pages[page])];
        let tokens: Vec<_> = tokens[page * 4..page * 4 + 4].iter().copied().map(Token).collect();
        let parent = page.checked_sub(1).map(|parent| BlockHash::Bits(pages[parent]));
        let stored = Stored {
            block_hashes: Array::Slice(&hash),
            parent: parent.map_or(Parent::Root, Parent::Block),
            tokens: Array::Slice(&tokens),
            ..stored()
        };
        payload(&[Event::Stored(stored)])
    };
    let names = chain(0, &tokens, 4);
    let chains = Chains { router: &names, sglang: &pages, ..Chains::default() };
    for page in [1, 2] {
        view.live(&index, None, &event(page), Moment(0));
    }
    assert_eq!(prefix(&index, &chains), 0, "the first page is missing");
    view.live(&index, None, &event(0), Moment(0));
    assert_eq!(prefix(&index, &chains), 3);
    let without = Chains { sglang: &[], ..chains };
    assert_eq!(prefix(&index, &without), 3, "and now by tokens, too");
    let hash = [BlockHash::Bits(pages[1])];
    let place = stored().place;
    let removed = Removed { block_hashes: Array::Slice(&hash), place, ..Removed::default() };
    view.live(&index, None, &payload(&[Event::Removed(removed)]), Moment(0));
    assert_eq!((prefix(&index, &chains), prefix(&index, &without)), (1, 1));
    view.leave(&index);
    assert!(!index.has_cracks() && index.roster().holders.is_empty());
}

#[test]
fn what_an_earlier_life_left_in_a_pool_stays_and_is_worth_half() {
    let index = Index::new(Budget::default());
    let mut view =
        HostView::new(HostSource { host: "h".into(), can_replay: false, can_snapshot: true });
    let whose = |id, epoch| Whose { id: Some(id), epoch: Some(epoch) };
    let of = |tier, hash: &'static [u64; 1], owner| {
        Event::Stored(Stored {
            block_hashes: Array::Slice(&HASHES),
            router_hashes: Array::Slice(hash),
            place: Place::of(tier),
            owner,
            ..Stored::default()
        })
    };
    let snapshot = |view: &mut HostView, epoch, seq| {
        let header = SnapshotItem::Header { epoch, seq, timestamp: 0.0 };
        assert_eq!(view.snapshot(&index, &header, Moment(0)), None);
        let need = view.snapshot(&index, &SnapshotItem::End { count: 0 }, Moment(0));
        assert_eq!(need, None);
    };
    assert_eq!(view.begin(), Some(Need::Snapshot));
    snapshot(&mut view, 1, 0);
    let events = [of(CacheTier::L2, &[11], whose("h", 1)), of(CacheTier::L4, &[12], whose("p", 1))];
    assert_eq!(view.live(&index, 1, &payload(&events), Moment(0)), None);
    let runs = |names: &[u64]| {
        let fleet = Fleet::new(&index.roster(), &[TargetSpec { model: "".into(), ..target() }]);
        let chains = Chains { router: names, ..Chains::default() };
        let mut query = Query::new();
        let runs: Vec<_> = query
            .ask(&index, &fleet, &chains)
            .held(0)
            .below()
            .map(|run| (run.tier, run.credit))
            .collect();
        runs
    };
    assert_eq!(runs(&[11, 12]), [(CacheTier::L2, 1.0), (CacheTier::L4, 1.0)]);
    // Another life.
    let events = [of(CacheTier::L3, &[13], whose("h", 2))];
    assert_eq!(view.live(&index, 0, &payload(&events), Moment(0)), Some(Need::Snapshot));
    assert_eq!((runs(&[11]), runs(&[12])), (vec![], vec![(CacheTier::L4, 0.5)]));
    assert_eq!((view.epoch(), view.counts().restarts), (Some(2), 1));
    snapshot(&mut view, 2, 0);
    assert_eq!(runs(&[12]), [], "the snapshot did not have it");
    assert!(!view.is_doubted());
}
