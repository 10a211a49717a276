//! Two builds that take over from each other, again and again, while engines of both go on: over memory and disk, over
//! stops and kills. `scripts/e2e-upgrade.sh` builds the earlier one.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use kvd_client::{Client, Retention};
use kvd_tests::client::{ClientLaunch, ClientProcess};
use kvd_tests::content::{Random, bytes_of};
use kvd_tests::disk::{Directory, has, put, wait_ready};
use kvd_tests::engine::{NAMESPACE, client_at};
use kvd_tests::figures::{figure, wait_warm};
use kvd_tests::state::{ARENA, LEDGER};
use kvd_tests::supervisor::Supervisor;
use kvd_tests::until::until_true;
use kvd_tests::wire::{Attached, Value, Wire};
use kvd_tests::{Daemon, Launch};

/// Lives in all: the earlier build has the odd ones. Each build ends by a stop and by a kill, before and after memory is
/// lost.
const LIVES: u64 = 14;
/// What each life stores, of which the next ones find everything.
const BLOCKS: u64 = 24;
/// Before these lives memory is lost, so that all is read from disk: one of each build.
const WITHOUT_MEMORY: [u64; 2] = [6, 11];

/// A program of the earlier build.
fn earlier(name: &str) -> PathBuf {
    let folder = std::env::var_os("KVD_PREVIOUS");
    let folder = folder.unwrap_or_else(|| panic!("KVD_PREVIOUS is not set: where it was built"));
    Path::new(&folder).join(name)
}

fn is_earlier(life: u64) -> bool {
    life % 2 == 1
}

fn launch(life: u64, directory: &Directory) -> Launch {
    let sizes = ["--max-bytes", "96M", "--long-bytes", "256M", "--second-touch=false"];
    // What is to be on disk is there once it is acknowledged.
    let launch = Launch::new()
        .args(sizes)
        .args(["--durability=strict"])
        .args(["--long-path".as_ref(), directory.path().as_os_str()]);
    if is_earlier(life) { launch.program(earlier("infera-kvd")) } else { launch }
}

fn key_of(life: u64, index: u64) -> Vec<u8> {
    format!("life-{life}-{index}").into_bytes()
}

/// Of every kind: none, inside a page, whole pages, large.
fn len_of(index: u64) -> usize {
    [0, 1, 100, 4_096, 5_000, 65_536, 65_537, 100_000][usize::try_from(index % 8).unwrap()]
}

/// Half of them are to be on disk.
fn class_of(index: u64) -> Retention {
    if index < BLOCKS / 2 { Retention::Long } else { Retention::Short }
}

fn store(client: &Client, life: u64) {
    for index in 0..BLOCKS {
        put(client, &key_of(life, index), len_of(index), class_of(index));
    }
}

/// Raises a flag with its own end, which may be a panic: nobody waits for who waits for the flag.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// An engine with an unchanged client of protocol 1: it knows nothing of leases, and connects anew when it has to.
#[derive(Default)]
struct Engine {
    end: AtomicBool,
    connections: AtomicU64,
    hits: AtomicU64,
    misses: AtomicU64,
    wrong: AtomicU64,
}

impl Engine {
    const KEYS: usize = 300;

    fn run(&self, socket: &Path) {
        let mut random = Random::seeded(1);
        while !self.end.load(Ordering::Relaxed) {
            let attached = Wire::try_connect(socket).ok().and_then(|wire| wire.try_attach(1));
            if let Some(mut attached) = attached {
                self.connections.fetch_add(1, Ordering::Relaxed);
                while !self.end.load(Ordering::Relaxed) {
                    if self.request(&mut attached, &mut random).is_none() {
                        break;
                    }
                }
            }
            std::thread::yield_now();
        }
    }

