//! What a daemon publishes, heard as a router hears it: over real sockets, with drops, restarts and evictions.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a case stops at the first surprise")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use kvd_client::{ClearScope, Retention};
use kvd_proto::block_key::Namespace;
use kvd_proto::events::{
    Batch, CacheTier, Event, Live, Registration, Replayed, Scope, SnapshotItem, SnapshotReader,
    Tally,
};
use kvd_tests::content::bytes_of;
use kvd_tests::disk::{Directory, has, put, wait_ready, wait_written};
use kvd_tests::engine::{NAMESPACE, client_at, key_of};
use kvd_tests::figures::wait_warm;
use kvd_tests::router::Etcd;
use kvd_tests::until::{until, until_true};
use kvd_tests::{Daemon, Launch, PATIENCE, binaries};
use router_core::fold::{HostSource, HostView, Moment, Need};
use router_core::index::{Budget, Index};
use serde_json::Value;
use tempfile::TempDir;
use zmq::{Context, Socket, SocketType};

const EVENTS: [&str; 4] = ["--events-listen", "127.0.0.1:0", "--host-id", "host-1"];

fn launch(more: &[&str]) -> Launch {
    Launch::new().args(["--max-bytes", "32M"]).args(EVENTS).args(more.iter().copied())
}

fn start(launch: Launch) -> Daemon {
    let daemon = launch.start();
    wait_warm(&daemon);
    daemon
}

/// Where its sockets are.
fn places(daemon: &Daemon) -> Value {
    until("events are published", PATIENCE, || {
        Some(daemon.admin_json("/v1/events")).filter(|places| places["events"].is_string())
    })
}

/// A subscription to everything, with the daemon's figures if they are wanted.
fn subscribe(context: &Context, daemon: &Daemon, topic: &str) -> Socket {
    let socket = context.socket(SocketType::SUB).unwrap();
    socket.set_rcvtimeo(i32::try_from(PATIENCE.as_millis()).unwrap()).unwrap();
    socket.set_rcvhwm(200_000).unwrap();
    socket.set_subscribe(topic.as_bytes()).unwrap();
    socket.connect(places(daemon)["events"].as_str().unwrap()).unwrap();
    socket
}

/// The next message: its number and its payload.
fn next(socket: &Socket) -> (u64, Vec<u8>) {
    let parts = socket.recv_multipart(0).expect("a message");
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let live = Live::parse(&parts).unwrap();
    (live.seq.unwrap(), live.payload.to_vec())
}

/// Stores until a subscriber, which may come too late for the first messages, hears of it.
fn wait_subscribed(daemon: &Daemon, socket: &Socket) {
    let client = client_at(daemon.socket());
    until_true("the subscription stands", || {
        put(&client, b"is anybody there", 10, Retention::None);
        socket.poll(zmq::POLLIN, 20).unwrap() > 0
    });
}

/// The bytes of a snapshot.
fn snapshot_bytes(daemon: &Daemon, query: &str) -> Vec<u8> {
    let mut stream = UnixStream::connect(daemon.admin_socket()).unwrap();
    let head = format!("GET /v1/events/snapshot{query} HTTP/1.0\r\nHost: kvd\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let at = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    answer.split_off(at + 4)
}

/// Everything that is held: the epoch, the number in the header, and the rows.
fn snapshot(daemon: &Daemon, query: &str) -> (u64, u64, Vec<(CacheTier, Vec<u8>)>) {
    let (mut reader, mut rows, mut head, mut end) = (SnapshotReader::new(), Vec::new(), None, None);
    reader.push(&snapshot_bytes(daemon, query));
    while let Some(item) = reader.next_item().unwrap() {
        match item {
            SnapshotItem::Header { epoch, seq, .. } => head = Some((epoch, seq)),
            SnapshotItem::Row(row) => {
                rows.push((row.place.cache_tier().unwrap(), row.chunk.unwrap().key.to_vec()));
            }
            SnapshotItem::End { count } => end = Some(count),
            SnapshotItem::Skipped => panic!("a row that cannot be read"),
        }
    }
    assert_eq!(end, Some(rows.len() as u64), "it is whole");
    let (epoch, seq) = head.unwrap();
    (epoch, seq, rows)
}

fn kvdctl(daemon: &Daemon, words: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(binaries::path_of("kvdctl"))
        .args(words)
        .env("INFERA_KVD_SOCKET", daemon.socket())
        .env_remove("INFERA_KVD_ADMIN_SOCKET")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), String::from_utf8(output.stdout).unwrap() + &said)
}

