//! The daemon's own brain and device worker on a simulated disk, driven by one thread, in virtual time.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use infera_kvd::brain::Brain;
use infera_kvd::devices::device::{Device, Order};
use infera_kvd::devices::pieces::{container_file, journal_file, snapshot_file};
use infera_kvd::devices::recovery::recover;
use infera_kvd::devices::worker::Worker;
use infera_kvd::warm_up::WarmUp;
use kvd_client::{Namespace, Retention};
use kvd_disk::sim::crash::Image;
use kvd_disk::sim::{SimConfig, SimControl, SimDisk};
use kvd_disk::{Action, Completion, Disk, FileId, Operation, Waker};
use kvd_proto::ids::SessionId;
use kvd_shm::arena::{Arena, ArenaConfig};
use kvd_shm::checksum;
use kvd_shm::exit_watch::ExitWatch;
use kvd_shm::mapping::Mapping;
use kvd_shm::numa::NumaPolicy;
use kvd_store::tablespace::geometry::{journal_name, snapshot_name};
use kvd_store::tablespace::recovery::Report;
use kvd_store::tablespace::{SEGMENTS_OFFSET, Settings, WallTime};
use kvd_store::{
    ClearCursor, ClearScope, Commit, CommitRules, DeviceHealth, DeviceId, DiskConfig, Durability,
    Effects, Found, Half, Held, Hold, Ids, Input, Keys, Outcome, Peer, StoreConfig, Verdict,
    WaitId, Writer,
};
use tempfile::TempDir;

const ARENA_BYTES: u64 = 512 << 10;
const JOURNAL_BYTES: u64 = 128 << 10;
const SNAPSHOT_BYTES: u64 = SEGMENTS_OFFSET + (64 << 10);
const CONTAINER_BYTES: u64 = 256 << 10;
const SESSION: SessionId = SessionId(1);
/// A file that nobody reads.
const ASIDE: FileId = FileId(1_000);
/// Turns after which whatever was asked for has ended, or never does.
const TURNS_MAX: usize = 2_000;

/// What all rigs of a case share.
pub(crate) struct Bench {
    arena: Arena,
    /// In memory: recovery reads files.
    folder: TempDir,
    containers: u32,
    durability: Durability,
}

/// A daemon's heart on a simulated disk.
pub(crate) struct Rig {
    brain: Arc<Brain>,
    worker: Worker,
    pub(crate) control: SimControl,
    effects: Effects,
    arena: Arc<Mapping>,
    /// What recovery said.
    pub(crate) report: Report,
}

/// How the disk treats syncs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Syncs {
    Kept,
    /// Those of the journals are reported as done, and nothing is.
    NoneOfJournals,
    /// The same of the snapshots.
    NoneOfSnapshots,
    /// The same of the containers.
    NoneOfContainers,
}

impl Syncs {
    /// Whether a sync of this file does nothing.
    fn ignores(self, file: FileId) -> bool {
        let is_one_of = |name: fn(Half) -> FileId| file == name(Half::A) || file == name(Half::B);
        match self {
            Self::Kept => false,
            Self::NoneOfJournals => is_one_of(journal_file),
            Self::NoneOfSnapshots => is_one_of(snapshot_file),
            Self::NoneOfContainers => file >= container_file(0),
        }
    }
}

/// How a store went.
pub(crate) enum Put {
    /// It is acknowledged.
    Done,
    /// It will be, once this is decided.
    Waits(WaitId),
    /// Nothing has changed.
    Refused,
}

impl Bench {
    /// With so many containers of 256 KiB.
    pub(crate) fn new(containers: u32, durability: Durability) -> Self {
        let numa = NumaPolicy::Interleave;
        let config = ArenaConfig { bytes: ARENA_BYTES, hugetlb: false, numa, pin: false };
        let arena = Arena::create(config).unwrap();
        arena.touch(0..ARENA_BYTES).unwrap();
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() {
            tempfile::tempdir_in(memory).unwrap()
        } else {
            tempfile::tempdir().unwrap()
        };
        Self { arena, folder, containers, durability }
    }

