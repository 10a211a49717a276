//! Planned upgrades: a running daemon hands everything over to its successor. Whoever is connected, in the middle of
//! whatever, notices nothing; and whatever happens to the successor before the last word, the running daemon goes on.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use infera_kvd::succession::handover::line::{Line, LineFault};
use infera_kvd::succession::handover::note::{Ask, Note};
use kvd_client::{Client, Commit, Retention, View};
use kvd_tests::content::{Random, bytes_of};
use kvd_tests::disk::{Directory, device, has, put, wait_ready, wait_written};
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, store, store_blocks};
use kvd_tests::figures::{figure, wait_idle, wait_warm};
use kvd_tests::process::is_running;
use kvd_tests::supervisor::Supervisor;
use kvd_tests::until::until_true;
use kvd_tests::wire::{Message, Value, Wire, message};
use kvd_tests::{Daemon, Launch, PATIENCE, binaries};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

const GOES_ON: &str = "nothing was handed over; this daemon goes on";

/// A folder for the sockets of all lives.
struct Place {
    folder: TempDir,
}

impl Place {
    fn new() -> Self {
        Self { folder: tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp").unwrap() }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("kvd.sock")
    }

    fn door(&self) -> PathBuf {
        self.folder.path().join("takeover.sock")
    }

    /// The same command line for every life.
    fn at_home(&self, launch: Launch) -> Launch {
        launch
            .socket(self.socket())
            .args(["--takeover-socket".into(), self.door().into_os_string()])
    }

    fn launch(&self) -> Launch {
        self.at_home(Launch::new().args(["--max-bytes", "32M"]))
    }

    /// The first life, with all of its arena ready.
    fn start(&self, launch: Launch) -> Daemon {
        let daemon = launch.start();
        wait_warm(&daemon);
        daemon
    }

    /// The next life, which takes over from `daemon`.
    fn succeed(&self, daemon: Daemon) -> Daemon {
        self.succeed_by(daemon, self.launch())
    }

    fn succeed_by(&self, daemon: Daemon, launch: Launch) -> Daemon {
        let successor = launch.start_as_successor();
        assert!(daemon.wait().success());
        assert!(!successor.connect().ask("stats", &[]).op().is_empty());
        successor
    }
}

fn key_fields(key: &[u8]) -> Vec<(&'static str, Value)> {
    vec![
        ("key", Value::from(key)),
        ("model", Value::from(NAMESPACE.model)),
        ("compat_key", Value::from(NAMESPACE.compat_key)),
    ]
}

/// As unchanged clients write it: the value right behind the key.
fn set_message(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut fields = key_fields(key);
    let more = [("value", Value::from(value)), ("retention", Value::from("short"))];
    fields.splice(1..1, more);
    fields.push(("ttl_seconds", Value::Nil));
    message("set", &fields)
}

fn get_message(key: &[u8]) -> Vec<u8> {
    message("get", &key_fields(key))
}

/// What runs beside the takeovers until it is told to stop; how many requests it made.
struct Traffic {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Traffic {
    fn new() -> Self {
        Self { stop: Arc::default(), done: Arc::default(), threads: Vec::new() }
    }

    /// `work` is called again and again; it ends itself with a panic if something is wrong.
    fn run(&mut self, name: &str, mut work: impl FnMut(u64) + Send + 'static) {
        let (stop, done) = (Arc::clone(&self.stop), Arc::clone(&self.done));
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let mut round = 0;
            while !stop.load(Ordering::Relaxed) {
                work(round);
                round += 1;
                done.fetch_add(1, Ordering::Relaxed);
            }
        });
        self.threads.push(thread.unwrap());
    }