/// Checks what is told against what is held, for so many seconds.
fn check(daemon: &Daemon, seconds: &str, more: &[&str]) -> Value {
    let words = [&["events", "--check", "--json", "--for", seconds], more].concat();
    let (code, said) = kvdctl(daemon, &words);
    assert_eq!(code, Some(0), "{said}");
    serde_json::from_str(&said).unwrap()
}

/// Somebody who stores, replaces, lets expire and clears, until told to stop.
struct Churn {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Churn {
    fn start(socket: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (socket, stopped) = (socket.to_owned(), Arc::clone(&stop));
        let thread = Builder::new().name("churn".into()).spawn(move || {
            let client = client_at(&socket);
            let classes = [Retention::Ephemeral, Retention::Short, Retention::Long];
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                let key = key_of(number % 1_500);
                let bytes = bytes_of(&key, 40_000);
                let class = classes[usize::try_from(number % 3).unwrap()];
                let ttl = (number % 7 == 0).then_some(Duration::from_millis(50));
                // A refusal is no news.
                let _stored = client.put(NAMESPACE, &key, &bytes, class, ttl);
                if number % 5_000 == 4_999 {
                    client.clear(ClearScope::Everything).unwrap();
                }
                number += 1;
            }
            number
        });
        Self { stop, thread: thread.unwrap() }
    }

    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

#[test]
fn what_is_told_can_be_read_and_comes_in_order() {
    let daemon = start(launch(&[]));
    let context = Context::new();
    let socket = subscribe(&context, &daemon, "kvd-events");
    wait_subscribed(&daemon, &socket);
    let client = client_at(daemon.socket());
    let writer = client_at(daemon.socket());
    let writing = Builder::new().name("writer".into()).spawn(move || {
        (0..400).for_each(|number| put(&writer, &key_of(number), 1_000, Retention::Short));
    });
    let (mut last, mut seen) = (None, Vec::new());
    while seen.len() < 400 {
        let (seq, payload) = next(&socket);
        assert!(last.is_none_or(|last| seq == last + 1), "{seq} after {last:?}");
        last = Some(seq);
        for event in Batch::decode(&payload).unwrap().events() {
            let Event::Stored(stored) = event else { continue };
            let key = stored.chunk.unwrap().key;
            if key.starts_with(b"is anybody") {
                continue;
            }
            assert!(has(&client, key, 1_000), "told before it can be read");
            assert_eq!(stored.owner.id, Some("host-1"));
            seen.push(key.to_vec());
        }
    }
    writing.unwrap().join().unwrap();
    assert!(
        seen.iter().eq((0..400).map(key_of).collect::<Vec<_>>().iter()),
        "the order of commits"
    );
}

#[test]
fn what_is_told_is_what_is_held_whatever_happens() {
    let directory = Directory::new();
    let daemon = start(directory.launch(&EVENTS));
    wait_ready(&daemon);
    let churn = Churn::start(daemon.socket());
    let findings = check(&daemon, "12s", &[]);
    assert!(churn.end() > 1_500, "memory was full");
    assert!(findings["digests"].as_u64() > Some(0), "{findings}");
    assert!(findings["messages"].as_u64() > Some(10), "{findings}");
    let findings = check(&daemon, "1s", &[]);
    assert!(findings["rows"].as_u64() > Some(0), "{findings}");
    assert!(daemon.metric("infera_kvd_events_total") > Some(1_500.0));
    assert_eq!(daemon.metric("infera_kvd_events_lost_total"), Some(0.0));
}

/// What a router does with a daemon, over a line that loses every seventh message.
struct Router<'a> {
    daemon: &'a Daemon,
    context: Context,
    view: HostView,
    index: Index,
    replays: u64,
}

