//! A store under a workload, and the naive picture beside it.

use std::collections::{BTreeMap, BTreeSet};

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::{LeaseId, SessionId, TicketId};
use kvd_proto::retention::Retention;
use kvd_store::{
    Adopted, ClearCursor, ClearScope, Commit, CommitRules, Effects, Found, Granted, Held, Hold,
    Ids, Input, Keys, LedgerFault, Outcome, Peer, ProcessName, RowCursor, RowInfo, Store,
    StoreConfig, Timestamp, Writer,
};

use crate::image;
use crate::random::Random;

pub(crate) const ARENA: u64 = 256 << 10;
pub(crate) const WALL_MS: u64 = 1_000_000;
const GRACE_MS: u64 = 50;
const GRANULE: u64 = 64;

/// Which bytes stand in each granule of the arena: the number of the ticket by which they were written.
pub(crate) type Arena = Vec<u32>;

/// A row: all that is known of it, and whose bytes it must have.
pub(crate) type Rows = BTreeMap<(String, String, Vec<u8>), (RowInfo, u32, u32)>;

/// Somebody who may read or write.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder {
    pub(crate) session: u64,
    /// Lease or ticket; hand-outs have none.
    pub(crate) name: Option<u64>,
    pub(crate) writes: bool,
    pub(crate) offset: u64,
    /// As far as its holder may go.
    pub(crate) bytes: u64,
    /// What stands there, or will.
    pub(crate) serial: u32,
    /// End of its grace time.
    pub(crate) until: Option<u64>,
}

pub(crate) struct Life {
    pub(crate) store: Store,
    pub(crate) image: Vec<u8>,
    pub(crate) arena: Arena,
    pub(crate) rows: Rows,
    pub(crate) holders: BTreeSet<Holder>,
    /// Words that the latest input stored, and what was true before it.
    pub(crate) writes: Vec<(usize, u64)>,
    pub(crate) before: Before,
    /// Looks at the life after each input.
    pub(crate) judge: Option<fn(&Self)>,
    /// Words that are lost on their way, in a twin that must be found out.
    pub(crate) loses: fn((usize, u64)) -> bool,
    pub(crate) now: u64,
    pub(crate) random: Random,
    pub(crate) effects: Effects,
    open: BTreeMap<u64, Peer>,
    serial: u32,
    next_session: u64,
    /// Rights that went over to another session.
    pub(crate) passed: u64,
    /// Serial and version of what a committed row will show.
    headers: BTreeMap<u64, (u32, u32)>,
    serials: BTreeMap<u64, u32>,
}

#[derive(Default)]
pub(crate) struct Before {
    pub(crate) image: Vec<u8>,
    pub(crate) rows: Rows,
    pub(crate) holders: BTreeSet<Holder>,
    headers: BTreeMap<u64, (u32, u32)>,
}

pub(crate) fn config() -> StoreConfig {
    let mut config = StoreConfig::new(ARENA, ARENA);
    config.evidence_slots = 64;
    config.view_grace_ms = GRACE_MS;
    config.promise_window_ms = 20;
    config.disk.wall_origin_ms = WALL_MS;
    config.ledger = Some(image::LAYOUT);
    config
}

fn long_name() -> &'static str {
    const LETTERS: &[u8; 100] = &[b'n'; 100];
    core::str::from_utf8(LETTERS).unwrap()
}

fn namespace(index: u64) -> Namespace<'static> {
    let all = [("m", "0"), ("m", "1"), (long_name(), "c")];
    let (model, compat_key) = all[(index % 3) as usize];
    Namespace { model, compat_key }
}

fn key(index: u64) -> Vec<u8> {
    match index % 4 {
        0 => vec![],
        1 => format!("family{index:02}").into_bytes(),
        2 => format!("a key of some length {index}").into_bytes(),
        _ => index.to_string().repeat(150).into_bytes()[..150].to_vec(),
    }
}

impl Life {
    pub(crate) fn new(seed: u64) -> Self {
        let mut life = Self {
            store: Store::new(config()),
            image: image::fresh(ARENA, image::LAYOUT),
            arena: vec![0; (ARENA / GRANULE) as usize],
            rows: Rows::new(),
            holders: BTreeSet::new(),
            writes: Vec::new(),
            before: Before::default(),
            judge: None,
            loses: |_| false,
            now: 0,
            random: Random(seed),
            effects: Effects::default(),
            open: BTreeMap::new(),
            serial: 0,
            next_session: 1,
            passed: 0,
            headers: BTreeMap::new(),
            serials: BTreeMap::new(),
        };
        life.apply(Input::ArenaReady { bytes: ARENA });
        life.open_session();
        life
    }