    /// Waits until everybody has gone on a good deal.
    fn goes_on(&self) {
        let before = self.done.load(Ordering::Relaxed);
        until_true("the traffic goes on", || {
            assert!(!self.threads.iter().any(JoinHandle::is_finished), "a client has ended");
            self.done.load(Ordering::Relaxed) > before + 200
        });
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

/// Sets and gets over one connection that is never made anew, as an unchanged client does.
fn serial_client(socket: PathBuf, id: u64) -> impl FnMut(u64) + Send + 'static {
    let mut wire = Wire::connect(&socket);
    move |round| {
        let key = format!("serial-{id}-{}", round % 8).into_bytes();
        let len = [10, 5_000, 70_000, 300_000][usize::try_from(round % 4).unwrap()];
        wire.send(&set_message(&key, &bytes_of(&key, len)));
        is_accepted(&wire.receive().unwrap());
        wire.send(&get_message(&key));
        let answer = wire.receive().unwrap();
        assert!(answer.bytes("value").unwrap() == bytes_of(&key, len), "round {round}");
    }
}

/// Many requests at once, and only then their answers: in their order, each exactly once.
fn pipelining_client(socket: PathBuf) -> impl FnMut(u64) + Send + 'static {
    let mut wire = Wire::connect(&socket);
    move |round| {
        let keys: Vec<Vec<u8>> =
            (0..24).map(|at| format!("pipe-{}-{at}", round % 4).into_bytes()).collect();
        let mut sent = Vec::new();
        for key in &keys {
            sent.extend(set_message(key, &bytes_of(key, 2_000)));
            sent.extend(get_message(key));
        }
        // In pieces that end anywhere.
        for piece in sent.chunks(997) {
            wire.send(piece);
        }
        for key in &keys {
            is_accepted(&wire.receive().unwrap());
            assert!(wire.receive().unwrap().bytes("value").unwrap() == bytes_of(key, 2_000));
        }
    }
}

/// Gets by their place in the arena, or inline where the session holds as much as it may.
fn mapping_client(socket: PathBuf) -> impl FnMut(u64) + Send + 'static {
    let mut attached = Wire::connect(&socket).attach(1);
    let key = b"mapped".to_vec();
    move |round| {
        if round % 16 == 0 {
            attached.wire.send(&set_message(&key, &bytes_of(&key, 50_000)));
            is_accepted(&attached.wire.receive().unwrap());
        }
        attached.wire.send(&get_message(&key));
        let answer = attached.wire.receive().unwrap();
        let bytes = if answer.op() == "get_response" {
            answer.bytes("value").unwrap().to_vec()
        } else {
            let mut bytes = vec![0; usize::try_from(answer.u64("length")).unwrap()];
            attached.arena.copy_out(answer.u64("slot_offset"), &mut bytes);
            bytes
        };
        assert!(bytes == bytes_of(&key, 50_000), "round {round}");
    }
}

fn is_accepted(answer: &Message) {
    assert!(answer.bool("accepted"), "{answer:?}");
}

#[test]
fn unchanged_clients_in_the_middle_of_their_requests_notice_nothing() {
    let place = Place::new();
    let mut daemon = place.start(place.launch());
    let mut traffic = Traffic::new();
    for id in 0..3 {
        traffic.run("serial", serial_client(place.socket(), id));
    }
    traffic.run("pipelining", pipelining_client(place.socket()));
    traffic.run("mapping", mapping_client(place.socket()));
    // Connected and silent, before and after its first request.
    let silent = Wire::connect(&place.socket());
    let mut idle = Wire::connect(&place.socket());
    assert_eq!(idle.ask("stats", &[]).op(), "stats_response");
    for life in 2..10 {
        traffic.goes_on();
        daemon = place.succeed(daemon);
        assert_eq!(figure(&daemon, "/succession/generation"), life);
        assert_eq!(daemon.metric("infera_kvd_sessions_taken_over"), Some(7.0));
        assert_eq!(daemon.metric("infera_kvd_sessions_left_behind"), Some(0.0));
    }
    traffic.goes_on();
    traffic.end();
    for mut wire in [silent, idle] {
        assert_eq!(wire.ask("stats", &[]).op(), "stats_response");
        drop(wire);
    }
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
    assert!(!place.socket().try_exists().unwrap() && !place.door().try_exists().unwrap());
}

fn view(client: &Client, index: u64) -> View {
    client.fetch(NAMESPACE, &[&key_of(index)], false, PATIENCE).items.remove(0).unwrap()
}