impl<'a> Router<'a> {
    fn new(daemon: &'a Daemon) -> Self {
        let source = HostSource { host: "host-1".into(), can_replay: true, can_snapshot: true };
        let (view, index) = (HostView::new(source), Index::new(Budget::default()));
        Self { daemon, context: Context::new(), view, index, replays: 0 }
    }

    fn hear(&mut self, seq: u64, payload: &[u8]) {
        let need = self.view.live(&self.index, seq, payload, Moment(0));
        self.meet(need);
    }

    fn meet(&mut self, mut need: Option<Need>) {
        while let Some(wanted) = need.take() {
            match wanted {
                Need::Replay { from } => {
                    self.replays += 1;
                    let dealer = self.context.socket(SocketType::DEALER).unwrap();
                    dealer.set_rcvtimeo(i32::try_from(PATIENCE.as_millis()).unwrap()).unwrap();
                    dealer.connect(places(self.daemon)["replay"].as_str().unwrap()).unwrap();
                    dealer.send(&from.to_be_bytes()[..], 0).unwrap();
                    loop {
                        let parts = dealer.recv_multipart(0).expect("an answer");
                        let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
                        let answer = Replayed::parse(&parts).unwrap();
                        need = self.view.replayed(&self.index, &answer, Moment(0)).or(need);
                        if !matches!(answer, Replayed::Message { .. }) {
                            break;
                        }
                    }
                }
                Need::Snapshot => {
                    let mut reader = SnapshotReader::new();
                    reader.push(&snapshot_bytes(self.daemon, ""));
                    while let Some(item) = reader.next_item().unwrap() {
                        need = self.view.snapshot(&self.index, &item, Moment(0)).or(need);
                    }
                }
            }
        }
    }
}

#[test]
fn a_router_that_loses_messages_has_what_the_daemon_has() {
    let directory = Directory::new();
    let daemon = start(directory.launch(&EVENTS));
    wait_ready(&daemon);
    let context = Context::new();
    let socket = subscribe(&context, &daemon, "kvd-events");
    wait_subscribed(&daemon, &socket);
    let mut router = Router::new(&daemon);
    let begin = router.view.begin();
    router.meet(begin);
    let churn = Churn::start(daemon.socket());
    let until = Instant::now() + Duration::from_secs(8);
    while Instant::now() < until {
        let (seq, payload) = next(&socket);
        if seq % 7 != 0 {
            router.hear(seq, &payload);
        }
    }
    churn.end();
    let client = client_at(daemon.socket());
    (5_000..5_005).for_each(|number| put(&client, &key_of(number), 1_000, Retention::Long));
    let published = || daemon.admin_json("/v1/events")["seq"].as_u64().unwrap();
    let mut last = 0;
    // What is held is looked at while nothing changes: times to live end for a while yet.
    until_true("the router has what the daemon has", || {
        let target = published();
        while last < target {
            let (seq, payload) = next(&socket);
            router.hear(seq, &payload);
            last = seq;
        }
        let held = [CacheTier::L2, CacheTier::L3].map(|tier| {
            let mut held = Tally::default();
            for (_, key) in snapshot(&daemon, &format!("?tier={}", tier.as_str())).2 {
                held.add(Tally::of_row([], &key));
            }
            let told = router.view.tally(NAMESPACE.model, NAMESPACE.compat_key, tier);
            (told, held)
        });
        published() == target && held.iter().all(|(told, held)| told == held && held.count >= 5)
    });
    assert!(router.replays > 5, "{} replays", router.replays);
    assert_eq!(router.view.counts().digest_mismatches, 0);
}

