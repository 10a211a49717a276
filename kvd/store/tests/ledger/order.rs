//! What was used last goes last, after a restart, too; and what little of everything looks like in bytes.

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::SessionId;
use kvd_proto::retention::Retention;
use kvd_store::{
    Commit, CommitRules, Effects, Found, Held, Hold, Ids, Input, Keys, Outcome, Peer, ProcessName,
    RowCursor, Store, Timestamp, Writer,
};

use crate::image;
use crate::life::{ARENA, adopt, config};
use crate::random::Random;

const SESSION: SessionId = SessionId(1);
const NAMESPACE: Namespace<'static> = Namespace { model: "m", compat_key: "" };
const NOW: Timestamp = Timestamp(0);

struct Desk {
    store: Store,
    image: Vec<u8>,
    effects: Effects,
}

impl Desk {
    fn new() -> Self {
        let (store, image) = (Store::new(config()), image::fresh(ARENA, image::LAYOUT));
        let mut desk = Self { store, image, effects: Effects::default() };
        desk.apply(Input::ArenaReady { bytes: ARENA });
        let process = Some(ProcessName { pid: 7, started: 8 });
        desk.apply(Input::Open { session: SESSION, peer: Peer::Watched, process });
        desk
    }

    fn apply(&mut self, input: Input<'_>) {
        self.store.apply(input, NOW, &mut self.effects);
        image::store_all(&mut self.image, &self.effects.ledger);
    }

    fn put(&mut self, session: SessionId, key: &[u8], class: Retention) {
        let (len_bytes, writer) = (4000, Writer::Client);
        self.apply(Input::Reserve { session, len_bytes, class: Some(class), writer });
        let Outcome::Reserved(Ok(granted)) = self.effects.outcome else {
            panic!("{:?}", self.effects.outcome);
        };
        self.apply(Input::Commit(Commit {
            session,
            ticket: granted.ticket,
            namespace: NAMESPACE,
            key,
            len_bytes,
            retention: class,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Lease,
        }));
    }

    fn touch(&mut self, key: &[u8]) {
        let (namespace, keys, hold) = (NAMESPACE, Keys::one(key), Hold::Lease);
        self.apply(Input::Fetch { session: SESSION, namespace, keys, prefix: false, hold });
        let Found::Hit(hit) = self.effects.found[0] else { panic!("{:?}", self.effects.found) };
        let Held::Lease(lease) = hit.held else { panic!("{hit:?}") };
        self.apply(Input::Release { session: SESSION, leases: Ids::Slice(&[lease]) });
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.store.rows(RowCursor(0), 1000).0.into_iter().map(|row| row.key).collect()
    }
}

#[test]
fn the_order_of_eviction_outlives_the_daemon() {
    let mut desk = Desk::new();
    let mut expected: Vec<Vec<u8>> = (0..40_u8).map(|key| vec![key; 30]).collect();
    for key in &expected {
        desk.put(SESSION, key, Retention::Short);
    }
    let mut random = Random(3);
    for _ in 0..200 {
        let at = random.below(40) as usize;
        let key = expected.remove(at);
        desk.touch(&key);
        expected.push(key);
    }
    let (store, adopted) = adopt(&desk.image, 0, &mut desk.effects).unwrap();
    assert_eq!((adopted.rows, adopted.next_session), (40, 2));
    assert!(adopted.sessions.is_empty(), "it holds nothing and its connection is gone");
    image::store_all(&mut desk.image, &desk.effects.ledger);
    desk.store = store;
    let session = SessionId(2);
    desk.apply(Input::Open { session, peer: Peer::Watched, process: None });
    let mut left = desk.keys();
    let mut gone = Vec::new();
    for key in 100..200_u8 {
        desk.put(session, &[key], Retention::Long);
        let now = desk.keys();
        gone.extend(left.iter().filter(|key| !now.contains(key)).cloned());
        left = now;
        if gone.len() == 40 {
            break;
        }
    }
    assert_eq!(gone, expected);
}

/// Whoever changes the format on purpose raises its version and keeps a reader of the one before.
#[test]
fn what_is_written_stays_what_it_is() {
    let mut desk = Desk::new();
    desk.put(SESSION, b"short", Retention::Short);
    desk.put(SESSION, &[b'k'; 200], Retention::Long);
    desk.touch(b"short");
    let (namespace, keys, hold) = (NAMESPACE, Keys::one(b"short"), Hold::HandOut);
    desk.apply(Input::Fetch { session: SESSION, namespace, keys, prefix: false, hold });
    let (class, writer) = (Some(Retention::Short), Writer::Client);
    desk.apply(Input::Reserve { session: SESSION, len_bytes: 66_000, class, writer });
    let sum = desk.image.iter().fold(0xcbf2_9ce4_8422_2325, |sum: u64, &byte| {
        (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    assert_eq!(sum, 0x4a0a_202f_7c0b_d0e8, "another ledger was written");
}