#[test]
fn what_clients_hold_stays_theirs() {
    let place = Place::new();
    let mut daemon = place.start(place.launch());
    let client = client_at(daemon.socket());
    store_blocks(&client, 20, 100_000);
    let session = client.attach().unwrap();
    let views: Vec<View> = (0..10).map(|index| view(&client, index)).collect();
    let tickets = client.reserve(&[60_000; 4], Retention::Short, PATIENCE).unwrap();
    let tickets: Vec<_> = tickets.into_iter().map(Result::unwrap).collect();
    assert_eq!((figure(&daemon, "/held/leases"), figure(&daemon, "/held/tickets")), (10, 4));
    for _ in 0..3 {
        daemon = place.succeed(daemon);
        assert_eq!((figure(&daemon, "/held/leases"), figure(&daemon, "/held/tickets")), (10, 4));
        assert_eq!(figure(&daemon, "/held/quarantined_bytes"), 0);
        // Others press hard for room.
        let other = client_at(daemon.socket());
        (1_000..1_400).for_each(|index| store(&other, &key_of(index), 100_000));
    }
    let after = client.attach().unwrap();
    assert_eq!((session.session, session.epoch), (after.session, after.epoch), "never reconnected");
    for (index, view) in (0..).zip(&views) {
        assert!(view.to_vec() == bytes_of(&key_of(index), 100_000), "{index}");
    }
    let keys: Vec<Vec<u8>> = (100..104).map(key_of).collect();
    let mut commits = Vec::new();
    for (ticket, key) in tickets.into_iter().zip(&keys) {
        ticket.write(0, &bytes_of(key, 60_000)).unwrap();
        commits.push(Commit { ticket, key, len_bytes: 60_000, lineage: None });
    }
    let committed = client.commit(NAMESPACE, commits, Retention::Short, None).unwrap();
    assert!(committed.iter().all(Result::is_ok), "{committed:?}");
    keys.iter().for_each(|key| check(&client, key, 60_000));
    drop(views);
    until_true("leases are given back", || figure(&daemon, "/held/leases") == 0);
    drop(client);
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
}

/// A client that reads slowly, or not at all, while its answers wait: they come later, whole and in order.
#[test]
fn answers_that_nobody_reads_yet_go_along() {
    let place = Place::new();
    let mut daemon = place.start(place.launch());
    let keys: Vec<Vec<u8>> = (0..40).map(|at| format!("unread-{at}").into_bytes()).collect();
    let len_of = |at: usize| [100, 20_000, 900_000][at % 3];
    let mut wire = daemon.connect();
    for (at, key) in keys.iter().enumerate() {
        wire.send(&set_message(key, &bytes_of(key, len_of(at))));
        is_accepted(&wire.receive().unwrap());
    }
    // More than any socket buffers: the daemon stops inside of an answer.
    let gets: Vec<u8> = keys.iter().flat_map(|key| get_message(key)).collect();
    wire.send(&gets);
    for _ in 0..3 {
        daemon = place.succeed(daemon);
        assert_eq!(daemon.metric("infera_kvd_sessions_left_behind"), Some(0.0));
    }
    for (at, key) in keys.iter().enumerate() {
        let answer = wire.receive().unwrap();
        assert!(answer.bytes("value").unwrap() == bytes_of(key, len_of(at)), "{at}");
    }
    drop(wire);
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
}