#[test]
fn moves_between_memory_and_disk_are_told() {
    let directory = Directory::new();
    let daemon = start(directory.launch(&EVENTS));
    wait_ready(&daemon);
    let client = client_at(daemon.socket());
    for number in 0..60 {
        put(&client, &key_of(number), 1_000_000, Retention::Long);
        wait_written(&daemon);
    }
    let tiers = |tier: CacheTier| {
        let rows = snapshot(&daemon, &format!("?tier={}", tier.as_str())).2;
        assert!(rows.iter().all(|row| row.0 == tier));
        rows.into_iter().map(|row| row.1).collect::<Vec<_>>()
    };
    let (memory, disk) = (tiers(CacheTier::L2), tiers(CacheTier::L3));
    assert_eq!(disk.len(), 60);
    assert!(memory.len() < 40 && !memory.contains(&key_of(0)), "the first ones gave way");
    assert!(has(&client, &key_of(0), 1_000_000));
    assert!(tiers(CacheTier::L2).contains(&key_of(0)), "it came up");
    let none = snapshot(&daemon, "?model=other").2;
    assert!(none.is_empty(), "{none:?}");
}

#[test]
fn missed_messages_are_sent_again_while_they_are_kept() {
    let daemon = start(launch(&[]));
    let client = client_at(daemon.socket());
    let epoch = places(&daemon)["epoch"].as_u64().unwrap();
    let context = Context::new();
    let ask = |frames: &[&[u8]]| {
        let dealer = context.socket(SocketType::DEALER).unwrap();
        dealer.set_rcvtimeo(i32::try_from(PATIENCE.as_millis()).unwrap()).unwrap();
        dealer.connect(places(&daemon)["replay"].as_str().unwrap()).unwrap();
        dealer.send_multipart(frames.iter().map(|frame| frame.to_vec()), 0).unwrap();
        let mut answers = Vec::new();
        loop {
            let parts = dealer.recv_multipart(0).expect("an answer");
            let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            match Replayed::parse(&parts).unwrap() {
                Replayed::Message { seq, epoch, .. } => answers.push((seq, epoch)),
                Replayed::End => return (answers, true),
                Replayed::TooOld => return (answers, false),
            }
        }
    };
    for number in 0..50 {
        let published = daemon.admin_json("/v1/events")["seq"].as_u64();
        put(&client, &key_of(number), 100, Retention::Short);
        until_true("one more message", || {
            daemon.admin_json("/v1/events")["seq"].as_u64() > published
        });
    }
    let first = 1_u64.to_be_bytes();
    for frames in [&[&first[..]][..], &[b"", &first]] {
        let (answers, whole) = ask(frames);
        assert!(whole && answers.len() >= 50, "{answers:?}");
        assert_eq!(answers[0], (1, Some(epoch)), "the first answer tells the life");
        assert!(
            answers
                .iter()
                .skip(1)
                .zip(2..)
                .all(|(&(seq, epoch), wanted)| { (seq, epoch) == (wanted, None) })
        );
    }
    assert!(!ask(&[&1_000_000_u64.to_be_bytes()]).1, "from another life");
    assert!(!ask(&[&0_u64.to_be_bytes()]).1, "numbers begin with 1");
    assert_eq!(daemon.metric("infera_kvd_events_replays_too_old_total"), Some(2.0));
}

