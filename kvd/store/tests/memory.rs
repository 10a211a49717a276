//! What a row costs in memory, and that the hot calls allocate nothing.

use allocation_counter::measure;
use kvd_proto::block_key::Namespace;
use kvd_proto::column::KeyColumnBuf;
use kvd_proto::ids::{LeaseId, SessionId};
use kvd_proto::retention::Retention;
use kvd_store::{
    Commit, CommitRules, Effects, Found, Held, Hold, Ids, Input, Keys, Outcome, Peer, Store,
    StoreConfig, Timestamp, Writer,
};

const ROWS: u64 = 1_000_000;
const ROW_BYTES_MAX: u64 = 160;
const FIXED_BYTES_MAX: u64 = 64 << 20;
const SESSION: SessionId = SessionId(1);
const NAMESPACE: Namespace<'static> = Namespace { model: "m", compat_key: "c" };

fn key(number: u64) -> [u8; 32] {
    let mut key = [0x5a; 32];
    key[..8].copy_from_slice(&number.to_le_bytes());
    key
}

fn store_row(store: &mut Store, effects: &mut Effects, number: u64) {
    let (now, class) = (Timestamp(number), Retention::Short);
    let reserve = Input::Reserve {
        session: SESSION,
        len_bytes: 64,
        class: Some(class),
        writer: Writer::Client,
    };
    store.apply(reserve, now, effects);
    let Outcome::Reserved(Ok(granted)) = effects.outcome else {
        panic!("{:?}", effects.outcome);
    };
    let commit = Commit {
        session: SESSION,
        ticket: granted.ticket,
        namespace: NAMESPACE,
        key: &key(number),
        len_bytes: 64,
        retention: class,
        ttl_ms: None,
        lineage: None,
        checksum: None,
        rules: CommitRules::Lease,
    };
    store.apply(Input::Commit(commit), now, effects);
    assert_eq!(effects.outcome, Outcome::Committed(Ok(())));
}

/// 64 random keys: leases taken and given back. Nanoseconds are not looked at here.
fn fetch_64(store: &mut Store, effects: &mut Effects, keys: Keys<'_>, leases: &mut Vec<LeaseId>) {
    let hold = Hold::Lease;
    let fetch = Input::Fetch { session: SESSION, namespace: NAMESPACE, keys, prefix: true, hold };
    store.apply(fetch, Timestamp(ROWS), effects);
    leases.clear();
    for found in &effects.found {
        let Found::Hit(hit) = found else { panic!("{found:?}") };
        let Held::Lease(lease) = hit.held else { panic!("{hit:?}") };
        leases.push(lease);
    }
    assert_eq!(leases.len(), 64);
    let release = Input::Release { session: SESSION, leases: Ids::Slice(leases) };
    store.apply(release, Timestamp(ROWS), effects);
}

fn filled_store(effects: &mut Effects) -> Store {
    let arena_bytes = 2 * 128 * ROWS;
    let mut store = Store::new(StoreConfig::new(arena_bytes, arena_bytes));
    store.apply(Input::ArenaReady { bytes: arena_bytes }, Timestamp(0), effects);
    let open = Input::Open { session: SESSION, peer: Peer::Watched, process: None };
    store.apply(open, Timestamp(0), effects);
    for number in 0..ROWS {
        store_row(&mut store, effects, number);
    }
    store
}

#[test]
fn a_row_costs_160_bytes_and_a_hit_no_allocation() {
    let mut effects = Effects::default();
    let mut filled = None;
    let cost = measure(|| filled = Some(filled_store(&mut effects)));
    let mut store = filled.unwrap();
    let bytes = u64::try_from(cost.bytes_current).unwrap();
    assert_eq!(store.stats().entries, ROWS);
    let per_row = bytes as f64 / ROWS as f64;
    println!("{bytes} bytes for {ROWS} rows, {per_row:.1} each, all tables included");
    assert!(bytes <= ROWS * ROW_BYTES_MAX + FIXED_BYTES_MAX, "{per_row:.1} bytes per row");

    let mut packed = KeyColumnBuf::new();
    for index in 0..64 {
        packed.push(&key(index * 15_485_863 % ROWS)).unwrap();
    }
    let keys = Keys::column(packed.as_column());
    let mut leases = Vec::new();
    fetch_64(&mut store, &mut effects, keys, &mut leases);
    let cost = measure(|| fetch_64(&mut store, &mut effects, keys, &mut leases));
    assert_eq!(cost.count_total, 0);
}