    fn apply(&mut self, input: Input<'_>) {
        let now = self.now;
        self.holders.retain(|holder| holder.until.is_none_or(|until| until > now));
        let (rows, holders) = (self.rows.clone(), self.holders.clone());
        let (image, headers) = (self.image.clone(), self.headers.clone());
        self.before = Before { image, rows, holders, headers };
        self.store.apply(input, Timestamp(self.now), &mut self.effects);
        self.writes = image::words(&self.effects.ledger);
        self.writes.retain(|&word| !(self.loses)(word));
        for &word in &self.writes {
            image::store(&mut self.image, word, 8);
        }
        for header in &self.effects.headers {
            self.headers.insert(header.payload_offset, (header.version, header.len_bytes));
        }
        self.store.assert_consistent();
        self.rows = rows_of(&self.store, &self.serials, &self.headers);
        if let Some(judge) = self.judge {
            judge(self);
        }
    }

    /// One step of the workload.
    pub(crate) fn step(&mut self) {
        self.now += self.random.below(4);
        self.scribble();
        match self.random.below(48) {
            0 => self.open_session(),
            1 => self.close(),
            2 => self.peer_gone(),
            3 => self.clear(),
            4 | 5 => self.tick(),
            6..10 => self.fetch(Hold::HandOut),
            10 | 11 => self.next_request(),
            12..17 => self.fetch(Hold::Lease),
            17..20 => self.release(),
            20..22 => self.reserve_only(),
            22 | 23 => self.cancel(),
            24..27 => self.commit_some(),
            27 => self.locate(),
            40..47 => self.take_up(),
            47 => self.renounce(),
            _ => self.put(),
        }
    }

    /// Whoever may write, writes.
    pub(crate) fn scribble(&mut self) {
        for holder in self.holders.iter().filter(|holder| holder.writes) {
            fill(&mut self.arena, holder);
        }
    }

    fn session(&mut self) -> u64 {
        if self.open.is_empty() {
            self.open_session();
        }
        let all: Vec<u64> = self.open.keys().copied().collect();
        *self.random.pick(&all).unwrap()
    }

    fn open_session(&mut self) {
        if self.store.sessions().len() >= 12 {
            let open = &self.open;
            self.holders.retain(|holder| open.contains_key(&holder.session));
            self.apply(Input::ReleaseQuarantine { session: None });
        }
        if self.open.len() >= 12 {
            return;
        }
        let id = self.next_session;
        self.next_session += 1;
        let peer = if id.is_multiple_of(3) { Peer::Unknowable } else { Peer::Watched };
        self.open.insert(id, peer);
        self.apply(Input::Open { session: SessionId(id), peer, process: process(id) });
    }

    fn close(&mut self) {
        let session = self.session();
        self.open.remove(&session);
        self.linger(session);
        self.apply(Input::Close { session: SessionId(session) });
    }

    fn peer_gone(&mut self) {
        let all: Vec<u64> = self.holders.iter().map(|holder| holder.session).collect();
        let closed: Vec<u64> = all.into_iter().filter(|id| !self.open.contains_key(id)).collect();
        if let Some(&session) = self.random.pick(&closed) {
            self.holders.retain(|holder| holder.session != session);
            self.apply(Input::PeerGone { session: SessionId(session) });
        }
    }

    fn clear(&mut self) {
        let scope = ClearScope::Namespace(namespace(self.random.next()));
        self.apply(Input::Clear { scope, cursor: ClearCursor::START });
    }

    fn tick(&mut self) {
        self.now += self.random.below(60);
        self.apply(Input::Tick);
    }

    fn next_request(&mut self) {
        let session = self.session();
        self.linger(session);
        self.apply(Input::NextRequest { session: SessionId(session) });
    }

    /// The grace time of what was handed out begins.
    fn linger(&mut self, session: u64) {
        let until = Some(self.now + GRACE_MS);
        let all = core::mem::take(&mut self.holders).into_iter();
        let all = all.map(|holder| {
            let begins = holder.name.is_none() && holder.session == session;
            let until = holder.until.or(until.filter(|_| begins));
            Holder { until, ..holder }
        });
        self.holders = all.collect();
    }