#[test]
fn a_reader_that_does_not_read_costs_little_and_sees_that_it_missed_something() {
    let daemon = start(launch(&[]));
    let (slow, quick) = (Context::new(), Context::new());
    let stuck = slow.socket(SocketType::SUB).unwrap();
    stuck.set_rcvhwm(1).unwrap();
    stuck.set_rcvbuf(4_096).unwrap();
    stuck.set_rcvtimeo(i32::try_from(PATIENCE.as_millis()).unwrap()).unwrap();
    stuck.set_subscribe(b"kvd-events").unwrap();
    stuck.connect(places(&daemon)["events"].as_str().unwrap()).unwrap();
    wait_subscribed(&daemon, &stuck);
    let attentive = subscribe(&quick, &daemon, "kvd-events");
    wait_subscribed(&daemon, &attentive);
    let before = daemon.facts().private_kib;
    // Long names make long events: far more messages and bytes than queue and kernel hold for one reader.
    let name = "n".repeat(1_000);
    let namespace = Namespace { model: &name, compat_key: &name };
    let client = client_at(daemon.socket());
    let first = next(&attentive).0;
    let (mut last, mut bytes, mut number) = (first, 0, 0);
    while bytes < 24 << 20 || last < first + 600 {
        let stored = client.put(namespace, &key_of(number % 64), b"x", Retention::Short, None);
        stored.unwrap();
        number += 1;
        while attentive.poll(zmq::POLLIN, 0).unwrap() > 0 {
            let (seq, payload) = next(&attentive);
            assert_eq!(seq, last + 1, "an attentive reader misses nothing");
            last = seq;
            bytes += payload.len();
        }
    }
    let grown_kib = daemon.facts().private_kib.saturating_sub(before);
    // What is kept for replays, what waits for one reader, and as much again.
    assert!(grown_kib < 192 << 10, "the daemon grew by {grown_kib} KiB");
    let (mut stuck_last, mut gaps) = (next(&stuck).0, 0);
    while stuck_last <= last {
        // What waited for it comes first; that more is missing shows with the next message.
        if stuck.poll(zmq::POLLIN, 100).unwrap() == 0 {
            client.put(NAMESPACE, b"one more", b"x", Retention::Short, None).unwrap();
            continue;
        }
        let (seq, _) = next(&stuck);
        gaps += u64::from(seq != stuck_last + 1);
        stuck_last = seq;
    }
    assert!(gaps > 0, "{last} messages, {bytes} bytes were kept for somebody who does not read");
}

#[test]
fn a_device_that_fails_is_told_at_once() {
    let directory = Directory::new();
    let launch = directory.launch(&EVENTS).announce("disk tier");
    let daemon = start(launch.announce("a device of the disk tier is out of use"));
    wait_ready(&daemon);
    let client = client_at(daemon.socket());
    (0..5).for_each(|number| put(&client, &key_of(number), 1_000, Retention::Long));
    wait_written(&daemon);
    let context = Context::new();
    let socket = subscribe(&context, &daemon, "kvd-events");
    wait_subscribed(&daemon, &socket);
    assert_eq!(snapshot(&daemon, "?tier=l3").2.len(), 5);
    std::fs::remove_dir_all(directory.ours("")).unwrap();
    let until_cleared = || {
        let (_, payload) = next(&socket);
        let batch = Batch::decode(&payload).unwrap();
        batch.events().any(|event| match event {
            Event::Cleared(cleared) => {
                assert_eq!((cleared.scope, cleared.tier), (Scope::Tier, Some(CacheTier::L3)));
                true
            }
            _ => false,
        })
    };
    until_true("the end of the tier is told", until_cleared);
    assert_eq!(snapshot(&daemon, "?tier=l3").2, []);
    assert!(snapshot(&daemon, "?tier=l2").2.len() >= 5, "memory goes on");
    let _equal = check(&daemon, "1s", &[]);
}

#[test]
fn another_life_has_another_epoch_and_what_it_found() {
    let directory = Directory::new();
    let daemon = start(directory.launch(&EVENTS));
    wait_ready(&daemon);
    let client = client_at(daemon.socket());
    (0..5).for_each(|number| put(&client, &key_of(number), 1_000, Retention::Long));
    wait_written(&daemon);
    let before = snapshot(&daemon, "");
    assert_eq!(before.2.len(), 10, "in memory and on disk");
    assert!(daemon.stop().success());
    let daemon = start(directory.launch(&EVENTS));
    wait_ready(&daemon);
    let after = snapshot(&daemon, "");
    assert!(after.0 > before.0, "epochs grow");
    assert_eq!(after.2.len(), 5, "on disk");
    until_true("the gap is published", || {
        daemon.metric("infera_kvd_events_gaps_total") == Some(1.0)
    });
    assert!(check(&daemon, "1s", &[])["rows"] == 5);
}

