//! The one place where a request meets the store: lock, decide, make headers visible, unlock, wake.
//!
//! Everything else that a decision asks for (replies, copies, system calls) is done by the calling
//! thread afterwards, outside the lock. An L2 hit therefore makes no thread hop.

use std::collections::BTreeSet;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kvd_disk::Waker;
use kvd_proto::ids::SessionId;
use kvd_shm::exit_watch::ExitWatch;
use kvd_shm::header;
use kvd_shm::ledger_file::LedgerFile;
use kvd_shm::mapping::Mapping;
use kvd_store::{
    Adopted, DEVICES_MAX, DeviceId, Effects, HeaderWrite, Input, LedgerFault, LedgerImage, Store,
    StoreConfig, TierChanges, Timestamp,
};

use crate::events::log::Log;
use crate::parkers::Parkers;

/// The store behind its lock, with the clock and the arena that belong to it.
#[derive(Debug)]
pub struct Brain {
    store: Mutex<Deciding>,
    /// Its standing has changed.
    changed: Condvar,
    arena: Arc<Mapping>,
    /// Where decisions are noted for a successor.
    ledger: Option<LedgerFile>,
    /// Where changes of tiers wait to be published, if they are.
    tiers: Option<Log>,
    watch: Arc<ExitWatch>,
    started: Instant,
    wall_origin_ms: u64,
    hash_seed: u64,
    devices: u8,
    /// Session threads that wait for storage.
    pub parkers: Parkers,
    /// Who drives each device, once somebody does.
    drivers: [OnceLock<Waker>; DEVICES_MAX as usize],
}

/// The store, and what becomes of its decisions.
#[derive(Debug)]
struct Deciding {
    store: Store,
    standing: Standing,
    /// What an adoption has decided and nobody can see yet.
    adoption: Effects,
}

/// What becomes of decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// They are made visible.
    InForce,
    /// None is made: whoever asks waits.
    Still,
    /// A successor decides. What is decided here means nothing any more, and is not made visible.
    Succeeded,
}

impl Brain {
    /// Builds an empty store and joins it to the arena that it carves, the ledger that it is noted in, and the processes
    /// that use it. The wall clock at the store's beginning is filled in here.
    ///
    /// # Panics
    /// If the configuration asks for a ledger and there is none.
    pub fn new(
        mut config: StoreConfig,
        arena: Arc<Mapping>,
        watch: Arc<ExitWatch>,
        ledger: Option<LedgerFile>,
    ) -> Self {
        assert_eq!(config.ledger.is_some(), ledger.is_some(), "a layout and its ledger");
        config.disk.wall_origin_ms = wall_ms();
        let (store, adoption) = (Store::new(config), Effects::default());
        let deciding = Deciding { store, standing: Standing::InForce, adoption };
        Self::of(deciding, &config, arena, watch, ledger)
    }

    /// Builds a store of what `ledger` says that the arena holds, to go on noting there. Sessions in `connected` stay
    /// open. It stands still, and nothing is written, until [`Brain::come_into_force`].
    ///
    /// # Errors
    /// If the ledger can't be believed: then nothing in the arena can.
    pub fn adopt(
        mut config: StoreConfig,
        arena: Arc<Mapping>,
        watch: Arc<ExitWatch>,
        ledger: LedgerFile,
        connected: &BTreeSet<SessionId>,
    ) -> Result<(Self, Adopted), LedgerFault> {
        config.disk.wall_origin_ms = wall_ms();
        let mut adoption = Effects::default();
        let image = Image(&ledger);
        let (store, adopted) =
            Store::adopt(config, &image, connected, Timestamp(0), &mut adoption)?;
        let deciding = Deciding { store, standing: Standing::Still, adoption };
        Ok((Self::of(deciding, &config, arena, watch, Some(ledger)), adopted))
    }

    /// From now on nobody else decides about the arena: what the adoption has decided is made visible, and whoever waits
    /// goes on.
    pub fn come_into_force(&self) {
        let mut deciding = self.lock();
        let adoption = std::mem::take(&mut deciding.adoption);
        self.make_visible(&adoption);
        deciding.standing = Standing::InForce;
        self.changed.notify_all();
    }

    /// Nothing is decided from now on, so that arena and ledger stay as they are: [`Brain::apply`] waits. Ended by
    /// [`Brain::go_on`] or [`Brain::is_succeeded`]; whoever calls this sees to that within a deadline.
    pub fn stand_still(&self) {
        self.lock().standing = Standing::Still;
    }