    fn fetch(&mut self, hold: Hold) {
        let (session, at) = (self.session(), self.random.next());
        let names: Vec<Vec<u8>> = (0..3).map(|_| key(self.random.below(12))).collect();
        let keys: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let (namespace, keys) = (namespace(at), Keys::slices(&keys));
        let input =
            Input::Fetch { session: SessionId(session), namespace, keys, prefix: false, hold };
        self.apply(input);
        for found in &self.effects.found {
            let Found::Hit(hit) = found else { continue };
            let name = match hit.held {
                Held::Lease(lease) if hold == Hold::Lease => Some(lease.0),
                Held::Lease(_) => continue,
                Held::HandOut => None,
            };
            let now = self.now;
            self.holders.retain(|other| {
                let is_renewed = name.is_none() && other.name.is_none();
                !(is_renewed && other.session == session && other.offset == hit.payload_offset)
                    || other.until.is_some_and(|until| until <= now)
            });
            self.holders.insert(Holder {
                until: None,
                session,
                name,
                writes: false,
                offset: hit.payload_offset,
                bytes: hit.len_bytes.into(),
                serial: self.serials[&hit.payload_offset],
            });
        }
    }

    fn locate(&mut self) {
        let (session, at) = (SessionId(self.session()), self.random.next());
        let key = key(self.random.below(12));
        let (namespace, keys, prefix) = (namespace(at), Keys::one(&key), false);
        let (family, unloaded_bytes) = (true, 0);
        self.apply(Input::Locate { session, namespace, keys, prefix, family, unloaded_bytes });
    }

    fn some_holder(&mut self, writes: bool) -> Option<Holder> {
        let is_open = |holder: &&Holder| self.open.contains_key(&holder.session);
        let named = self.holders.iter().filter(|at| at.name.is_some() && at.writes == writes);
        let all: Vec<Holder> = named.filter(is_open).cloned().collect();
        self.random.pick(&all).cloned()
    }

    fn release(&mut self) {
        let Some(holder) = self.some_holder(false) else { return };
        self.holders.remove(&holder);
        let leases = [LeaseId(holder.name.unwrap())];
        let session = SessionId(holder.session);
        self.apply(Input::Release { session, leases: Ids::Slice(&leases) });
    }

    /// A session of a process that had another one takes up what that one was given.
    fn take_up(&mut self) {
        let heir = self.session();
        let named = self.holders.iter().filter(|at| at.name.is_some());
        let all: Vec<Holder> =
            named.filter(|at| is_same_process(at.session, heir)).cloned().collect();
        let Some(holder) = self.random.pick(&all).cloned() else { return };
        self.passed += u64::from(holder.session != heir);
        self.holders.remove(&holder);
        let rights = [LeaseId(holder.name.unwrap())];
        self.holders.insert(Holder { session: heir, ..holder });
        self.apply(Input::TakeUp { session: SessionId(heir), rights: Ids::Slice(&rights) });
        assert_eq!(self.effects.outcome, Outcome::TakenUp { taken: 1, unknown: 0 });
    }

    fn renounce(&mut self) {
        let heir = self.session();
        let all: Vec<u64> = self.holders.iter().map(|holder| holder.session).collect();
        let closed = all.into_iter().filter(|id| !self.open.contains_key(id));
        let closed: Vec<u64> = closed.filter(|&id| is_same_process(id, heir)).collect();
        if let Some(&earlier) = self.random.pick(&closed) {
            self.holders.retain(|holder| holder.session != earlier);
            let (session, earlier) = (SessionId(heir), SessionId(earlier));
            self.apply(Input::Renounce { session, earlier });
        }
    }

    fn reserve(&mut self, writer: Writer) -> Option<(u64, Granted, u64)> {
        let session = self.session();
        let most = if self.random.below(8) == 0 { 90_000 } else { 6_000 };
        let len_bytes = self.random.below(most);
        let class = (self.random.below(5) > 0).then_some(Retention::Long);
        self.apply(Input::Reserve { session: SessionId(session), len_bytes, class, writer });
        match self.effects.outcome {
            Outcome::Reserved(Ok(granted)) => Some((session, granted, len_bytes)),
            _ => None,
        }
    }

    fn reserve_only(&mut self) {
        if let Some((session, granted, _)) = self.reserve(Writer::Client) {
            self.hold(session, &granted);
        }
    }

    /// The bytes are written from now on.
    fn hold(&mut self, session: u64, granted: &Granted) -> Holder {
        self.serial += 1;
        let holder = Holder {
            session,
            name: Some(granted.ticket.0),
            writes: true,
            offset: granted.payload_offset,
            bytes: granted.capacity_bytes,
            serial: self.serial,
            until: None,
        };
        self.serials.insert(holder.offset, holder.serial);
        fill(&mut self.arena, &holder);
        self.holders.insert(holder.clone());
        holder
    }

    fn put(&mut self) {
        let writer = if self.random.below(2) == 0 { Writer::Client } else { Writer::Daemon };
        let Some((session, granted, len_bytes)) = self.reserve(writer) else { return };
        let holder = self.hold(session, &granted);
        let spare = self.random.below(len_bytes.min(100));
        self.commit(&holder, len_bytes - spare);
    }

