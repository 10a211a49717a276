//! Events: payloads of engines as they were recorded, our own byte for byte, and what decodes to itself.

#![expect(clippy::unwrap_used, reason = "a test helper fails by panicking")]

use std::collections::BTreeMap;

use kvd_proto::events::figures::Tiers;
use kvd_proto::events::snapshot::{put_end, put_header};
use kvd_proto::events::{
    Batch, BatchWriter, BlockHash, CacheTier, Chunk, Cleared, Digest, Event, ExtraKeys, Namespace,
    Owner, Parent, Place, Reason, Removed, Scope, Shard, Skipped, SnapshotItem, SnapshotReader,
    Stats, Stored, Tally, TierFigures, Token,
};
use kvd_proto::pack::{Array, Wire as _};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const FIRST: u64 = 0x1e0b_2e02_8ef0_71cb;
const SECOND: u64 = 0xefad_121d_154a_b2d6;

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |c: char| u8::try_from(c.to_digit(16).unwrap()).unwrap();
    let digits: Vec<u8> = text.chars().map(digit).collect();
    digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn recorded(name: &str) -> Vec<u8> {
    let file: serde_json::Value =
        serde_json::from_str(include_str!("golden/engine_events.json")).unwrap();
    from_hex(file["payloads"][name].as_str().unwrap())
}

fn bits(hashes: &Array<'_, BlockHash<'_>>) -> Vec<u64> {
    hashes.iter().map(|hash| hash.bits()).collect()
}

/// The one stored event of a recorded payload.
fn stored_of(name: &str, then: impl FnOnce(Stored<'_>, Skipped)) {
    let payload = recorded(name);
    let batch = Batch::decode(&payload).unwrap();
    let mut events = batch.events();
    let Some(Event::Stored(stored)) = events.next() else { panic!("{name}: no stored event") };
    assert_eq!(events.next(), None);
    assert_eq!(bits(&stored.block_hashes), [FIRST, SECOND], "{name}");
    assert_eq!(
        stored.tokens.iter().map(|token| token.0).collect::<Vec<_>>(),
        [1, 2, 3, 4, 5, 6, 7, 8]
    );
    assert_eq!(stored.block_size, 4);
    then(stored, events.skipped());
}

#[test]
fn engines_of_every_release_are_understood() {
    for name in [
        "array with signed hashes",
        "array of an old engine",
        "map with digests",
        "map with pairs of tokens",
    ] {
        stored_of(name, |stored, skipped| {
            assert_eq!((stored.parent, skipped), (Parent::Root, Skipped::default()), "{name}");
            assert_eq!(stored.place.cache_tier(), Some(CacheTier::Device));
        });
    }
    stored_of("array with everything", |stored, skipped| {
        assert_eq!(stored.parent, Parent::Block(BlockHash::Bits(FIRST)));
        assert_eq!((stored.lora_id, stored.lora_name), (Some(3), Some("sql")));
        assert_eq!((stored.group, stored.spec_kind), (Some(2), Some("full_attention")));
        assert_eq!(stored.place.cache_tier(), Some(CacheTier::L2));
        assert_eq!(stored.extra_keys.unwrap().of_block(0).count(), 1);
        assert_eq!(stored.extra_keys.unwrap().of_block(1).count(), 0);
        assert_eq!(skipped.unknown_fields, 2);
    });
    stored_of("map with more than is known", |stored, skipped| {
        assert_eq!(stored.spec_kind, Some("mla_attention"));
        assert_eq!((stored.group, skipped.unknown_fields), (Some(0), 2));
    });
    stored_of("parent that cannot be read", |stored, _| {
        assert_eq!(stored.parent, Parent::Unknown, "and never the root");
    });
}

#[test]
fn removals_and_clears_of_both_kinds() {
    let payload = recorded("removals of both kinds");
    let removed: Vec<_> = Batch::decode(&payload)
        .unwrap()
        .events()
        .map(|event| match event {
            Event::Removed(removed) => {
                assert_eq!(bits(&removed.block_hashes), [FIRST, SECOND]);
                (removed.place.cache_tier(), removed.group)
            }
            other => panic!("{other:?}"),
        })
        .collect();
    let device = (Some(CacheTier::Device), None);
    assert_eq!(removed, [device, (Some(CacheTier::L2), Some(1)), device]);
    let payload = recorded("clears of both kinds");
    let cleared: Vec<_> = Batch::decode(&payload).unwrap().events().collect();
    assert_eq!(cleared, [Event::Cleared(Cleared::default()); 2]);
}

#[test]
fn a_bad_event_does_not_spoil_its_batch() {
    let payload = recorded("what is not known between what is");
    let batch = Batch::decode(&payload).unwrap();
    let mut events = batch.events();
    assert!(matches!(events.next(), Some(Event::Cleared(_))));
    assert!(matches!(events.next(), Some(Event::Removed(_))));
    assert_eq!(events.next(), None);
    let skipped = Skipped { malformed: 4, unknown_types: 2, unknown_fields: 0 };
    assert_eq!((events.skipped(), batch.len()), (skipped, 8));
}

fn chunk() -> Chunk<'static> {
    Chunk { key: b"\x1b\xf9\xb0\x4c\xbf\x79\x63\x00", blocks: 2, bytes: 4096 }
}

