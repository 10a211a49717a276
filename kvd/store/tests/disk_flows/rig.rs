//! A store with an arena and devices in memory, and short ways to drive all of them. Bytes are
//! real: what a hit shows is compared with what was stored.

use std::collections::BTreeSet;

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::{LeaseId, SessionId};
use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::tablespace::{Settings, Tablespace, WallTime};
use kvd_store::{
    Adopted, ClearCursor, ClearScope, Commit, CommitRules, DeviceId, DiskStats, DiskWork, Effects,
    Found, Held, Hit, Hold, Ids, Input, Keys, LedgerHeader, Located, Outcome, Peer, Store,
    StoreConfig, Timestamp, Verdict, WaitId, Writer,
};

use crate::fold::Fold;
use crate::platter::{Platter, Trouble, index};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const ONE: SessionId = SessionId(1);
pub(crate) const TWO: SessionId = SessionId(2);
pub(crate) const NAMESPACE: Namespace<'static> = Namespace { model: "m", compat_key: "0" };
pub(crate) const OTHER: Namespace<'static> = Namespace { model: "m", compat_key: "1" };
/// Wall clock at the start.
pub(crate) const ORIGIN_MS: u64 = 1_700_000_000_000;

pub(crate) struct Rig {
    pub(crate) store: Store,
    pub(crate) effects: Effects,
    pub(crate) now: u64,
    pub(crate) arena: Vec<u8>,
    pub(crate) platters: Vec<Platter>,
    /// Taken, not finished.
    pub(crate) pending: Vec<(u8, DiskWork)>,
    /// All that any input told.
    pub(crate) woken: Vec<SessionId>,
    pub(crate) decided: Vec<WaitId>,
    pub(crate) to_wake: u64,
    fillers: u64,
    /// What somebody knows who hears of changes.
    pub(crate) fold: Fold,
    /// If the configuration asks for one.
    ledger: Vec<u8>,
    /// Everything that the store ever said, if it is wanted.
    pub(crate) log: Option<String>,
}

/// An arena and so many devices of as many KiB, with the defaults.
pub(crate) fn config(arena_kib: u64, devices: u8) -> StoreConfig {
    let bytes = arena_kib * KIB;
    let mut config = StoreConfig::new(bytes, bytes);
    config.disk = kvd_store::DiskConfig::new(devices, bytes);
    config.disk.wall_origin_ms = ORIGIN_MS;
    config.evidence_slots = 1 << 10;
    config.events = true;
    config.session_limits.in_flight_bytes_max = bytes;
    config
}

pub(crate) fn settings(space_kib: u64, now: u64) -> Settings {
    Settings {
        tag: 7,
        journal_bytes: 1 << 20,
        snapshot_bytes_max: 1 << 20,
        space_bytes: space_kib * KIB,
        expected_bytes: space_kib * KIB,
        hash_seed: 0,
        now: WallTime(ORIGIN_MS + now),
    }
}

/// The bytes of a value: told apart by their number.
pub(crate) fn value(number: u64, len: u64) -> Vec<u8> {
    let unit = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1).to_le_bytes();
    unit.iter().cycle().take(index(len)).copied().collect()
}

fn fresh_ledger(config: &StoreConfig) -> Vec<u8> {
    let (Some(layout), arena_bytes) = (config.ledger, config.arena_bytes) else {
        return Vec::new();
    };
    let mut image = LedgerHeader { arena_id: [0; 16], arena_bytes, epoch: 1, layout }.encode();
    image.resize(index(layout.bytes()), 0);
    image
}