    fn commit_some(&mut self) {
        if let Some(holder) = self.some_holder(true) {
            self.commit(&holder, 1);
        }
    }

    fn commit(&mut self, holder: &Holder, len_bytes: u64) {
        self.holders.remove(holder);
        let lineage = vec![5; self.random.below(250) as usize];
        let (at, ttl) = (self.random.next(), self.random.below(400));
        let key = key(self.random.below(12));
        self.apply(Input::Commit(Commit {
            session: SessionId(holder.session),
            ticket: TicketId(holder.name.unwrap()),
            namespace: namespace(at),
            key: &key,
            len_bytes,
            retention: Retention::ALL[(at >> 8) as usize % 4],
            ttl_ms: (ttl < 100).then_some(ttl),
            lineage: (at & 64 == 0).then_some(&lineage),
            checksum: (at & 128 == 0).then_some(at),
            rules: CommitRules::Lease,
        }));
        if self.effects.outcome
            == Outcome::Committed(Err(kvd_proto::refusal::Refusal::OversizeCommit))
        {
            self.holders.insert(holder.clone());
        }
    }

    fn cancel(&mut self) {
        let Some(holder) = self.some_holder(true) else { return };
        self.holders.remove(&holder);
        let linger = self.random.below(2) == 0;
        if linger {
            let until = Some(self.now + GRACE_MS);
            let (name, writes) = (None, false);
            self.holders.insert(Holder { name, writes, until, ..holder });
        }
        let (session, ticket) = (SessionId(holder.session), TicketId(holder.name.unwrap()));
        self.apply(Input::Cancel { session, ticket, linger });
    }

    /// The daemon dies and is succeeded.
    pub(crate) fn succeed(&mut self) -> Adopted {
        let mut effects = Effects::default();
        let (store, adopted) = adopt(&self.image, self.now, &mut effects).unwrap();
        image::store_all(&mut self.image, &effects.ledger);
        self.store = store;
        self.store.assert_consistent();
        self.open.clear();
        assert_eq!(adopted.next_session, self.next_session);
        for session in &adopted.sessions {
            assert_eq!(session.process, process(session.session.0));
        }
        let sessions: Vec<u64> = self.holders.iter().map(|holder| holder.session).collect();
        sessions.into_iter().for_each(|session| self.linger(session));
        self.rows = rows_of(&self.store, &self.serials, &self.headers);
        adopted
    }
}

pub(crate) fn process(id: u64) -> Option<ProcessName> {
    // Two processes.
    let pid = u32::try_from(id % 4).unwrap();
    (id % 2 == 1).then_some(ProcessName { pid, started: 700 })
}

fn is_same_process(one: u64, other: u64) -> bool {
    process(one).is_some() && process(one) == process(other)
}

pub(crate) fn adopt(
    image: &[u8],
    now: u64,
    effects: &mut Effects,
) -> Result<(Store, Adopted), LedgerFault> {
    Store::adopt(config(), image, &BTreeSet::new(), Timestamp(now), effects)
}

fn fill(arena: &mut Arena, holder: &Holder) {
    for granule in granules(holder.offset, holder.bytes) {
        arena[granule] = holder.serial;
    }
}

pub(crate) fn granules(offset: u64, bytes: u64) -> core::ops::Range<usize> {
    let end = (offset + bytes).div_ceil(GRANULE);
    (offset / GRANULE) as usize..end as usize
}

/// All rows, each with the serial of its bytes and the version of its header.
pub(crate) fn rows_of(
    store: &Store,
    serials: &BTreeMap<u64, u32>,
    headers: &BTreeMap<u64, (u32, u32)>,
) -> Rows {
    let mut all = Rows::new();
    let mut cursor = Some(RowCursor(0));
    while let Some(at) = cursor {
        let (rows, next) = store.rows(at, 1000);
        for mut row in rows {
            // Not kept: promises end with the daemon, and pins are looked at elsewhere.
            (row.promised_until, row.pins) = (None, 0);
            let name = (row.model.clone(), row.compat_key.clone(), row.key.clone());
            let (serial, header) = (serials[&row.payload_offset], headers[&row.payload_offset]);
            all.insert(name, (row, serial, header.0));
        }
        cursor = next;
    }
    all
}

impl Life {
    /// Rows of another store in the same arena.
    pub(crate) fn rows_in(&self, store: &Store) -> Rows {
        rows_of(store, &self.serials, &self.headers)
    }

    /// As [`Self::rows_in`], with the headers as they were before the latest input.
    pub(crate) fn rows_in_before(&self, store: &Store) -> Rows {
        rows_of(store, &self.serials, &self.before.headers)
    }
}
