//! What an earlier build left in memory and on disk is found by this one, every block of it; what a later build left is
//! left alone. `tests/golden/state` holds what the first landed build left; `upgrade_builds.rs` lets the builds themselves
//! follow each other.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

use kvd_client::{ClearScope, Client, ClientError, MissReason, Namespace, Retention};
use kvd_store::LEDGER_VERSION;
use kvd_store::tablespace::FORMAT_VERSION;
use kvd_tests::client::ClientProcess;
use kvd_tests::content::bytes_of;
use kvd_tests::disk::{Directory, OURS, device, wait_ready, wait_written};
use kvd_tests::engine::{NAMESPACE, client_at, key_of};
use kvd_tests::figures::{figure, wait_idle, wait_warm};
use kvd_tests::state::{self, ARENA, LEDGER};
use kvd_tests::supervisor::Supervisor;
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch, PATIENCE};

const NOT_TAKEN_OVER: &str = "are not taken over";
/// Its names do not fit into one record of the ledger.
const LONG_NAMES: Namespace<'static> = Namespace {
    model: "a model whose name is as long as the paths are that some people give to their models",
    compat_key: "sha256:0f343b0931126a20f133d67c2b018a3b0f343b0931126a20f133d67c2b018a3b",
};
/// Cleared before the state was left.
const CLEARED: Namespace<'static> = Namespace { model: "m", compat_key: "cleared" };
/// Of none, inside a page, whole pages, large.
const LENS: [usize; 8] = [0, 1, 100, 4_096, 5_000, 9_000, 70_000, 12_000];
const YEARS: Duration = Duration::from_secs(50 * 365 * 86_400);

/// A block of the state.
struct Block {
    namespace: Namespace<'static>,
    key: Vec<u8>,
    len: usize,
    class: Retention,
    ttl: Option<Duration>,
}

impl Block {
    fn new(key: impl Into<Vec<u8>>, len: usize, class: Retention) -> Self {
        Self { namespace: NAMESPACE, key: key.into(), len, class, ttl: None }
    }

    fn store(&self, client: &Client) {
        let bytes = bytes_of(&self.key, self.len);
        client.put(self.namespace, &self.key, &bytes, self.class, self.ttl).unwrap();
    }

    fn check(&self, client: &Client) {
        let found = client.get(self.namespace, &self.key).unwrap();
        assert!(found == bytes_of(&self.key, self.len), "wrong bytes of {:?}", self.key);
    }
}

/// Stored in the first life of the state, and on disk since.
fn of_the_first_life() -> Vec<Block> {
    let mut blocks: Vec<Block> = (0..).zip(LENS).map(|(index, len)| long(index, len)).collect();
    blocks.push(Block { ttl: Some(YEARS), ..Block::new("lasting", 2_000, Retention::Long) });
    for key in [vec![b'k'; 200], b"short key".to_vec()] {
        blocks.push(Block { namespace: LONG_NAMES, ..Block::new(key, 1_500, Retention::Long) });
    }
    blocks
}

/// Stored in the second life, on disk too. The first one replaces one of the first life.
fn of_the_second_life() -> Vec<Block> {
    vec![long(1, 777), long(8, 4_097), long(9, 65_536), long(10, 64)]
}

fn long(index: usize, len: usize) -> Block {
    Block::new(format!("long-{index}"), len, Retention::Long)
}

/// In memory only.
fn short() -> Vec<Block> {
    let blocks =
        (0..).zip(LENS).map(|(index, len)| Block::new(key_of(index), len, Retention::Short));
    blocks.chain([Block::new("ephemeral", 300, Retention::Ephemeral)]).collect()
}

/// What has to be found, by key: on disk, and in all.
fn left() -> (Vec<Block>, Vec<Block>) {
    let stored = of_the_first_life().into_iter().chain(of_the_second_life());
    let disk: BTreeMap<_, _> = stored.map(|block| (block.key.clone(), block)).collect();
    (disk.into_values().collect(), short())
}

/// As it was when the state was left: memory that holds all of it.
fn launch() -> Launch {
    Launch::new().args(["--max-bytes", "16M"])
}

fn launch_with(directory: &Directory) -> Launch {
    let disk = ["--long-bytes", "32M", "--second-touch=false", "--long-path"];
    launch().args(disk).args([directory.path()])
}