fn store_words(ledger: &mut [u8], effects: &Effects) {
    for write in effects.ledger.iter() {
        let to = ledger[index(write.offset)..].chunks_exact_mut(8);
        for (to, word) in to.zip(write.words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
    }
}

impl Rig {
    /// Everything is up; devices are empty.
    pub(crate) fn new(config: StoreConfig, space_kib: u64) -> Self {
        let mut rig = Self::without_devices(config, space_kib);
        for device in 0..config.disk.devices {
            rig.bring_up(device, space_kib);
        }
        rig
    }

    /// Devices are still being recovered.
    pub(crate) fn without_devices(config: StoreConfig, space_kib: u64) -> Self {
        let mut rig = Self::cold(config, space_kib);
        rig.apply(Input::ArenaReady { bytes: config.arena_bytes });
        rig
    }

    /// No byte of the arena is usable yet, either.
    fn cold(config: StoreConfig, space_kib: u64) -> Self {
        let platter = |_| Platter::new(index(space_kib * KIB));
        let mut rig = Self {
            store: Store::new(config),
            effects: Effects::default(),
            now: 0,
            arena: vec![0xdd; index(config.arena_bytes)],
            platters: (0..config.disk.devices).map(platter).collect(),
            pending: Vec::new(),
            woken: Vec::new(),
            decided: Vec::new(),
            to_wake: 0,
            fillers: 0,
            fold: Fold::default(),
            ledger: fresh_ledger(&config),
            log: None,
        };
        for session in [ONE, TWO] {
            rig.apply(Input::Open { session, peer: Peer::Watched, process: None });
        }
        rig
    }

    /// A new, empty device.
    pub(crate) fn bring_up(&mut self, device: u8, space_kib: u64) {
        let tablespace = Box::new(Tablespace::new(settings(space_kib, self.now)));
        self.apply(Input::TablespaceReady { device: DeviceId(device), tablespace });
    }

    /// A device of which something is known already.
    pub(crate) fn bring_back(&mut self, device: u8, space_kib: u64) {
        let settings = settings(space_kib, self.now);
        let tablespace = Box::new(self.platters[usize::from(device)].recover(settings));
        self.apply(Input::TablespaceReady { device: DeviceId(device), tablespace });
    }

    /// The same devices, and a daemon that has just started; they are still to be brought back.
    pub(crate) fn restarted(self, config: StoreConfig) -> Self {
        let mut rig = self.restarted_cold(config);
        rig.apply(Input::ArenaReady { bytes: config.arena_bytes });
        rig
    }

    /// As [`Rig::restarted`], before any of the arena is touched.
    pub(crate) fn restarted_cold(self, config: StoreConfig) -> Self {
        let Self { platters, now, .. } = self;
        let mut rig = Self::cold(config, 0);
        (rig.platters, rig.now) = (platters, now);
        rig
    }

    /// A daemon that adopts the arena and the connections; devices are still to be brought back, and what
    /// they had taken is not finished.
    pub(crate) fn succeeded(self, config: StoreConfig) -> (Self, Adopted) {
        let mut rig = Self { pending: Vec::new(), decided: Vec::new(), ..self };
        let (connected, now) = (BTreeSet::from([ONE, TWO]), Timestamp(rig.now));
        let image = rig.ledger.as_slice();
        let adopted = Store::adopt(config, image, &connected, now, &mut rig.effects);
        let Ok((store, adopted)) = adopted else { panic!("{adopted:?}") };
        rig.store = store;
        rig.store.assert_consistent();
        rig.fold.look(&rig.store);
        store_words(&mut rig.ledger, &rig.effects);
        (rig, adopted)
    }

    pub(crate) fn apply(&mut self, input: Input<'_>) {
        self.store.apply(input, Timestamp(self.now), &mut self.effects);
        self.store.assert_consistent();
        self.fold.follow(&self.store, &self.effects.tiers);
        store_words(&mut self.ledger, &self.effects);
        if let Some(log) = &mut self.log {
            log.push_str(&format!("{:?}\n", self.effects));
        }
        self.woken.extend(&self.effects.woken);
        self.decided.extend(&self.effects.decided);
        self.to_wake |= self.effects.devices_to_wake;
    }

    pub(crate) fn disk(&self) -> DiskStats {
        self.store.stats().disk
    }

    /// Stores a value and writes its bytes.
    pub(crate) fn put_with<'a>(
        &mut self,
        namespace: Namespace<'a>,
        key: &'a [u8],
        number: u64,
        len: u64,
        change: impl FnOnce(&mut Commit<'a>),
    ) -> Result<(), Refusal> {
        let class = Some(Retention::Long);
        let mut commit = Commit {
            session: ONE,
            ticket: kvd_proto::ids::TicketId(0),
            namespace,
            key,
            len_bytes: len,
            retention: Retention::Long,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Set,
        };
        change(&mut commit);
        let class = class.map(|_| commit.retention);
        self.apply(Input::Reserve { session: ONE, len_bytes: len, class, writer: Writer::Client });
        let Outcome::Reserved(granted) = self.effects.outcome else {
            panic!("{:?}", self.effects.outcome);
        };
        let granted = granted?;
        let at = index(granted.payload_offset);
        self.arena[at..at + index(len)].copy_from_slice(&value(number, len));
        commit.ticket = granted.ticket;
        self.apply(Input::Commit(commit));
        match self.effects.outcome {
            Outcome::Committed(committed) => committed,
            ref other => panic!("{other:?}"),
        }
    }

    pub(crate) fn put(&mut self, key: &[u8], number: u64, len: u64, class: Retention) {
        let stored = self.put_with(NAMESPACE, key, number, len, |commit| commit.retention = class);
        assert_eq!(stored, Ok(()), "{}", key.escape_ascii());
    }

    pub(crate) fn fetch(&mut self, session: SessionId, key: &[u8]) -> Found {
        let (namespace, keys, hold) = (NAMESPACE, Keys::one(key), Hold::Lease);
        self.apply(Input::Fetch { session, namespace, keys, prefix: false, hold });
        self.effects.found[0]
    }

    /// The bytes of a hit, which is released.
    pub(crate) fn read(&mut self, session: SessionId, hit: Hit) -> Vec<u8> {
        let at = index(hit.payload_offset);
        let bytes = self.arena[at..at + hit.len_bytes as usize].to_vec();
        if let Held::Lease(lease) = hit.held {
            self.release(session, lease);
        }
        bytes
    }

    pub(crate) fn release(&mut self, session: SessionId, lease: LeaseId) {
        self.apply(Input::Release { session, leases: Ids::Slice(&[lease]) });
    }

    /// A hit of just this value.
    pub(crate) fn hit(&mut self, session: SessionId, key: &[u8], number: u64, len: u64) {
        match self.fetch(session, key) {
            Found::Hit(hit) => {
                assert_eq!(self.read(session, hit), value(number, len), "{}", key.escape_ascii());
            }
            other @ (Found::Loading | Found::Miss(_)) => {
                panic!("{}: {other:?}", key.escape_ascii())
            }
        }
    }

    pub(crate) fn misses(&mut self, key: &[u8]) -> MissReason {
        match self.fetch(ONE, key) {
            Found::Miss(reason) => reason,
            other @ (Found::Loading | Found::Hit(_)) => panic!("{other:?}"),
        }
    }

    /// Fetches until the value is there, with devices that do what they are asked.
    pub(crate) fn load(&mut self, key: &[u8], number: u64, len: u64) {
        if self.fetch(ONE, key) == Found::Loading {
            self.run();
        } else {
            panic!("{} is not on a device only", key.escape_ascii());
        }
        self.hit(ONE, key, number, len);
    }

    pub(crate) fn locate(&mut self, namespace: Namespace<'_>, key: &[u8], family: bool) -> Located {
        let (session, keys, prefix) = (ONE, Keys::one(key), false);
        let unloaded_bytes = 0;
        self.apply(Input::Locate { session, namespace, keys, prefix, family, unloaded_bytes });
        self.effects.located[0]
    }

    /// After how many microseconds each key can be lent, asked for in slices of two.
    pub(crate) fn load_us(&mut self, keys: &[&[u8]]) -> Vec<u32> {
        let mut unloaded_bytes = 0;
        let mut answers = Vec::new();
        for slice in keys.chunks(2) {
            let (namespace, keys) = (NAMESPACE, Keys::slices(slice));
            let (session, prefix, family) = (ONE, true, false);
            self.apply(Input::Locate { session, namespace, keys, prefix, family, unloaded_bytes });
            unloaded_bytes = self.effects.unloaded_bytes;
            answers.extend(self.effects.located.iter().map(|located| match *located {
                Located::Present { load_us, .. } => load_us,
                Located::Miss(reason) => panic!("{reason:?}"),
            }));
        }
        answers
    }

    pub(crate) fn prefetch(&mut self, keys: &[&[u8]], deadline_ms: u64) {
        let (session, namespace, keys) = (ONE, NAMESPACE, Keys::slices(keys));
        self.apply(Input::Prefetch { session: Some(session), namespace, keys, deadline_ms });
    }

    /// Everything of a scope; the wait of the last slice.
    pub(crate) fn clear(&mut self, scope: ClearScope<'_>) -> Option<WaitId> {
        let mut cursor = ClearCursor::START;
        loop {
            self.apply(Input::Clear { scope, cursor });
            let Outcome::Cleared { next, .. } = self.effects.outcome else {
                panic!("{:?}", self.effects.outcome);
            };
            match next {
                Some(next) => cursor = next,
                None => return self.effects.wait,
            }
        }
    }

    pub(crate) fn verdict(&mut self, wait: WaitId) -> Verdict {
        self.apply(Input::Verdict { wait, give_up: false });
        match self.effects.outcome {
            Outcome::Verdict(verdict) => verdict,
            ref other => panic!("{other:?}"),
        }
    }

    /// Lets a device take up to so many loads and spills.
    pub(crate) fn take_some(&mut self, device: u8, loads_max: u32, writes_max: u32) -> usize {
        let id = DeviceId(device);
        let write_bytes_max = u64::MAX;
        self.apply(Input::TakeWork { device: id, loads_max, writes_max, write_bytes_max });
        let work = core::mem::take(&mut self.effects.work);
        let taken = work.len();
        self.pending.extend(work.into_iter().map(|work| (device, work)));
        taken
    }

    pub(crate) fn take(&mut self, device: u8) -> usize {
        self.take_some(device, 64, 64)
    }

    /// Finishes one piece of work.
    pub(crate) fn finish(&mut self, at: usize, trouble: Trouble) {
        let (device, work) = self.pending.remove(at);
        let platter = &mut self.platters[usize::from(device)];
        let done = platter.perform(&work, &mut self.arena, trouble);
        self.apply(Input::WorkDone { device: DeviceId(device), done: &[done] });
    }

    /// Finishes everything that was taken, in order; trouble is with blocks only.
    pub(crate) fn finish_all(&mut self, trouble: Trouble) {
        while let Some((_, work)) = self.pending.first() {
            let is_block = matches!(work, DiskWork::Load { .. } | DiskWork::Spill { .. });
            self.finish(0, if is_block { trouble } else { Trouble::None });
        }
    }

    /// Devices take and finish until there is nothing left.
    pub(crate) fn run(&mut self) {
        for _ in 0..10_000 {
            let devices = (0..).take(self.platters.len());
            let taken: usize = devices.map(|device| self.take(device)).sum();
            if taken == 0 && self.pending.is_empty() {
                self.to_wake = 0;
                return;
            }
            self.finish_all(Trouble::None);
        }
        panic!("devices never rest");
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

    /// Pushes everything that can go out of the arena, by rows of this size that then end.
    pub(crate) fn flood(&mut self, len: u64) {
        for _ in 0..=2 * self.arena.len() as u64 / len {
            self.put_filler(len);
        }
        self.wait(2);
    }

    fn put_filler(&mut self, len: u64) {
        self.fillers += 1;
        let (number, key) = (self.fillers, format!("filler{}", self.fillers));
        // As high as any, so that everything must give way, but soon over.
        let stored = self.put_with(NAMESPACE, key.as_bytes(), number, len, |commit| {
            commit.ttl_ms = Some(1);
        });
        assert_eq!(stored, Ok(()));
    }

    /// A value of class `long`, on the device only.
    pub(crate) fn put_below(&mut self, key: &[u8], number: u64, len: u64) {
        self.put(key, number, len, Retention::Long);
        self.run();
        self.evict(key);
    }

    /// Makes so much room that nothing is left in the arena; copies stay below.
    pub(crate) fn evict(&mut self, key: &[u8]) {
        self.put_filler(self.arena.len() as u64 - 4 * KIB);
        assert!(!self.is_in_arena(key), "{} stays", key.escape_ascii());
        self.wait(2);
    }

    pub(crate) fn is_in_arena(&self, key: &[u8]) -> bool {
        let why = self.store.why(NAMESPACE, key, Timestamp(self.now));
        matches!(why, kvd_store::Why::Present(_))
    }

    pub(crate) fn is_below(&self, key: &[u8]) -> bool {
        self.store.entry(NAMESPACE, key, Timestamp(self.now)).is_some()
    }
}
