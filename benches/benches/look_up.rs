//! What the store takes for 64 hits at a million rows: leases taken and given back, keys all over the store; without a
//! ledger, and with one that is written.

#![expect(clippy::expect_used, reason = "a bench that cannot store has nothing to measure")]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use kvd_benches::keys::{self, Key, NAMESPACE};
use kvd_client::Retention;
use kvd_proto::ids::{LeaseId, SessionId};
use kvd_store::{
    Commit, CommitRules, Effects, Found, Held, Hold, Ids, Input, Keys, LedgerLayout, Outcome, Peer,
    Store, StoreConfig, Timestamp, Writer,
};

const ROWS: u64 = 1_000_000;
const KEYS: usize = 64;
const SESSION: SessionId = SessionId(1);
const NOW: Timestamp = Timestamp(1);

const ARENA_BYTES: u64 = ROWS * 256;

/// Where the ledger's words go.
struct Ledger(Vec<u64>);

impl Ledger {
    fn new(layout: Option<LedgerLayout>) -> Self {
        let words = layout.map_or(0, |layout| layout.bytes() / 8);
        Self(vec![0; usize::try_from(words).expect("an address")])
    }

    fn store(&mut self, effects: &Effects) {
        for write in effects.ledger.iter() {
            let at = usize::try_from(write.offset / 8).expect("an address");
            self.0[at..at + write.words.len()].copy_from_slice(write.words);
        }
    }
}

fn filled(effects: &mut Effects, ledger: Option<LedgerLayout>) -> Store {
    let arena_bytes = ARENA_BYTES;
    let mut config = StoreConfig::new(arena_bytes, arena_bytes);
    config.ledger = ledger;
    let mut store = Store::new(config);
    store.apply(Input::ArenaReady { bytes: arena_bytes }, NOW, effects);
    store.apply(Input::Open { session: SESSION, peer: Peer::Watched, process: None }, NOW, effects);
    for number in 0..ROWS {
        let (class, writer) = (Some(Retention::Short), Writer::Client);
        let reserve = Input::Reserve { session: SESSION, len_bytes: 64, class, writer };
        store.apply(reserve, NOW, effects);
        let Outcome::Reserved(granted) = effects.outcome else { continue };
        let commit = Commit {
            session: SESSION,
            ticket: granted.expect("room").ticket,
            namespace: NAMESPACE,
            key: &keys::key(number),
            len_bytes: 64,
            retention: Retention::Short,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Lease,
        };
        store.apply(Input::Commit(commit), NOW, effects);
    }
    store
}

fn look_up(criterion: &mut Criterion) {
    look_up_with(criterion, "store: lease 64 of a million and give back", None);
    let rows = u32::try_from(ROWS).expect("a small number");
    let layout = LedgerLayout { rows, ..LedgerLayout::for_arena(ARENA_BYTES, 64) };
    let name = "store: lease 64 of a million and give back, with a ledger";
    look_up_with(criterion, name, Some(layout));
}

fn look_up_with(criterion: &mut Criterion, name: &str, layout: Option<LedgerLayout>) {
    let mut effects = Effects::default();
    let mut store = filled(&mut effects, layout);
    let mut ledger = Ledger::new(layout);
    let order = keys::shuffled(usize::try_from(ROWS).expect("a small number"), 1);
    let mut batches = order.chunks_exact(KEYS).cycle();
    let mut next = || -> Vec<Key> {
        batches.next().into_iter().flatten().map(|number| keys::key(*number as u64)).collect()
    };
    let mut leases: Vec<LeaseId> = Vec::with_capacity(KEYS);
    criterion.bench_function(name, |bencher| {
        bencher.iter_batched(
            &mut next,
            |keys| {
                let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
                let fetch = Input::Fetch {
                    session: SESSION,
                    namespace: NAMESPACE,
                    keys: Keys::slices(&keys),
                    prefix: false,
                    hold: Hold::Lease,
                };
                store.apply(fetch, NOW, &mut effects);
                ledger.store(&effects);
                leases.clear();
                leases.extend(effects.found.iter().filter_map(|found| match found {
                    Found::Hit(hit) => match hit.held {
                        Held::Lease(lease) => Some(lease),
                        Held::HandOut => None,
                    },
                    Found::Loading | Found::Miss(_) => None,
                }));
                assert_eq!(leases.len(), KEYS, "every row is there");
                let release = Input::Release { session: SESSION, leases: Ids::Slice(&leases) };
                store.apply(release, NOW, &mut effects);
                ledger.store(&effects);
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, look_up);
criterion_main!(benches);