/// A frame of which a part has arrived is completed at the next life; one whose value goes straight into the arena cannot
/// be, and its connection is closed.
#[test]
fn frames_that_have_begun_go_along_or_their_connection_is_closed() {
    let place = Place::new();
    let left_behind = "connections are closed that cannot be handed over now";
    let mut daemon = place.start(place.launch().announce(left_behind));
    let small = set_message(b"small", &bytes_of(b"small", 3_000));
    let large = set_message(b"large", &bytes_of(b"large", 200_000));
    let staged = {
        // A batch is received beside the arena.
        let fields = |at: usize| {
            let key = format!("staged-{at}").into_bytes();
            let value = bytes_of(&key, 400_000);
            (Value::from(key), Value::from(value))
        };
        let (keys, values): (Vec<_>, Vec<_>) = (0..5).map(fields).unzip();
        message(
            "batch_set",
            &[
                ("keys", Value::Array(keys)),
                ("values", Value::Array(values)),
                ("model", Value::from(NAMESPACE.model)),
                ("compat_key", Value::from(NAMESPACE.compat_key)),
                ("retentions", Value::Array(vec![Value::from("short"); 5])),
                ("metadatas", Value::Array(vec![Value::Map(Vec::new()); 5])),
            ],
        )
    };
    let mut begun: Vec<(Wire, &[u8])> = Vec::new();
    for (frame, cuts) in
        [(&small, &[1, 3, 4, 500][..]), (&large, &[2][..]), (&staged, &[1_500_000][..])]
    {
        for &cut in cuts {
            let mut wire = daemon.connect();
            wire.send(&frame[..cut]);
            begun.push((wire, &frame[cut..]));
        }
    }
    let mut inside = daemon.connect();
    inside.send(&large[..100_000]);
    until_true("all have been read", || {
        figure(&daemon, "/sessions_connected") == 7 && figure(&daemon, "/memory/ticketed_bytes") > 0
    });
    daemon = place.succeed(daemon);
    assert_eq!(daemon.metric("infera_kvd_sessions_taken_over"), Some(6.0));
    assert_eq!(daemon.metric("infera_kvd_sessions_left_behind"), Some(1.0));
    inside.expect_closed();
    for (mut wire, rest) in begun {
        wire.send(rest);
        let answer = wire.receive().unwrap();
        assert!(matches!(answer.op(), "set_ack" | "batch_set_ack"), "{answer:?}");
    }
    let client = client_at(daemon.socket());
    check(&client, b"small", 3_000);
    check(&client, b"large", 200_000);
    check(&client, b"staged-4", 400_000);
    drop(client);
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
}

fn soon() -> Instant {
    Instant::now() + PATIENCE
}

fn ask(place: &Place) -> Ask {
    Ask {
        ledger_version: kvd_store::LEDGER_VERSION,
        arena_bytes: 32 << 20,
        sessions_max: 1024,
        build: "test".to_owned(),
        socket: place.socket().into_os_string().into_encoded_bytes(),
    }
}

fn knock(place: &Place) -> Line {
    Line::new(UnixStream::connect(place.door()).unwrap())
}

/// Everything but the last word, by a successor that is none.
fn take_all(line: &mut Line) {
    let (Note::Estate(estate), memory) = line.receive(soon()).unwrap() else { panic!("no estate") };
    assert_eq!((memory.len(), estate.sockets), (2, 3));
    for _ in 0..estate.sockets + estate.sessions + estate.watches {
        line.receive(soon()).unwrap();
    }
}

/// A daemon that must go on whatever becomes of its successor, and those who use it meanwhile.
struct Steadfast {
    place: Place,
    daemon: Daemon,
    client: Client,
    held: View,
    session: u64,
    traffic: Traffic,
}

impl Steadfast {
    fn new() -> Self {
        let place = Place::new();
        let daemon = place.start(place.launch().announce(GOES_ON));
        let client = client_at(daemon.socket());
        store_blocks(&client, 5, 10_000);
        let held = view(&client, 0);
        let session = client.attach().unwrap().session.0;
        let mut traffic = Traffic::new();
        traffic.run("serial", serial_client(place.socket(), 0));
        traffic.run("pipelining", pipelining_client(place.socket()));
        traffic.run("mapping", mapping_client(place.socket()));
        Self { place, daemon, client, held, session, traffic }
    }

    /// So many attempts were refused, and so many given up; and nobody has noticed.
    fn goes_on(&self, refused: f64, abandoned: f64) {
        let outcome = |outcome| {
            self.daemon.metric(&format!("infera_kvd_handovers_total{{outcome=\"{outcome}\"}}"))
        };
        until_true("it is counted", || {
            (outcome("refused"), outcome("abandoned")) == (Some(refused), Some(abandoned))
        });
        self.traffic.goes_on();
        check(&self.client, &key_of(1), 10_000);
        assert_eq!(self.client.attach().unwrap().session.0, self.session);
        assert!(self.held.to_vec() == bytes_of(&key_of(0), 10_000));
    }

    /// A successor that has asked for everything, and everything stands still for it.
    fn asked(&self) -> Line {
        let mut line = knock(&self.place);
        line.send(&Note::Ask(ask(&self.place)), &[], soon()).unwrap();
        line
    }