    /// A rig on a disk that holds `image`, or nothing yet.
    pub(crate) fn rig(&self, image: Option<&Image>, disk: SimConfig, syncs: Syncs) -> Rig {
        let arena = Arc::clone(self.arena.mapping());
        // What an earlier rig left there must not pass for what is read now.
        arena.copy_in(0, &vec![0xA5; usize::try_from(ARENA_BYTES).unwrap()]);
        let mut config = StoreConfig::new(ARENA_BYTES, ARENA_BYTES);
        config.evidence_slots = 1 << 8;
        config.disk = DiskConfig::new(1, ARENA_BYTES);
        config.disk.durability = self.durability;
        config.disk.load_bytes_max = ARENA_BYTES / 2;
        let watch = Arc::new(ExitWatch::new().unwrap());
        let brain = Arc::new(Brain::new(config, Arc::clone(&arena), watch, None));
        let (disk, control) = self.disk(image, disk);
        let device = Arc::new(Device::new(DeviceId(0), self.folder.path().into()));
        device.prepared(CONTAINER_BYTES);
        let disk = Box::new(Liar { disk, syncs });
        let warm_up = Arc::new(WarmUp::new(ARENA_BYTES));
        let worker = Worker::new(Arc::clone(&device), Arc::clone(&brain), warm_up, disk);
        let report = self.recover(image, &brain, &device);
        let mut rig = Rig { brain, worker, control, effects: Effects::default(), arena, report };
        rig.apply(Input::ArenaReady { bytes: ARENA_BYTES });
        rig.apply(Input::Open { session: SESSION, peer: Peer::Watched, process: None });
        rig.turn_until(|rig| {
            let devices = rig.brain.inspect(|store, _| store.devices());
            devices[0].health == DeviceHealth::Ready && devices[0].capacity_bytes > 0
        });
        rig
    }

    fn disk(&self, image: Option<&Image>, config: SimConfig) -> (SimDisk, SimControl) {
        let (mut disk, control) = SimDisk::new(config).unwrap();
        let halves = [Half::A, Half::B].into_iter();
        let records = halves.flat_map(|half| {
            [(journal_file(half), JOURNAL_BYTES), (snapshot_file(half), SNAPSHOT_BYTES)]
        });
        let containers =
            (0..self.containers).map(|number| (container_file(number), CONTAINER_BYTES));
        for (file, bytes) in records.chain(containers).chain([(ASIDE, 0)]) {
            let known = image.and_then(|image| image.get(&file)).cloned().unwrap_or_default();
            control.make(file, known);
            control.resize(file, bytes);
            disk.attach_made(file);
        }
        (disk, control)
    }

    /// As the daemon does it: from files.
    fn recover(&self, image: Option<&Image>, brain: &Brain, device: &Device) -> Report {
        let nothing = Image::new();
        let image = image.unwrap_or(&nothing);
        for half in [Half::A, Half::B] {
            self.write(journal_name(half), image.get(&journal_file(half)), JOURNAL_BYTES);
            self.write(snapshot_name(half), image.get(&snapshot_file(half)), SNAPSHOT_BYTES);
        }
        let bytes = u64::from(self.containers) * CONTAINER_BYTES;
        let settings = Settings {
            tag: 7,
            journal_bytes: JOURNAL_BYTES,
            snapshot_bytes_max: SNAPSHOT_BYTES,
            space_bytes: bytes,
            expected_bytes: bytes,
            hash_seed: brain.hash_seed(),
            now: WallTime(brain.wall_ms()),
        };
        let (tablespace, report) = recover(self.folder.path(), settings).unwrap();
        device.order(Order::Ready(Box::new(tablespace)));
        device.order(Order::Space { bytes, expected_bytes: bytes });
        report
    }

    fn write(&self, name: &str, contents: Option<&Vec<u8>>, bytes: u64) {
        let file = File::create(self.folder.path().join(name)).unwrap();
        if let Some(contents) = contents {
            let used = contents.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            file.write_all_at(&contents[..used], 0).unwrap();
        }
        file.set_len(bytes).unwrap();
    }
}

impl Rig {
    fn apply(&mut self, input: Input<'_>) {
        self.brain.apply(input, &mut self.effects);
    }

    /// One turn of the device's thread.
    pub(crate) fn turn(&mut self) {
        self.worker.turn(Duration::from_millis(1));
    }

    fn turn_until(&mut self, mut holds: impl FnMut(&mut Self) -> bool) {
        for _ in 0..TURNS_MAX {
            if holds(self) {
                return;
            }
            // The first may end at once, because the question woke the disk; then time passes.
            self.turn();
            self.turn();
        }
        panic!("nothing comes of {TURNS_MAX} turns");
    }

    /// Steps of the disk so far.
    pub(crate) fn position(&self) -> u64 {
        self.control.steps() as u64
    }