    /// Ends [`Brain::stand_still`].
    pub fn go_on(&self) {
        self.lock().standing = Standing::InForce;
        self.changed.notify_all();
    }

    /// A successor decides from now on. Threads that end here still get answers, and arena and ledger are not touched.
    pub fn is_succeeded(&self) {
        self.lock().standing = Standing::Succeeded;
        self.changed.notify_all();
    }

    fn of(
        deciding: Deciding,
        config: &StoreConfig,
        arena: Arc<Mapping>,
        watch: Arc<ExitWatch>,
        ledger: Option<LedgerFile>,
    ) -> Self {
        Self {
            store: Mutex::new(deciding),
            changed: Condvar::new(),
            arena,
            ledger,
            tiers: config.events.then(Log::default),
            watch,
            started: Instant::now(),
            wall_origin_ms: config.disk.wall_origin_ms,
            hash_seed: config.hash_seed,
            devices: config.disk.devices,
            parkers: Parkers::default(),
            drivers: [const { OnceLock::new() }; DEVICES_MAX as usize],
        }
    }

    /// Where decisions are noted for a successor.
    pub fn ledger(&self) -> Option<&LedgerFile> {
        self.ledger.as_ref()
    }

    /// Where changes of tiers wait to be published, if they are.
    pub fn tiers(&self) -> Option<&Log> {
        self.tiers.as_ref()
    }

    /// Puts what `read` finds among the changes of tiers, at the place where it is true. Keep it short, as
    /// [`Brain::inspect`].
    pub fn remark(&self, read: impl FnOnce(&Store, &mut TierChanges)) {
        if let Some(log) = &self.tiers {
            let mut remarks = TierChanges::default();
            let deciding = self.lock();
            read(&deciding.store, &mut remarks);
            log.append(&remarks);
        }
    }

    /// The arena's bytes.
    pub fn arena(&self) -> &Arc<Mapping> {
        &self.arena
    }

    /// The wall clock as the store sees it, in milliseconds since 1970: it never runs backwards.
    pub fn wall_ms(&self) -> u64 {
        self.wall_origin_ms.saturating_add(self.now().0)
    }

    /// The seed of the store's hash functions.
    pub fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// How many devices the store knows.
    pub fn devices(&self) -> u8 {
        self.devices
    }

    /// From now on `waker` is called when `device` has something to do. Only the first one counts.
    pub fn drive(&self, device: DeviceId, waker: Waker) {
        if let Some(driver) = self.drivers.get(usize::from(device.0)) {
            let _first = driver.get_or_init(|| waker);
        }
    }

    /// Applies one input. `effects` is cleared first and holds the answer afterwards.
    ///
    /// Headers are written before the lock opens: nobody may learn of a block whose header a
    /// protocol-1 reader would still find odd. Whoever has something to do is woken after it.
    pub fn apply(&self, input: Input<'_>, effects: &mut Effects) {
        effects.clear();
        let mut deciding = self.lock();
        while deciding.standing == Standing::Still {
            deciding = self.changed.wait(deciding).unwrap_or_else(PoisonError::into_inner);
        }
        deciding.store.apply(input, self.now(), effects);
        if deciding.standing == Standing::InForce {
            self.make_visible(effects);
        }
        drop(deciding);
        // Large, and taking it apart takes a while: nobody waits for that.
        effects.retired.clear();
        for session in &effects.forgotten {
            self.watch.unwatch(session.0);
        }
        self.parkers.wake(effects);
        self.wake_drivers(effects.devices_to_wake);
    }

    /// First for a successor, then for readers of protocol 1, then for those who hear of changes. In this order, and before
    /// anybody learns of the decisions.
    fn make_visible(&self, effects: &Effects) {
        if let Some(ledger) = &self.ledger {
            for write in effects.ledger.iter() {
                for (offset, word) in (write.offset..).step_by(size_of::<u64>()).zip(write.words) {
                    ledger.store(offset, *word);
                }
            }
        }
        for write in &effects.headers {
            let HeaderWrite { payload_offset, version, len_bytes } = *write;
            if version.is_multiple_of(2) {
                header::publish(&self.arena, payload_offset, version, len_bytes);
            } else {
                header::write_odd(&self.arena, payload_offset, version);
            }
        }
        if let Some(log) = &self.tiers {
            log.append(&effects.tiers);
        }
    }

    fn wake_drivers(&self, mut devices: u64) {
        while devices != 0 {
            let device = devices.trailing_zeros() as usize;
            devices &= devices - 1;
            if let Some(waker) = self.drivers.get(device).and_then(OnceLock::get) {
                waker.wake();
            }
        }
    }