    /// A real successor is as good as ever.
    fn end(self) {
        let Self { place, daemon, client, held, traffic, .. } = self;
        traffic.goes_on();
        let daemon = place.succeed(daemon);
        traffic.goes_on();
        traffic.end();
        drop((held, client));
        wait_idle(&daemon, PATIENCE);
        assert!(daemon.stop().success());
    }
}

#[test]
fn a_successor_that_does_not_fit_changes_nothing() {
    let steadfast = Steadfast::new();
    let place = &steadfast.place;
    // It says nothing and goes; it speaks another language; it stops inside a word.
    drop(knock(place));
    steadfast.goes_on(0.0, 1.0);
    let mut raw = UnixStream::connect(place.door()).unwrap();
    raw.write_all(&[0x55; 4096]).unwrap();
    steadfast.goes_on(0.0, 2.0);
    let mut raw = UnixStream::connect(place.door()).unwrap();
    raw.write_all(&Note::Ask(ask(place)).encode(0)[..40]).unwrap();
    steadfast.goes_on(0.0, 3.0);
    for wrong in [
        Ask { arena_bytes: 64 << 20, ..ask(place) },
        Ask { ledger_version: 99, ..ask(place) },
        Ask { sessions_max: 1, ..ask(place) },
        Ask { socket: b"/elsewhere".to_vec(), ..ask(place) },
    ] {
        let mut line = knock(place);
        line.send(&Note::Ask(wrong), &[], soon()).unwrap();
        assert!(matches!(line.receive(soon()), Err(LineFault::Refused(_))));
    }
    steadfast.goes_on(4.0, 3.0);
    steadfast.end();
}

#[test]
fn a_successor_that_dies_or_stalls_before_the_last_word_changes_nothing() {
    let steadfast = Steadfast::new();
    // It dies when everything stands still, before and after it has heard everything.
    let mut line = steadfast.asked();
    let (Note::Estate(_), memory) = line.receive(soon()).unwrap() else { panic!("no estate") };
    drop((line, memory));
    steadfast.goes_on(0.0, 1.0);
    let mut line = steadfast.asked();
    take_all(&mut line);
    drop(line);
    steadfast.goes_on(0.0, 2.0);
    // It changes its mind; it talks nonsense at the end.
    for (last, refused, abandoned) in
        [(Note::Refusal("no".to_owned()), 1.0, 2.0), (Note::Yours, 1.0, 3.0)]
    {
        let mut line = steadfast.asked();
        take_all(&mut line);
        line.send(&last, &[], soon()).unwrap();
        steadfast.goes_on(refused, abandoned);
    }
    // It stalls; the deadline ends that.
    let mut line = steadfast.asked();
    take_all(&mut line);
    steadfast.goes_on(1.0, 4.0);
    assert!(matches!(line.receive(soon()), Err(LineFault::Refused(_))));
    steadfast.end();
}

#[test]
fn a_start_that_is_refused_says_why_and_changes_nothing() {
    let place = Place::new();
    let daemon = place.start(place.launch().announce(GOES_ON));
    let client = client_at(daemon.socket());
    store_blocks(&client, 5, 10_000);
    for (arguments, why) in [
        (&["--max-bytes", "64M"][..], "the successor wants 67108864"),
        (&["--max-bytes", "32M", "--sessions-max", "1"][..], "the successor serves at most 1"),
    ] {
        let _second = client_at(daemon.socket()).attach().unwrap();
        let mut other = daemon.connect();
        assert_eq!(other.ask("stats", &[]).op(), "stats_response");
        let refused = place.at_home(Launch::new().args(arguments.iter().copied())).run();
        assert_eq!(refused.code, Some(1), "{}", refused.output);
        assert!(refused.output.contains(why), "{}", refused.output);
        assert!(refused.output.contains("which goes on"), "{}", refused.output);
    }
    let no_use = place.at_home(Launch::new().args(["--warm-restart=false"])).run();
    assert_eq!(no_use.code, Some(2), "{}", no_use.output);
    check(&client, &key_of(1), 10_000);
    drop(client);
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
}