    pub(crate) fn put(
        &mut self,
        namespace: Namespace<'_>,
        key: &[u8],
        bytes: &[u8],
        retention: Retention,
    ) -> Put {
        let len_bytes = bytes.len() as u64;
        self.apply(Input::Reserve {
            session: SESSION,
            len_bytes,
            class: Some(retention),
            writer: Writer::Client,
        });
        let Outcome::Reserved(Ok(granted)) = self.effects.outcome else {
            return Put::Refused;
        };
        self.arena.copy_in(granted.payload_offset, bytes);
        self.apply(Input::Commit(Commit {
            session: SESSION,
            ticket: granted.ticket,
            namespace,
            key,
            len_bytes,
            retention,
            ttl_ms: None,
            lineage: None,
            checksum: Some(checksum::of_block(bytes, key)),
            rules: CommitRules::Lease,
        }));
        match (self.effects.outcome, self.effects.wait) {
            (Outcome::Committed(Ok(())), None) => Put::Done,
            (Outcome::Committed(Ok(())), Some(wait)) => Put::Waits(wait),
            _ => Put::Refused,
        }
    }

    /// Clears a namespace; what to wait for.
    pub(crate) fn clear(&mut self, namespace: Namespace<'_>) -> Option<WaitId> {
        let mut cursor = ClearCursor::START;
        loop {
            self.apply(Input::Clear { scope: ClearScope::Namespace(namespace), cursor });
            match self.effects.outcome {
                Outcome::Cleared { next: Some(next), .. } => cursor = next,
                _ => return self.effects.wait,
            }
        }
    }

    /// How a wait stands.
    pub(crate) fn verdict(&mut self, wait: WaitId) -> Verdict {
        self.apply(Input::Verdict { wait, give_up: false });
        match self.effects.outcome {
            Outcome::Verdict(verdict) => verdict,
            other => panic!("{other:?}"),
        }
    }

    /// Turns until a wait is decided.
    pub(crate) fn decide(&mut self, wait: WaitId) -> Verdict {
        let mut verdict = Verdict::Pending;
        self.turn_until(|rig| {
            verdict = rig.verdict(wait);
            verdict != Verdict::Pending
        });
        verdict
    }

    /// The bytes under a key, from the device if they are only there.
    pub(crate) fn get(&mut self, namespace: Namespace<'_>, key: &[u8]) -> Option<Vec<u8>> {
        let mut answer = None;
        self.turn_until(|rig| {
            rig.apply(Input::Fetch {
                session: SESSION,
                namespace,
                keys: Keys::one(key),
                prefix: false,
                hold: Hold::Lease,
            });
            match rig.effects.found[0] {
                Found::Loading => false,
                Found::Miss(_) => true,
                Found::Hit(hit) => {
                    let mut bytes = vec![0; hit.len_bytes as usize];
                    rig.arena.copy_out(hit.payload_offset, &mut bytes);
                    if let Held::Lease(lease) = hit.held {
                        rig.apply(Input::Release {
                            session: SESSION,
                            leases: Ids::Slice(&[lease]),
                        });
                    }
                    answer = Some(bytes);
                    true
                }
            }
        });
        self.apply(Input::StopWaiting { session: SESSION, given_up: 0 });
        answer
    }

    /// Whether the device is still in use.
    pub(crate) fn is_well(&self) -> bool {
        let devices = self.brain.inspect(|store, _| store.devices());
        devices[0].health == DeviceHealth::Ready
    }
}

/// A disk some of whose syncs do nothing.
#[derive(Debug)]
struct Liar {
    disk: SimDisk,
    syncs: Syncs,
}

impl Disk for Liar {
    fn attach(&mut self, file: FileId, handle: File) {
        self.disk.attach(file, handle);
    }

    fn detach(&mut self, file: FileId) {
        self.disk.detach(file);
    }

    fn submit(&mut self, operation: Operation) -> Result<(), Operation> {
        let operation = match operation.action() {
            Action::Sync if self.syncs.ignores(operation.file()) => {
                Operation::sync(operation.token(), ASIDE)
            }
            Action::Sync | Action::Read | Action::Write => operation,
        };
        self.disk.submit(operation)
    }

    fn in_flight(&self) -> usize {
        self.disk.in_flight()
    }

    fn depth(&self) -> usize {
        self.disk.depth()
    }

    fn wait(&mut self, timeout: Duration, done: &mut Vec<Completion>) -> io::Result<()> {
        self.disk.wait(timeout, done)
    }

    fn waker(&self) -> Waker {
        self.disk.waker()
    }

    fn engine(&self) -> &'static str {
        self.disk.engine()
    }

    fn arena_touched(&mut self, bytes: u64) -> u64 {
        self.disk.arena_touched(bytes)
    }

    fn shut_down(self: Box<Self>) {
        Box::new(self.disk).shut_down();
    }
}