const OWNER: Owner<'static> = Owner { id: Some("h1"), epoch: Some(5) };
const NAMESPACE: Namespace<'static> =
    Namespace { model: Some("m"), compat_key: Some("tp0of2_pp0of1"), engine: Some("vllm") };
const FIGURES: [TierFigures; 1] = [TierFigures {
    tier: CacheTier::L3,
    bytes: 1 << 40,
    used: 7,
    read_bw: Some(7e9),
    read_lat_us: None,
    queue_bytes: 3,
}];

/// Our own events, one of each.
fn ours(then: impl FnOnce(&[(&str, Event<'_>)])) {
    let hashes = [BlockHash::Bits(FIRST), BlockHash::Digest(&[7; 32])];
    let stored = Stored {
        block_hashes: Array::Slice(&hashes),
        parent: Parent::Root,
        block_size: 16,
        lora_name: Some("sql"),
        extra_keys: Some(ExtraKeys::Salt("t1")),
        router_hashes: Array::Slice(&[1, u64::MAX]),
        chunk: Some(chunk()),
        shard: Some(Shard { index: 1, count: 2 }),
        place: Place::of(CacheTier::L3),
        owner: OWNER,
        namespace: NAMESPACE,
        reason: Some(Reason::Demote),
        ..Stored::default()
    };
    let removed = Removed {
        chunk: Some(chunk()),
        place: Place::of(CacheTier::L4),
        owner: OWNER,
        namespace: NAMESPACE,
        reason: Some(Reason::Evict),
        ..Removed::default()
    };
    let cleared = Cleared {
        scope: Scope::Tier,
        tier: Some(CacheTier::L2),
        owner: OWNER,
        ..Cleared::default()
    };
    let stats = Stats { owner: OWNER, as_of_seq: 9, tiers: Tiers::Slice(&FIGURES) };
    let digest = Digest {
        owner: OWNER,
        namespace: NAMESPACE,
        tier: Some(CacheTier::L3),
        tally: Tally { count: 2, xor: SECOND },
    };
    then(&[
        ("stored", Event::Stored(stored)),
        ("removed", Event::Removed(removed)),
        ("cleared", Event::Cleared(cleared)),
        ("stats", Event::Stats(stats)),
        ("digest", Event::Digest(digest)),
    ]);
}

#[test]
fn our_events_are_pinned() {
    let pinned: BTreeMap<String, String> =
        serde_json::from_str(include_str!("golden/daemon_events.json")).unwrap();
    ours(|events| {
        let mut out = Vec::new();
        let mut batch = BatchWriter::begin(&mut out, 1.5);
        for (name, event) in events {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            assert_eq!(Some(&to_hex(&bytes)), pinned.get(*name), "{name}");
            batch.push(event);
        }
        batch.finish();
        assert_eq!(Some(&to_hex(&out[..16])), pinned.get("head of a batch"));
        let decoded: Vec<_> = Batch::decode(&out).unwrap().events().collect();
        assert_eq!(decoded, events.iter().map(|(_, event)| *event).collect::<Vec<_>>());
        let mut other = &out[..];
        rmpv::decode::read_value(&mut other).unwrap();
        assert!(other.is_empty(), "another implementation reads the same length");
    });
}

#[test]
fn reading_events_allocates_nothing() {
    let mut out = Vec::new();
    ours(|events| {
        let mut batch = BatchWriter::begin(&mut out, 1.5);
        events.iter().for_each(|(_, event)| batch.push(event));
        batch.finish();
    });
    let mut payloads = vec![out];
    payloads.push(recorded("array with everything"));
    payloads.push(recorded("what is not known between what is"));
    let allocated = allocation_counter::measure(|| {
        for payload in &payloads {
            let batch = Batch::decode(payload).unwrap();
            for event in batch.events() {
                if let Event::Stored(stored) = event {
                    assert!(stored.block_hashes.iter().all(|hash| hash.bits() != 0));
                    assert!(stored.tokens.iter().count() < 10);
                }
            }
        }
    });
    assert_eq!(allocated.count_total, 0);
}

#[test]
fn a_claimed_length_is_not_believed() {
    for claim in [
        &b"\xdd\xff\xff\xff\xff"[..],
        b"\x92\xcb\0\0\0\0\0\0\0\0\xdd\xff\xff\xff\xff",
        b"\x92\x01\x91\x92\xabBlockStored\xdd\xff\xff\xff\xff",
        b"\x92\x01\x91\x81\xa4type\xdb\xff\xff\xff\xff",
    ] {
        let allocated = allocation_counter::measure(|| assert!(Batch::decode(claim).is_err()));
        assert_eq!(allocated.count_total, 0);
    }
}

#[test]
fn a_snapshot_without_an_end_is_seen_to_be_cut() {
    let mut out = Vec::new();
    put_header(&mut out, 5, 9, 1.5);
    Stored { place: Place::of(CacheTier::L2), ..Stored::default() }.encode(&mut out);
    out.extend_from_slice(b"\x81\xa5later\x01");
    put_end(&mut out, 1);
    for cut in 0..=out.len() {
        let mut reader = SnapshotReader::new();
        reader.push(&out[..cut]);
        let mut ended = false;
        let mut count = 0;
        while let Some(item) = reader.next_item().unwrap() {
            match item {
                SnapshotItem::Header { epoch, seq, .. } => assert_eq!((epoch, seq), (5, 9)),
                SnapshotItem::Row(stored) => {
                    assert_eq!(stored.place.cache_tier(), Some(CacheTier::L2));
                }
                SnapshotItem::Skipped => {}
                SnapshotItem::End { count } => ended = count == 1,
            }
            count += 1;
        }
        assert_eq!((ended, count == 4), (cut == out.len(), cut == out.len()));
    }
    let mut reader = SnapshotReader::new();
    reader.push(b"\x01");
    assert!(reader.next_item().is_err());
}

fn hash_parts() -> impl Strategy<Value = Vec<(u64, bool)>> {
    vec((any::<u64>(), any::<bool>()), 0..20)
}

proptest! {
    #[test]
    fn what_is_stored_decodes_to_itself(
        hashes in hash_parts(),
        tokens in vec(any::<u32>(), 0..50),
        routed in vec(any::<u64>(), 0..5),
        texts in vec(option::of("[a-z/é]{0,40}"), 5),
        numbers in (any::<u32>(), option::of(any::<i64>()), option::of(any::<u32>()), option::of(any::<u64>())),
        tier in select(&CacheTier::ALL[..]),
        parent in option::of(option::of(any::<u64>())),
    ) {
        let digests: Vec<[u8; 32]> = hashes.iter().map(|(bits, _)| {
            let mut digest = [1; 32];
            digest[24..].copy_from_slice(&bits.to_be_bytes());
            digest
        }).collect();
        let named: Vec<_> = hashes.iter().zip(&digests).map(|((bits, is_digest), digest)| {
            if *is_digest { BlockHash::Digest(digest) } else { BlockHash::Bits(*bits) }
        }).collect();
        let tokens: Vec<_> = tokens.into_iter().map(Token).collect();
        let text = |at: usize| texts[at].as_deref();
        let stored = Stored {
            block_hashes: Array::Slice(&named),
            parent: match parent {
                None => Parent::Unknown,
                Some(None) => Parent::Root,
                Some(Some(bits)) => Parent::Block(BlockHash::Bits(bits)),
            },
            tokens: Array::Slice(&tokens),
            block_size: numbers.0,
            lora_id: numbers.1,
            lora_name: text(0),
            group: numbers.2,
            spec_kind: text(1),
            router_hashes: Array::Slice(&routed),
            place: Place::of(tier),
            owner: Owner { id: text(2), epoch: numbers.3 },
            namespace: Namespace { model: text(3), compat_key: text(4), engine: None },
            ..Stored::default()
        };
        let mut out = Vec::new();
        let mut batch = BatchWriter::begin(&mut out, 0.0);
        batch.push(&Event::Stored(stored));
        batch.finish();
        let batch = Batch::decode(&out).unwrap();
        let mut events = batch.events();
        prop_assert_eq!(events.next(), Some(Event::Stored(stored)));
        prop_assert_eq!(events.skipped(), Skipped::default());
        let found: Vec<u64> = stored.block_hashes.iter().map(|hash| hash.bits()).collect();
        prop_assert_eq!(found, hashes.iter().map(|(bits, _)| *bits).collect::<Vec<_>>());
    }

    #[test]
    fn bytes_that_are_no_events_are_refused_without_a_panic(bytes in vec(any::<u8>(), 0..300)) {
        if let Ok(batch) = Batch::decode(&bytes) {
            batch.events().for_each(drop);
        }
        let mut reader = SnapshotReader::new();
        reader.push(&bytes);
        while let Ok(Some(_)) = reader.next_item() {}
    }

    #[test]
    fn a_tally_depends_on_the_rows_and_not_on_their_order(rows in vec((vec(any::<u64>(), 0..4), vec(any::<u8>(), 0..9)), 0..20)) {
        let tally = |rows: &mut dyn Iterator<Item = &(Vec<u64>, Vec<u8>)>| {
            let mut tally = Tally::default();
            rows.for_each(|(hashes, key)| tally.add(Tally::of_row(hashes.iter().copied(), key)));
            tally
        };
        let mut all = tally(&mut rows.iter());
        prop_assert_eq!(all, tally(&mut rows.iter().rev()));
        for (hashes, key) in &rows {
            all.take_out(Tally::of_row(hashes.iter().copied(), key));
        }
        prop_assert_eq!(all, Tally::default());
    }
}

#[test]
fn a_salt_is_sent_as_the_first_blocks_only_key() {
    let mut out = Vec::new();
    ExtraKeys::Salt("t1").put(&mut out);
    assert_eq!(out, b"\x91\x91\xa2t1");
}