/// A successor that finds out late that it cannot serve: whatever it had been passed already is the running daemon's.
#[test]
fn a_start_that_fails_on_the_way_takes_no_socket_along() {
    let place = Place::new();
    let daemon = place.start(place.launch().announce(GOES_ON));
    let client = client_at(daemon.socket());
    store_blocks(&client, 5, 10_000);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let elsewhere = place.folder.path().join("elsewhere.sock").into_os_string();
    for (option, value, why) in [
        ("--admin-socket", elsewhere, "is not the lock of that path"),
        ("--metrics-listen", address.into(), "choose another address"),
    ] {
        let failed = place.launch().args([option.into(), value]).run();
        assert_eq!(failed.code, Some(1), "{}", failed.output);
        assert!(failed.output.contains(why), "{}", failed.output);
        assert!(is_running(daemon.pid()), "{option}");
        assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
        assert!(place.door().try_exists().unwrap());
        assert_eq!(daemon.metric("infera_kvd_sessions_left_behind"), Some(0.0));
        check(&client, &key_of(1), 10_000);
    }
    let daemon = place.succeed(daemon);
    check(&client, &key_of(1), 10_000);
    assert!(daemon.metric("infera_kvd_sessions_taken_over").is_some());
    drop(client);
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
    let left = std::fs::read_dir(place.folder.path()).unwrap().map(|file| file.unwrap().path());
    let sockets: Vec<_> = left.filter(|path| path.extension().unwrap() == "sock").collect();
    assert!(sockets.is_empty(), "{sockets:?}");
}

/// As many sessions and descriptors as the options allow: a handover needs no more of them.
#[test]
fn a_daemon_that_is_full_can_be_succeeded() {
    /// Some are left for those that look from outside.
    const SESSIONS: u32 = 190;
    let place = Place::new();
    // Two for each session and some more, as the daemon asks for.
    let launch = || {
        let limited = ["bash", "-c", "ulimit -n 464; exec \"$@\"", "bash"];
        place.launch().args(["--sessions-max", "200"]).under(limited)
    };
    let mut daemon = place.start(launch());
    let mut all: Vec<Wire> = (0..SESSIONS).map(|_| daemon.connect()).collect();
    for wire in &mut all {
        assert_eq!(wire.ask("stats", &[]).op(), "stats_response");
    }
    for _ in 0..2 {
        daemon = place.succeed_by(daemon, launch());
        assert_eq!(daemon.metric("infera_kvd_sessions_left_behind"), Some(0.0));
        assert_eq!(daemon.metric("infera_kvd_sessions_taken_over"), Some(SESSIONS.into()));
        for wire in &mut all {
            assert_eq!(wire.ask("stats", &[]).op(), "stats_response");
        }
    }
    drop(all);
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
}

/// Whoever may not take over is not let in. Needs root, to be somebody else.
#[test]
fn another_user_takes_nothing_over() {
    let place = Place::new();
    let folder = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.folder.path(), folder).unwrap();
    let daemon = place.start(place.launch().announce("a successor could not be let in"));
    // The mode of the socket keeps others out; what if it did not?
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.door(), open).unwrap();
    let script = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); \
                  sys.exit(0 if s.recv(1) == b'' else 1)";
    let mut stranger = Command::new("python3");
    let status = stranger.args(["-c", script]).arg(place.door()).uid(65_534).status().unwrap();
    assert!(status.success(), "closed without a word");
    let _said = daemon.log().wait_for("a successor could not be let in");
    assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
    assert!(daemon.stop().success());
}

#[test]
fn the_disk_tier_comes_along() {
    let (place, directory) = (Place::new(), Directory::new());
    let launch = || place.at_home(directory.launch(&[]));
    let mut daemon = launch().start();
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    // More than memory holds.
    let count = 60;
    (0..count).for_each(|index| put(&client, &key_of(index), 1_000_000, Retention::Long));
    wait_written(&daemon);
    put(&client, b"asked for", 50_000, Retention::Long);
    let mut wire = daemon.connect();
    let mut traffic = Traffic::new();
    traffic.run("asking", move |round| {
        wire.send(&get_message(b"asked for"));
        let answer = wire.receive().unwrap();
        assert!(answer.bytes("value") == Some(&bytes_of(b"asked for", 50_000)), "round {round}");
    });
    for life in 0..4 {
        traffic.goes_on();
        // It is not on disk yet, perhaps on its way.
        let fresh = 1_000 + life;
        put(&client, &key_of(fresh), 500_000, Retention::Long);
        daemon = place.succeed_by(daemon, launch());
        assert!(has(&client, &key_of(fresh), 500_000), "it is in memory");
        wait_ready(&daemon);
        // What is evicted before memory and device have found together again is forgotten, as after any start.
        wait_written(&daemon);
    }
    traffic.goes_on();
    traffic.end();
    wait_written(&daemon);
    // Some were evicted before the device had room for them; nothing may be wrong, and memory alone cannot hold so many.
    let found = (0..count).filter(|index| has(&client, &key_of(*index), 1_000_000)).count();
    assert!(found > 32, "{found} of {count}");
    (1_000..1_004).for_each(|index| check(&client, &key_of(index), 500_000));
    assert_eq!(device(&daemon)["corrupt_total"].as_u64(), Some(0));
    drop(client);
    wait_idle(&daemon, PATIENCE);
    assert!(daemon.stop().success());
}

