//! The worker over a simulated disk, with a real store and a real arena: what happens when operations
//! fail. (What a crash leaves at any moment is looked at in `tests/tests/crash`.)

mod faults;
mod neighbours;

use std::sync::Arc;
use std::time::Duration;

use kvd_disk::FileId;
use kvd_disk::sim::{SimConfig, SimControl, SimDisk};
use kvd_proto::block_key::Namespace;
use kvd_proto::ids::SessionId;
use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::exit_watch::ExitWatch;
use kvd_shm::numa::NumaPolicy;
use kvd_store::tablespace::{Settings, Tablespace, WallTime};
use kvd_store::{
    Commit, CommitRules, DeviceId, DiskConfig, Durability, Effects, Found, Hold, Ids, Input, Keys,
    Outcome, Peer, StoreConfig, Verdict, WaitId, Writer,
};

use super::device::{Device, Order};
use super::directory::HALVES;
use super::pieces::{container_file, journal_file, snapshot_file};
use super::worker::Worker;
use crate::brain::Brain;
use crate::warm_up::WarmUp;

const ARENA_BYTES: u64 = 1 << 20;
const CONTAINER_BYTES: u64 = 1 << 20;
const CONTAINERS: u32 = 6;
const RECORD_BYTES: u64 = 128 << 10;
const SPACE: Namespace<'static> = Namespace { model: "m", compat_key: "c" };
const SESSION: SessionId = SessionId(1);

/// A daemon's inside: store, arena, worker, and a disk that does as it is told.
struct Rig {
    brain: Arc<Brain>,
    device: Arc<Device>,
    worker: Worker,
    control: SimControl,
    effects: Effects,
    _arena: Arena,
}

fn settings(now_ms: u64, hash_seed: u64) -> Settings {
    let space_bytes = CONTAINER_BYTES * u64::from(CONTAINERS);
    Settings {
        tag: 7,
        journal_bytes: RECORD_BYTES,
        snapshot_bytes_max: RECORD_BYTES,
        space_bytes,
        expected_bytes: space_bytes,
        hash_seed,
        now: WallTime(now_ms),
    }
}

/// Every file of a device.
fn all_files() -> impl Iterator<Item = FileId> {
    let records = HALVES.into_iter().flat_map(|half| [journal_file(half), snapshot_file(half)]);
    records.chain((0..CONTAINERS).map(container_file))
}

impl Rig {
    /// A new device.
    fn new(durability: Durability, config: SimConfig) -> Self {
        let (mut disk, control) = SimDisk::new(config).unwrap();
        for half in HALVES {
            control.resize(journal_file(half), RECORD_BYTES);
            control.resize(snapshot_file(half), RECORD_BYTES);
        }
        (0..CONTAINERS).for_each(|number| control.resize(container_file(number), CONTAINER_BYTES));
        let wanted = ArenaConfig {
            bytes: ARENA_BYTES,
            hugetlb: false,
            numa: NumaPolicy::Interleave,
            pin: false,
        };
        let arena = Arena::create(wanted).unwrap();
        let mut config = StoreConfig::new(ARENA_BYTES, ARENA_BYTES);
        config.disk = DiskConfig { durability, ..DiskConfig::new(1, ARENA_BYTES) };
        let watch = Arc::new(ExitWatch::new().unwrap());
        let brain = Arc::new(Brain::new(config, Arc::clone(arena.mapping()), watch, None));
        all_files().for_each(|file| disk.attach_made(file));
        let device = Arc::new(Device::new(DeviceId(0), "/simulated".into()));
        device.prepared(CONTAINER_BYTES);
        let settings = settings(brain.wall_ms(), brain.hash_seed());
        let warm_up = Arc::new(WarmUp::new(ARENA_BYTES));
        let worker = Worker::new(Arc::clone(&device), Arc::clone(&brain), warm_up, Box::new(disk));
        let effects = Effects::default();
        let mut rig = Self { brain, device, worker, control, effects, _arena: arena };
        rig.apply(Input::ArenaReady { bytes: ARENA_BYTES });
        rig.apply(Input::Open { session: SESSION, peer: Peer::Unknowable, process: None });
        rig.device.order(Order::Ready(Box::new(Tablespace::new(settings))));
        let bytes = settings.space_bytes;
        rig.device.order(Order::Space { bytes, expected_bytes: bytes });
        rig.turn();
        rig
    }

    fn apply(&mut self, input: Input<'_>) -> Outcome {
        self.brain.apply(input, &mut self.effects);
        self.effects.outcome
    }