#[test]
fn a_successor_publishes_at_the_same_place() {
    let folder = tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp").unwrap();
    let (events, replay) = (free_port(), free_port());
    let (socket, door) = (folder.path().join("kvd.sock"), folder.path().join("takeover.sock"));
    let launch = || {
        let addresses = [
            "--events-listen".to_owned(),
            events.to_string(),
            "--events-replay-listen".to_owned(),
            replay.to_string(),
        ];
        let door = ["--takeover-socket".into(), door.clone().into_os_string()];
        let launch = Launch::new().socket(&socket).args(["--max-bytes", "32M"]).args(addresses);
        launch.args(["--shared-arena-pin=false"]).args(door)
    };
    let daemon = launch().start();
    wait_warm(&daemon);
    let client = client_at(&socket);
    (0..5).for_each(|number| put(&client, &key_of(number), 1_000, Retention::Long));
    let before = snapshot(&daemon, "");
    let successor = launch().start_as_successor();
    assert!(daemon.wait().success());
    assert_eq!(places(&successor)["events"], format!("tcp://{events}"));
    let after = snapshot(&successor, "");
    assert!(after.0 > before.0, "its numbers are its own");
    assert_eq!(after.2, before.2);
    put(&client, &key_of(9), 1_000, Retention::Long);
    assert!(check(&successor, "1s", &[])["rows"] == 6);
}