fn supervised(program: &Path) -> Launch {
    Launch::new().args(["--max-bytes", "32M"]).program(program)
}

/// A program that can be replaced while it runs, as an upgrade does.
fn installed(folder: &Path) -> PathBuf {
    let program = folder.join("infera-kvd");
    install(&program, |new| {
        // By another process: a file that this one had open could not be executed while a neighbour forks.
        let copied = Command::new("cp").arg(binaries::path_of("infera-kvd")).arg(new).status();
        assert!(copied.unwrap().success());
    });
    program
}

fn install(program: &Path, write: impl FnOnce(&Path)) {
    let new = program.with_extension("new");
    write(&new);
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&new, program).unwrap();
}

#[test]
fn a_reload_under_a_service_manager_goes_on_with_the_program_that_is_installed_then() {
    let folder = tempfile::tempdir().unwrap();
    let program = installed(folder.path());
    let supervisor = Supervisor::new().watchdog(Duration::from_millis(500));
    let mut daemon = supervisor.start(supervised(&program).announce(GOES_ON));
    let client = client_at(daemon.socket());
    store_blocks(&client, 5, 10_000);
    let held = view(&client, 0);
    let mut traffic = Traffic::new();
    traffic.run("serial", serial_client(supervisor.service_socket(), 0));
    traffic.run("pipelining", pipelining_client(supervisor.service_socket()));
    traffic.run("mapping", mapping_client(supervisor.service_socket()));
    for life in 2..6 {
        // As an upgrade does it: another file under the same name.
        let _replaced = installed(folder.path());
        let served = supervisor.count("READY=1");
        daemon.signal(Signal::SIGHUP);
        daemon.follow();
        supervisor.wait_for(&format!("MAINPID={}", daemon.pid()), 1);
        supervisor.wait_for("READY=1", served + 1);
        assert_eq!(supervisor.kept(), ["kvd-arena", "kvd-ledger"]);
        assert_eq!(figure(&daemon, "/succession/generation"), life);
        let heard = supervisor.count("WATCHDOG=1");
        supervisor.wait_for("WATCHDOG=1", heard + 3);
        traffic.goes_on();
    }
    // A program that ends at once, and one that says nothing: nothing changes.
    let before = daemon.pid();
    for (count, script) in [(1, "#!/bin/sh\nexit 3\n"), (2, "#!/bin/sh\nexec sleep 1000\n")] {
        install(&program, |new| std::fs::write(new, script).unwrap());
        daemon.signal(Signal::SIGHUP);
        // Meanwhile newcomers are let in.
        assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
        until_true("it is given up", || daemon.log().count(GOES_ON) == count);
        traffic.goes_on();
        assert_eq!(
            daemon.metric("infera_kvd_handovers_total{outcome=\"abandoned\"}"),
            Some(count as f64)
        );
    }
    let _replaced = installed(folder.path());
    daemon.signal(Signal::SIGHUP);
    daemon.follow();
    assert_ne!(daemon.pid(), before);
    traffic.goes_on();
    traffic.end();
    assert!(held.to_vec() == bytes_of(&key_of(0), 10_000));
    assert_eq!(supervisor.count("STOPPING=1"), 0, "the service never stopped");
    drop((held, client));
    // Whatever ends this life, the next one finds everything.
    wait_idle(&daemon, PATIENCE);
    daemon.kill();
    let daemon = supervisor.start(supervised(&program));
    (0..5).for_each(|index| check(&client_at(daemon.socket()), &key_of(index), 10_000));
    assert!(daemon.stop().success());
}