    /// One get, and a set if that is a miss; none once the daemon has closed.
    fn request(&self, attached: &mut Attached, random: &mut Random) -> Option<()> {
        let number = random.below(Self::KEYS);
        let key = format!("engine-{number}").into_bytes();
        let expected = bytes_of(&key, 97 * number);
        let name = [
            ("key", Value::from(key)),
            ("model", Value::from(NAMESPACE.model)),
            ("compat_key", Value::from(NAMESPACE.compat_key)),
        ];
        let answer = attached.wire.try_ask("get", &name)?;
        let found = if answer.op() == "get_response" {
            answer.bytes("value").map(<[u8]>::to_vec)
        } else {
            let mut bytes = vec![0; usize::try_from(answer.u64("length")).unwrap()];
            attached.arena.copy_out(answer.u64("slot_offset"), &mut bytes);
            Some(bytes)
        };
        let Some(found) = found else {
            self.misses.fetch_add(1, Ordering::Relaxed);
            let more = [("value", Value::from(expected)), ("retention", Value::from("short"))];
            let answer = attached.wire.try_ask("set", &[&name[..], &more].concat())?;
            assert_eq!(answer.op(), "set_ack");
            return Some(());
        };
        let counted = if found == expected { &self.hits } else { &self.wrong };
        counted.fetch_add(1, Ordering::Relaxed);
        Some(())
    }
}

/// What the lives before left is there: all of it since memory was last lost, and of those before what is on disk.
fn check(daemon: &Daemon, life: u64, memory_since: u64) -> u64 {
    let client = client_at(daemon.socket());
    let mut found = 0;
    for before in 1..life {
        for index in 0..BLOCKS {
            let is_there = has(&client, &key_of(before, index), len_of(index));
            let must_be = before >= memory_since || class_of(index) == Retention::Long;
            assert!(is_there || !must_be, "{index} of life {before} in {life}");
            found += u64::from(is_there);
        }
    }
    found
}

#[test]
#[ignore = "needs an earlier build: scripts/e2e-upgrade.sh"]
fn builds_take_over_from_each_other() {
    let (supervisor, directory) = (Supervisor::new(), Directory::new());
    let socket = supervisor.service_socket();
    let engine = Engine::default();
    let mut clients = Vec::new();
    let (mut adopted, mut found) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| engine.run(&socket));
        let _at_the_end = Ending(&engine.end);
        let mut memory_since = 1;
        for life in 1..=LIVES {
            if WITHOUT_MEMORY.contains(&life) {
                supervisor.lose(ARENA);
                supervisor.lose(LEDGER);
                memory_since = life;
            }
            let daemon = supervisor.start(launch(life, &directory));
            wait_warm(&daemon);
            wait_ready(&daemon);
            let generation = life - memory_since + 1;
            assert_eq!(figure(&daemon, "/succession/generation"), generation, "life {life}");
            for reason in ["conflicting", "without_room"] {
                assert_eq!(figure(&daemon, &format!("/succession/dropped_rows/{reason}")), 0);
            }
            adopted += figure(&daemon, "/succession/adopted_rows");
            found += check(&daemon, life, memory_since);
            store(&client_at(&socket), life);
            if life == 1 {
                clients = engines(&socket);
            }
            let before = engine.hits.load(Ordering::Relaxed);
            until_true("the engine finds blocks", || {
                engine.hits.load(Ordering::Relaxed) > before + 200
            });
            end(daemon, life);
        }
    });
    for client in clients {
        let ended = client.finish();
        assert!(ended.status.success(), "{:?}", ended.said);
        assert!(
            ended.figure("epochs") >= LIVES / 2 && ended.figure("hits") > 0,
            "{:?}",
            ended.said
        );
    }
    let count = |counted: &AtomicU64| counted.load(Ordering::Relaxed);
    println!(
        "{LIVES} lives, {adopted} rows taken over, {found} blocks of earlier lives found; protocol 1: {} hits, {} \
         misses, {} wrong, {} connections",
        count(&engine.hits),
        count(&engine.misses),
        count(&engine.wrong),
        count(&engine.connections),
    );
    assert_eq!(count(&engine.wrong), 0);
    assert!(count(&engine.connections) >= LIVES && adopted > LIVES * BLOCKS);
}

/// Engines with clients of both builds: each checks every byte that it reads, in views that outlive daemons.
fn engines(socket: &Path) -> Vec<ClientProcess> {
    let words = |seed: &str| ["come-and-go".to_owned(), seed.to_owned()];
    let client = |seed| ClientLaunch::new(socket, words(seed)).start();
    let earlier = |seed| {
        let words = [vec![socket.to_str().unwrap().to_owned()], words(seed).to_vec()].concat();
        ClientLaunch::program(earlier("kvd-test-client"), words).start()
    };
    vec![client("1"), client("2"), earlier("3"), earlier("4")]
}

/// Two lives end by a stop, the next two by a kill.
fn end(daemon: Daemon, life: u64) {
    if life % 4 < 2 {
        assert!(daemon.stop().success());
    } else {
        daemon.kill();
    }
}
