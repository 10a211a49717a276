//! What a successor takes to adopt a million rows from a ledger.

#![expect(clippy::expect_used, reason = "a bench that cannot store has nothing to measure")]

use std::collections::BTreeSet;

use criterion::{Criterion, criterion_group, criterion_main};
use kvd_benches::keys::{self, NAMESPACE};
use kvd_client::Retention;
use kvd_proto::ids::SessionId;
use kvd_store::{
    Commit, CommitRules, Effects, Input, LedgerHeader, LedgerLayout, Outcome, Peer, Store,
    StoreConfig, Timestamp, Writer,
};

const ROWS: u32 = 1_000_000;
const SESSION: SessionId = SessionId(1);
const NOW: Timestamp = Timestamp(0);

fn config() -> StoreConfig {
    let arena_bytes = u64::from(ROWS) * 256;
    let mut config = StoreConfig::new(arena_bytes, arena_bytes);
    let layout = LedgerLayout::for_arena(arena_bytes, 64);
    config.ledger = Some(LedgerLayout { rows: ROWS, ..layout });
    config
}

/// A ledger in plain memory.
fn fresh(config: &StoreConfig) -> Vec<u8> {
    let layout = config.ledger.expect("a layout");
    let (arena_id, arena_bytes, epoch) = ([1; 16], config.arena_bytes, 1);
    let mut image = LedgerHeader { arena_id, arena_bytes, epoch, layout }.encode();
    image.resize(usize::try_from(layout.bytes()).expect("an address"), 0);
    image
}

fn apply(store: &mut Store, image: &mut [u8], effects: &mut Effects, input: Input<'_>) {
    store.apply(input, NOW, effects);
    for write in effects.ledger.iter() {
        let start = usize::try_from(write.offset).expect("an address");
        for (bytes, word) in image[start..].chunks_exact_mut(8).zip(write.words) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
    }
}

fn filled(config: StoreConfig, effects: &mut Effects) -> Vec<u8> {
    let (mut store, mut image) = (Store::new(config), fresh(&config));
    let ready = Input::ArenaReady { bytes: config.arena_bytes };
    apply(&mut store, &mut image, effects, ready);
    let open = Input::Open { session: SESSION, peer: Peer::Watched, process: None };
    apply(&mut store, &mut image, effects, open);
    for number in 0..ROWS {
        let (class, writer) = (Some(Retention::Short), Writer::Client);
        let reserve = Input::Reserve { session: SESSION, len_bytes: 64, class, writer };
        apply(&mut store, &mut image, effects, reserve);
        let Outcome::Reserved(granted) = effects.outcome else { continue };
        let commit = Commit {
            session: SESSION,
            ticket: granted.expect("room").ticket,
            namespace: NAMESPACE,
            key: &keys::key(number.into()),
            len_bytes: 64,
            retention: Retention::Short,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Lease,
        };
        apply(&mut store, &mut image, effects, Input::Commit(commit));
    }
    image
}

fn adopt(criterion: &mut Criterion) {
    let (config, mut effects) = (config(), Effects::default());
    let image = filled(config, &mut effects);
    let none = BTreeSet::new();
    let mut group = criterion.benchmark_group("store");
    group.sample_size(10);
    group.bench_function("adopt a million rows", |bencher| {
        bencher.iter_with_large_drop(|| {
            let adopted =
                Store::adopt(config, image.as_slice(), &none, NOW, &mut effects).expect("adopted");
            assert_eq!(adopted.1.rows, u64::from(ROWS), "every row is back");
            adopted
        });
    });
    group.finish();
}

criterion_group!(benches, adopt);
criterion_main!(benches);