/// Without a service manager SIGHUP means what it always does, and under one nobody else takes over.
#[test]
fn who_may_ask_for_a_successor_depends_on_who_looks_after_the_daemon() {
    let daemon = Launch::new().args(["--max-bytes", "32M"]).start();
    daemon.signal(Signal::SIGHUP);
    assert!(!daemon.wait().success());
    let (place, supervisor) = (Place::new(), Supervisor::new());
    let launch = || {
        let door = ["--takeover-socket".into(), place.door().into_os_string()];
        Launch::new().args(["--max-bytes", "32M"]).args(door)
    };
    let daemon = supervisor.start(launch().announce(GOES_ON));
    let refused = launch().socket(supervisor.service_socket()).run();
    assert_eq!(refused.code, Some(1), "{}", refused.output);
    assert!(refused.output.contains("a service manager looks after this daemon"));
    assert_eq!(daemon.connect().ask("stats", &[]).op(), "stats_response");
    assert!(daemon.stop().success());
}

/// One of the two is killed at any moment of it: whoever is left, or comes next, has right bytes only, and all of them.
#[test]
fn whoever_is_killed_on_the_way_nothing_is_wrong_afterwards() {
    const BLOCKS: u64 = 40;
    let len = |index: u64| [0, 100, 5_000, 70_000, 300_000][usize::try_from(index % 5).unwrap()];
    let supervisor = Supervisor::new();
    let mut random = Random::seeded(4711);
    let launch = || {
        let expected = [
            GOES_ON,
            "the daemon before ended",
            "does not listen any more",
            "nothing is taken over",
        ];
        let launch = Launch::new().args(["--max-bytes", "32M"]);
        expected.into_iter().fold(launch, Launch::announce)
    };
    let mut daemon = supervisor.start(launch());
    let first = client_at(daemon.socket());
    (0..BLOCKS).for_each(|index| store(&first, &key_of(index), len(index)));
    drop(first);
    let (mut handed_over, mut stayed) = (0, 0);
    for round in 0..20 {
        let (before, started) = (daemon.pid(), Instant::now());
        daemon.signal(Signal::SIGHUP);
        // At once, at any moment of it, or after the last word.
        let pause = Duration::from_micros([0, random.below(60_000) as u64][round % 4 / 2]);
        let child = loop {
            let path = format!("/proc/{before}/task/{before}/children");
            let children = std::fs::read_to_string(path).unwrap_or_default();
            if let Some(child) = children.split_whitespace().next() {
                break child.parse::<i32>().unwrap();
            }
            if !is_running(before) {
                // It was faster than we looked.
                daemon.follow();
                break daemon.pid();
            }
            assert!(started.elapsed() < PATIENCE, "no successor is started");
        };
        if round % 4 == 1 {
            supervisor.wait_for(&format!("MAINPID={child}"), 1);
        }
        while started.elapsed() < pause {
            std::thread::yield_now();
        }
        let victim = if round % 2 == 0 { child } else { before };
        let _may_be_gone = kill(Pid::from_raw(victim), Signal::SIGKILL);
        let left = if victim == child { before } else { child };
        until_true("it serves or is gone", || {
            !is_running(left)
                || Wire::try_connect(daemon.socket())
                    .is_ok_and(|mut wire| wire.try_ask("stats", &[]).is_some())
        });
        if is_running(left) {
            let client = client_at(daemon.socket());
            if client.attach().is_ok() {
                (0..BLOCKS).for_each(|index| check(&client, &key_of(index), len(index)));
                if left == child { handed_over += 1 } else { stayed += 1 }
            }
        }
        for pid in [before, child] {
            let _may_be_gone = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _killed = daemon.wait();
        daemon = supervisor.start(launch());
        let client = client_at(daemon.socket());
        (0..BLOCKS).for_each(|index| check(&client, &key_of(index), len(index)));
    }
    assert!(handed_over > 0 && stayed > 0, "{handed_over} handed over, {stayed} went on");
    assert!(daemon.stop().success());
}