fn free_port() -> SocketAddr {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

#[test]
fn figures_come_every_second() {
    let daemon = start(launch(&[]));
    let context = Context::new();
    let socket = subscribe(&context, &daemon, "kvd-stats");
    for _ in 0..3 {
        let (_, payload) = next(&socket);
        let event = Batch::decode(&payload).unwrap().events().next();
        let Some(Event::Stats(stats)) = event else { panic!("{event:?}") };
        let tiers: Vec<_> = stats.tiers.iter().map(|tier| (tier.tier, tier.bytes)).collect();
        assert_eq!(tiers, [(CacheTier::L2, 32 << 20)]);
    }
}

/// A file that only its owner may read.
fn secret(folder: &TempDir, name: &str, text: &str) -> String {
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn nothing_is_open_to_other_hosts_without_keys() {
    let refused = |arguments: &[&str]| {
        let finished = Launch::new().args(arguments.iter().copied()).run();
        assert_eq!(finished.code, Some(2), "{}", finished.output);
        finished.output
    };
    let said = refused(&["--events-listen", "0.0.0.0:0"]);
    assert!(said.contains("give --events-curve-file"), "{said}");
    let said = refused(&["--events-listen=127.0.0.1:0", "--events-snapshot-listen=0.0.0.0:0"]);
    assert!(said.contains("give --events-token-file"), "{said}");
    let said = refused(&["--etcd-endpoint", "127.0.0.1:2379"]);
    assert!(said.contains("nothing is published without --events-listen"), "{said}");
}

#[test]
fn only_listed_keys_hear_events() {
    let folder = tempfile::tempdir().unwrap();
    let pair = || {
        let pair = zmq::CurveKeyPair::new().expect("a build with CURVE");
        let text = |key: &[u8]| zmq::z85_encode(key).unwrap();
        (text(&pair.public_key), text(&pair.secret_key))
    };
    let (server, friend, stranger) = (pair(), pair(), pair());
    let keys = format!("server {} {}\nclient {}\n", server.0, server.1, friend.0);
    let keys = secret(&folder, "keys", &keys);
    let flags = ["--events-listen", "0.0.0.0:0", "--events-curve-file", &keys];
    let daemon = Launch::new().args(["--max-bytes", "32M"]).args(flags).start();
    wait_warm(&daemon);
    assert_eq!(places(&daemon)["curve_server_key"], *server.0);
    let client = client_at(daemon.socket());
    put(&client, &key_of(1), 1_000, Retention::Long);
    let file = |name: &str, pair: &(String, String)| {
        secret(&folder, name, &format!("client {} {}\n", pair.0, pair.1))
    };
    let friend = file("friend", &friend);
    let findings = check(&daemon, "12s", &["--curve-file", &friend]);
    assert!(findings["digests"].as_u64() > Some(0), "it hears: {findings}");
    let stranger = file("stranger", &stranger);
    let (code, said) = kvdctl(
        &daemon,
        &["events", "--check", "--json", "--for", "12s", "--curve-file", &stranger],
    );
    let findings: Value = serde_json::from_str(&said).unwrap();
    assert_eq!((code, &findings["messages"]), (Some(1), &Value::from(0)), "nothing came: {said}");
    assert!(daemon.metric("infera_kvd_events_keys_refused_total") > Some(0.0));
}

#[test]
fn snapshots_by_tcp_take_the_token() {
    let folder = tempfile::tempdir().unwrap();
    let token = "0123456789abcdef0123";
    let file = secret(&folder, "token", token);
    let flags = ["--events-snapshot-listen", "127.0.0.1:0", "--events-token-file", &file];
    let daemon = start(launch(&flags));
    let places = until("snapshots are served", PATIENCE, || {
        Some(places(&daemon)).filter(|places| places["snapshot_address"].is_string())
    });
    let address: SocketAddr = places["snapshot_address"].as_str().unwrap().parse().unwrap();
    let ask = |target: &str, header: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!("GET {target} HTTP/1.0\r\nHost: kvd\r\n{header}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).split(' ').nth(1).unwrap().to_owned()
    };
    let right = format!("Authorization: Bearer {token}\r\n");
    assert_eq!(ask("/v1/events/snapshot", ""), "401");
    assert_eq!(ask("/v1/events/snapshot", "Authorization: Bearer 0123456789abcdef012\r\n"), "401");
    assert_eq!(ask("/v1/events/snapshot", &right), "200");
    assert_eq!(ask("/v1/events/snapshot?tier=device", &right), "400");
    assert_eq!(ask("/v1/stats", &right), "404", "nothing else is there");
}

#[test]
fn the_record_in_etcd_comes_back_and_goes_with_the_daemon() {
    let mut etcd = Etcd::start();
    let endpoint = etcd.address().to_string();
    let flags = ["--etcd-endpoint", &endpoint, "--kvd-prefix", "/infera/workers/"];
    let daemon = start(launch(&flags).announce("not registered in etcd; trying on"));
    let registered = |etcd: &Etcd| -> Registration {
        let record = until("the daemon is registered", PATIENCE, || etcd.record("host-1"));
        serde_json::from_value(record.0).unwrap()
    };
    let record = registered(&etcd);
    let places = places(&daemon);
    assert_eq!(record.events_endpoint.as_deref(), places["events"].as_str());
    assert_eq!(record.replay_endpoint.as_deref(), places["replay"].as_str());
    assert_eq!(Some(record.epoch), places["epoch"].as_u64());
    assert_eq!(record.tiers[0].tier, "l2");
    etcd.kill();
    etcd.resume_empty();
    assert_eq!(registered(&etcd), record, "put again after a loss");
    assert_eq!(daemon.metric("infera_kvd_registered"), Some(1.0));
    assert!(daemon.stop().success());
    assert_eq!(etcd.record("host-1"), None, "revoked");
}

#[test]
fn without_etcd_everything_else_goes_on() {
    let nobody = free_port().to_string();
    let flags = ["--etcd-endpoint", &nobody];
    let daemon = start(launch(&flags).announce("not registered in etcd; trying on"));
    let client = client_at(daemon.socket());
    put(&client, &key_of(1), 1_000, Retention::Long);
    until_true("registering was tried", || {
        daemon.metric("infera_kvd_registrations_failed_total") > Some(0.0)
    });
    assert_eq!(daemon.metric("infera_kvd_registered"), Some(0.0));
    assert!(check(&daemon, "1s", &[])["rows"] == 1);
    assert!(daemon.stop().success());
}
