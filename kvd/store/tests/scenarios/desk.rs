//! A store with one session and short ways to drive it.

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::{LeaseId, SessionId, TicketId};
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{
    Commit, CommitRules, Effects, Found, Granted, Held, Hit, Hold, Ids, Input, Keys, Located,
    Outcome, Peer, ProcessName, Stats, Store, StoreConfig, Timestamp, Writer,
};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const ONE: SessionId = SessionId(1);
pub(crate) const NAMESPACE: Namespace<'static> = Namespace { model: "m", compat_key: "0" };

pub(crate) struct Desk {
    pub(crate) store: Store,
    pub(crate) effects: Effects,
    pub(crate) now: u64,
}

impl Desk {
    /// All of the arena is ready, session 1 is open and watched.
    pub(crate) fn new(config: StoreConfig) -> Self {
        let mut desk = Self { store: Store::new(config), effects: Effects::default(), now: 0 };
        desk.apply(Input::ArenaReady { bytes: config.arena_bytes });
        desk.open(ONE, Peer::Watched);
        desk
    }

    pub(crate) fn apply(&mut self, input: Input<'_>) {
        self.store.apply(input, Timestamp(self.now), &mut self.effects);
        self.store.assert_consistent();
    }

    pub(crate) fn open(&mut self, session: SessionId, peer: Peer) {
        self.apply(Input::Open { session, peer, process: None });
    }

    /// A session of a process that is known.
    pub(crate) fn open_of(&mut self, session: SessionId, pid: u32) {
        let process = Some(ProcessName { pid, started: 9 });
        self.apply(Input::Open { session, peer: Peer::Watched, process });
    }

    pub(crate) fn stats(&self) -> Stats {
        self.store.stats()
    }

    pub(crate) fn reserve_by(
        &mut self,
        session: SessionId,
        len_bytes: u64,
        class: Option<Retention>,
        writer: Writer,
    ) -> Result<Granted, Refusal> {
        self.apply(Input::Reserve { session, len_bytes, class, writer });
        match self.effects.outcome {
            Outcome::Reserved(reserved) => reserved,
            ref other => panic!("{other:?}"),
        }
    }

    pub(crate) fn reserve(
        &mut self,
        len_bytes: u64,
        class: Option<Retention>,
    ) -> Result<Granted, Refusal> {
        self.reserve_by(ONE, len_bytes, class, Writer::Client)
    }

    /// A ticket of session 1, whatever must go for it.
    pub(crate) fn granted(&mut self, len_bytes: u64) -> Granted {
        match self.reserve(len_bytes, Some(Retention::Long)) {
            Ok(granted) => granted,
            Err(refusal) => panic!("{len_bytes} bytes: {refusal}"),
        }
    }

    /// A row that must be accepted.
    pub(crate) fn store(&mut self, key: &[u8], len_bytes: u64, class: Retention) {
        let stored = self.put(key, len_bytes, class);
        assert_eq!(stored, Ok(()), "{}", key.escape_ascii());
    }

    pub(crate) fn commit_with(&mut self, commit: Commit<'_>) -> Result<(), Refusal> {
        self.apply(Input::Commit(commit));
        match self.effects.outcome {
            Outcome::Committed(committed) => committed,
            ref other => panic!("{other:?}"),
        }
    }

    pub(crate) fn commit(
        &mut self,
        ticket: TicketId,
        key: &[u8],
        len_bytes: u64,
        retention: Retention,
    ) -> Result<(), Refusal> {
        self.commit_with(Commit {
            session: ONE,
            ticket,
            namespace: NAMESPACE,
            key,
            len_bytes,
            retention,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Set,
        })
    }

    /// Reserve with the class and commit.
    pub(crate) fn put(&mut self, key: &[u8], len: u64, class: Retention) -> Result<(), Refusal> {
        let granted = self.reserve(len, Some(class))?;
        self.commit(granted.ticket, key, len, class)
    }

    pub(crate) fn fetch(&mut self, session: SessionId, key: &[u8], hold: Hold) -> Found {
        let keys = Keys::one(key);
        self.apply(Input::Fetch { session, namespace: NAMESPACE, keys, prefix: false, hold });
        self.effects.found[0]
    }

    pub(crate) fn hit(&mut self, session: SessionId, key: &[u8], hold: Hold) -> Hit {
        match self.fetch(session, key, hold) {
            Found::Hit(hit) => hit,
            other @ (Found::Loading | Found::Miss(_)) => {
                panic!("{}: {other:?}", key.escape_ascii())
            }
        }
    }

    pub(crate) fn lease(&mut self, session: SessionId, key: &[u8]) -> LeaseId {
        match self.hit(session, key, Hold::Lease).held {
            Held::Lease(lease) => lease,
            Held::HandOut => panic!("a lease was asked for"),
        }
    }

    pub(crate) fn release(&mut self, session: SessionId, lease: LeaseId) {
        let leases = [lease];
        self.apply(Input::Release { session, leases: Ids::Slice(&leases) });
    }

    pub(crate) fn locate(&mut self, key: &[u8], family: bool) -> Located {
        let keys = Keys::one(key);
        let (session, namespace, prefix) = (ONE, NAMESPACE, false);
        let unloaded_bytes = 0;
        self.apply(Input::Locate { session, namespace, keys, prefix, family, unloaded_bytes });
        self.effects.located[0]
    }

    pub(crate) fn is_stored(&self, key: &[u8]) -> bool {
        let why = self.store.why(NAMESPACE, key, Timestamp(self.now));
        matches!(why, kvd_store::Why::Present(_))
    }

    pub(crate) fn wait(&mut self, milliseconds: u64) {
        self.now += milliseconds;
        loop {
            self.apply(Input::Tick);
            if self.effects.outcome == (Outcome::Ticked { more: false }) {
                return;
            }
        }
    }
}