fn misses(client: &Client, namespace: Namespace<'_>, key: &[u8]) -> MissReason {
    match client.get(namespace, key) {
        Err(ClientError::Miss(reason)) => reason,
        other => panic!("{key:?} is no miss: {:?}", other.map(|bytes| bytes.len())),
    }
}

fn check_absent(client: &Client) {
    (0..2_u8).for_each(|number| {
        misses(client, CLEARED, &[number]);
    });
    misses(client, NAMESPACE, b"brief");
}

/// Everything in memory is there, and nothing of it was dropped but what had to be.
fn check_memory(daemon: &Daemon, generation: u64) {
    let (disk, memory) = left();
    assert_eq!(figure(daemon, "/succession/generation"), generation);
    assert_eq!(figure(daemon, "/succession/adopted_rows"), (disk.len() + memory.len()) as u64);
    for reason in ["torn", "conflicting", "without_room"] {
        assert_eq!(figure(daemon, &format!("/succession/dropped_rows/{reason}")), 0, "{reason}");
    }
    let client = client_at(daemon.socket());
    disk.iter().chain(&memory).for_each(|block| block.check(&client));
    check_absent(&client);
}

fn check_disk(daemon: &Daemon) {
    wait_ready(daemon);
    assert_eq!(figure(daemon, "/disk/entries"), left().0.len() as u64);
    assert_eq!(figure(daemon, "/disk/corrupt_total"), 0);
}

#[test]
fn memory_and_disk_of_the_first_landed_build_are_taken_over() {
    let (supervisor, directory) = (Supervisor::new(), Directory::new());
    state::leave_in_memory(&state::golden(), &supervisor);
    state::leave_on_disk(&state::golden(), &directory);
    // Twice by this build: it goes on writing what it found.
    for generation in 3..5 {
        let daemon = supervisor.start(launch_with(&directory));
        check_memory(&daemon, generation);
        // Its time ended before the first of them.
        let expired = u64::from(generation == 3);
        assert_eq!(figure(&daemon, "/succession/dropped_rows/expired"), expired);
        check_disk(&daemon);
        // Who held something is long gone.
        wait_idle(&daemon, PATIENCE);
        daemon.kill();
    }
}

#[test]
fn memory_alone_is_taken_over() {
    let supervisor = Supervisor::new();
    state::leave_in_memory(&state::golden(), &supervisor);
    let daemon = supervisor.start(launch());
    check_memory(&daemon, 3);
    assert!(daemon.stop().success());
}

#[test]
fn a_disk_alone_is_taken_over() {
    let directory = Directory::new();
    state::leave_on_disk(&state::golden(), &directory);
    let daemon = launch_with(&directory).start();
    wait_warm(&daemon);
    check_disk(&daemon);
    let client = client_at(daemon.socket());
    let (disk, memory) = left();
    disk.iter().for_each(|block| block.check(&client));
    check_absent(&client);
    for block in &memory {
        assert_eq!(misses(&client, NAMESPACE, &block.key), MissReason::NeverStored);
    }
    assert!(daemon.stop().success());
}

/// Whole, but for its version: what a later build may leave.
#[test]
fn a_ledger_of_a_later_version_is_named_and_begins_anew() {
    let supervisor = Supervisor::new();
    state::leave_in_memory(&state::golden(), &supervisor);
    let ledger = File::from(supervisor.descriptors(LEDGER).remove(0));
    ledger.write_at(&(LEDGER_VERSION + 1).to_le_bytes(), 8).unwrap();
    state::seal_header(&ledger);
    let daemon = supervisor.start(launch().announce(NOT_TAKEN_OVER));
    let said = daemon.log().wait_for(NOT_TAKEN_OVER);
    let why = format!("has version {}, this daemon reads {LEDGER_VERSION}", LEDGER_VERSION + 1);
    assert!(said.contains(&why), "{said}");
    assert_eq!(daemon.admin_json("/v1/stats")["succession"]["refused"], true);
    let client = client_at(daemon.socket());
    for block in short() {
        assert_eq!(misses(&client, NAMESPACE, &block.key), MissReason::NeverStored);
    }
    // What it stores itself is kept.
    short().iter().for_each(|block| block.store(&client));
    assert_eq!(supervisor.kept(), [ARENA, LEDGER]);
    daemon.kill();
    let daemon = supervisor.start(launch());
    let client = client_at(daemon.socket());
    short().iter().for_each(|block| block.check(&client));
    assert!(daemon.stop().success());
}