    /// Reads the store under its lock. Keep it short: every session waits.
    pub fn inspect<R>(&self, read: impl FnOnce(&Store, Timestamp) -> R) -> R {
        let deciding = self.lock();
        read(&deciding.store, self.now())
    }

    fn now(&self) -> Timestamp {
        Timestamp(millis(self.started.elapsed()))
    }

    fn lock(&self) -> MutexGuard<'_, Deciding> {
        // A panic while the lock is held aborts the process (fatal.rs); tests may see it poisoned.
        self.store.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A ledger's bytes. A file of them is not written while a store is made of it.
struct Image<'a>(&'a LedgerFile);

impl LedgerImage for Image<'_> {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn read(&self, offset: u64, to: &mut [u8]) {
        self.0.read(offset, to);
    }
}

/// Milliseconds since 1970.
fn wall_ms() -> u64 {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO))
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use kvd_proto::block_key::Namespace;
    use kvd_proto::retention::Retention;
    use kvd_shm::arena::{Arena, ArenaConfig};
    use kvd_shm::numa::NumaPolicy;
    use kvd_store::{Commit, CommitRules, LedgerLayout, Outcome, Peer, Writer};

    use super::*;

    const ARENA_BYTES: u64 = 1 << 20;
    const SESSION: SessionId = SessionId(1);

    fn brain() -> Brain {
        let wanted = ArenaConfig {
            bytes: ARENA_BYTES,
            hugetlb: false,
            numa: NumaPolicy::Interleave,
            pin: false,
        };
        let arena = Arena::create(wanted).unwrap();
        let mut config = StoreConfig::new(ARENA_BYTES, ARENA_BYTES);
        let layout = LedgerLayout::for_arena(ARENA_BYTES, 1);
        config.ledger = Some(layout);
        let ledger = LedgerFile::create(layout.bytes()).unwrap();
        let watch = Arc::new(ExitWatch::new().unwrap());
        let brain = Brain::new(config, Arc::clone(arena.mapping()), watch, Some(ledger));
        let mut effects = Effects::default();
        brain.apply(Input::ArenaReady { bytes: ARENA_BYTES }, &mut effects);
        let open = Input::Open { session: SESSION, peer: Peer::Unknowable, process: None };
        brain.apply(open, &mut effects);
        brain
    }

    /// Stores a block, whose bytes nobody writes.
    fn store(brain: &Brain, key: &[u8]) {
        let mut effects = Effects::default();
        let (class, writer) = (Some(Retention::Short), Writer::Client);
        let reserve = Input::Reserve { session: SESSION, len_bytes: 1000, class, writer };
        brain.apply(reserve, &mut effects);
        let Outcome::Reserved(Ok(granted)) = effects.outcome else { panic!("{effects:?}") };
        let commit = Input::Commit(Commit {
            session: SESSION,
            ticket: granted.ticket,
            namespace: Namespace { model: "m", compat_key: "c" },
            key,
            len_bytes: 1000,
            retention: Retention::Short,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Lease,
        });
        brain.apply(commit, &mut effects);
        assert_eq!(effects.outcome, Outcome::Committed(Ok(())));
    }

    /// All that a successor and readers of protocol 1 see.
    fn seen(brain: &Brain) -> (Vec<u8>, Vec<u8>) {
        let file = brain.ledger().unwrap();
        let mut ledger = vec![0; usize::try_from(file.bytes()).unwrap()];
        file.read(0, &mut ledger);
        let mut arena = vec![0; usize::try_from(ARENA_BYTES).unwrap()];
        brain.arena().copy_out(0, &mut arena);
        (ledger, arena)
    }

    #[test]
    fn whoever_is_succeeded_answers_and_touches_neither_arena_nor_ledger() {
        let brain = brain();
        let empty = seen(&brain);
        store(&brain, b"before");
        let before = seen(&brain);
        assert!(before.0 != empty.0 && before.1 != empty.1, "as long as it decides");
        brain.stand_still();
        brain.go_on();
        store(&brain, b"after all");
        let last = seen(&brain);
        assert!(last.0 != before.0 && last.1 != before.1, "it goes on");
        brain.stand_still();
        brain.is_succeeded();
        store(&brain, b"too late");
        brain.apply(Input::Close { session: SESSION }, &mut Effects::default());
        let after = seen(&brain);
        assert!(after.0 == last.0, "the ledger is a successor's");
        assert!(after.1 == last.1, "the arena is a successor's");
    }
}