    fn turn(&mut self) {
        // The first wait may end at once for a wake; only the second lets the disk's time pass.
        for _ in 0..2 {
            let _on = self.worker.turn(Duration::from_micros(100));
        }
    }

    /// Turns until `holds`, or long enough to give up.
    fn turn_until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) -> bool {
        (0..5_000).any(|_| {
            self.turn();
            holds(self)
        })
    }

    /// Stores a block; what its acknowledgement waits for.
    fn put(&mut self, key: &[u8], bytes: &[u8], class: Retention) -> Option<WaitId> {
        let reserve = Input::Reserve {
            session: SESSION,
            len_bytes: bytes.len() as u64,
            class: Some(class),
            writer: Writer::Daemon,
        };
        let Outcome::Reserved(Ok(granted)) = self.apply(reserve) else {
            panic!("{:?}: {:?}", self.effects.outcome, self.stats());
        };
        self.brain.arena().copy_in(granted.payload_offset, bytes);
        let stored = self.apply(Input::Commit(Commit {
            session: SESSION,
            ticket: granted.ticket,
            namespace: SPACE,
            key,
            len_bytes: bytes.len() as u64,
            retention: class,
            ttl_ms: None,
            lineage: None,
            checksum: None,
            rules: CommitRules::Lease,
        }));
        assert_eq!(stored, Outcome::Committed(Ok(())));
        self.effects.wait
    }

    /// Works until a wait is decided.
    fn verdict(&mut self, wait: WaitId) -> Verdict {
        let mut verdict = Verdict::Pending;
        self.turn_until(|rig| {
            let Outcome::Verdict(found) = rig.apply(Input::Verdict { wait, give_up: false }) else {
                panic!("no verdict");
            };
            verdict = found;
            found != Verdict::Pending
        });
        verdict
    }

    /// Fetches a block, from the device if need be.
    fn get(&mut self, key: &[u8]) -> Result<Vec<u8>, MissReason> {
        let mut answer = None;
        self.turn_until(|rig| {
            rig.apply(Input::Fetch {
                session: SESSION,
                namespace: SPACE,
                keys: Keys::one(key),
                prefix: false,
                hold: Hold::Inline,
            });
            let found = rig.effects.found[0];
            answer = match found {
                Found::Loading => None,
                Found::Miss(reason) => Some(Err(reason)),
                Found::Hit(hit) => {
                    let slice = rig.brain.arena().slice(hit.payload_offset, hit.len_bytes as usize);
                    let bytes = slice.to_vec();
                    let kvd_store::Held::Lease(lease) = hit.held else { panic!("{hit:?}") };
                    let leases = Ids::Slice(&[lease]);
                    rig.apply(Input::Release { session: SESSION, leases });
                    Some(Ok(bytes))
                }
            };
            answer.is_some()
        });
        answer.unwrap_or_else(|| panic!("no end: {:?}", self.stats()))
    }

    /// Works until nothing is in memory only and the journal is written.
    fn settle(&mut self) {
        let number = self.device.flush();
        let settled = self.turn_until(|rig| {
            let dirty = rig.brain.inspect(|store, _| store.stats().disk.dirty_rows);
            dirty == 0 && rig.device.has_flushed(number).is_some()
        });
        assert!(settled, "{:?}", self.brain.inspect(|store, _| store.stats().disk));
    }

    fn stats(&self) -> kvd_store::DiskStats {
        self.brain.inspect(|store, _| store.stats().disk)
    }

    fn health(&self) -> kvd_store::DeviceHealth {
        self.brain.inspect(|store, _| store.devices()[0].health)
    }
}

/// Bytes that tell which version of which key they are.
fn bytes_of(key: u64, version: u64) -> Vec<u8> {
    let len = [0_u64, 5, 4_000, 5_000, 70_000, 140_000][usize::try_from(key % 6).unwrap()];
    let seed = key.wrapping_mul(31).wrapping_add(version.wrapping_mul(1_000_003));
    let mut bytes: Vec<u8> = version.to_le_bytes().to_vec();
    bytes
        .extend((0..len).map(|at| u8::try_from((seed ^ at.wrapping_mul(97) >> 3) & 0xFF).unwrap()));
    bytes
}

fn name_of(key: u64) -> Vec<u8> {
    format!("key-{key}").into_bytes()
}

/// The version that bytes are, if they are right.
fn version_in(key: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == bytes_of(key, version), "wrong bytes of key {key}, version {version}");
    version
}