/// The daemon's files but for the lock, which names a process.
fn files_of(directory: &Directory) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(directory.path().join(OURS)).unwrap().flatten();
    let read = |entry: fs::DirEntry| {
        (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
    };
    entries.map(read).filter(|(name, _)| name != "lock").collect()
}

/// Writes another version into both copies of the superblock, each with its checksum.
fn set_format_version(directory: &Directory, version: u32) {
    const COPY: usize = 4_096;
    let path = directory.ours("superblock");
    let mut bytes = fs::read(&path).unwrap();
    for copy in bytes.chunks_mut(COPY) {
        copy[16..20].copy_from_slice(&version.to_le_bytes());
        let mut checksum = kvd_shm::checksum::Checksum::new();
        checksum.update(&copy[16..]);
        copy[8..16].copy_from_slice(&checksum.value().to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_disk_of_a_later_version_is_named_and_not_touched() {
    let (supervisor, directory) = (Supervisor::new(), Directory::new());
    state::leave_in_memory(&state::golden(), &supervisor);
    state::leave_on_disk(&state::golden(), &directory);
    set_format_version(&directory, FORMAT_VERSION + 1);
    let before = files_of(&directory);
    let refused = "the disk tier does without a directory";
    let daemon = supervisor.start(launch_with(&directory).announce(refused));
    let said = daemon.log().wait_for(refused);
    let later = FORMAT_VERSION + 1;
    let why = format!("format version {later}, this release knows {FORMAT_VERSION}");
    assert!(said.contains(&why) && said.contains("use the release that wrote it"), "{said}");
    assert_eq!(device(&daemon)["health"], "refused");
    // Memory is another matter.
    check_memory(&daemon, 3);
    assert!(daemon.stop().success());
    assert!(files_of(&directory) == before, "it was touched");
    // The build that knows it finds all of it.
    set_format_version(&directory, FORMAT_VERSION);
    let daemon = launch_with(&directory).start();
    wait_warm(&daemon);
    check_disk(&daemon);
    let client = client_at(daemon.socket());
    left().0.iter().for_each(|block| block.check(&client));
    assert!(daemon.stop().success());
}

/// Leaves the golden state anew, by the daemon at `KVD_PREVIOUS`, in the folder `KVD_STATE`.
#[test]
#[ignore = "writes the golden state: scripts/e2e-upgrade.sh --write-state"]
fn the_golden_state_is_left() {
    let variable = |name| std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set"));
    let program = std::path::PathBuf::from(variable("KVD_PREVIOUS")).join("infera-kvd");
    let (supervisor, directory) = (Supervisor::new(), Directory::new());
    let start = |more: &[&str]| {
        let launch = launch_with(&directory).args(more.iter().copied());
        let daemon = supervisor.start(launch.program(&program));
        wait_warm(&daemon);
        wait_ready(&daemon);
        daemon
    };
    let daemon = start(&["--durability=strict"]);
    let client = client_at(daemon.socket());
    // Each of them is a write of its own to the journal, which gets full enough for a snapshot.
    (0..200).for_each(|len| long(1, len).store(&client));
    of_the_first_life().iter().for_each(|block| block.store(&client));
    (0..2_u8).for_each(|number| {
        let block = Block::new([number], 800, Retention::Long);
        Block { namespace: CLEARED, ..block }.store(&client);
    });
    wait_written(&daemon);
    drop(client);
    assert!(daemon.stop().success());
    let daemon = start(&[]);
    let client = client_at(daemon.socket());
    of_the_second_life().iter().for_each(|block| block.store(&client));
    client.clear(ClearScope::Namespace(CLEARED)).unwrap();
    wait_written(&daemon);
    // Writing what waits would write these, too.
    short().iter().for_each(|block| block.store(&client));
    let brief = Some(Duration::from_secs(20));
    Block { ttl: brief, ..Block::new("brief", 500, Retention::Short) }.store(&client);
    let holder = ClientProcess::start(daemon.socket(), &["hold", "2", "1000", "3"]);
    let _holding = holder.heard("holding");
    drop(client);
    until_true("only the holder is connected", || figure(&daemon, "/sessions_connected") == 1);
    daemon.kill();
    let _gone = holder.kill();
    let snapshots =
        ["snapshot-a", "snapshot-b"].map(|name| fs::read(directory.ours(name)).unwrap());
    assert!(snapshots.iter().flatten().any(|byte| *byte != 0), "no snapshot was written");
    state::save(variable("KVD_STATE").as_ref(), &supervisor, &directory);
}
