//! Planned upgrades: a running daemon hands everything over to its successor. Whoever is connected, in the middle of
//! whatever, notices nothing; and whatever happens to the successor before the last word, the running daemon goes on.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use kvd_client::{Client, Commit, Retention, View};
use kvd_tests::content::bytes_of;
use kvd_tests::engine::{NAMESPACE, check, client_at, key_of, store, store_blocks};
use kvd_tests::figures::{figure, wait_idle};
use kvd_tests::until::until_true;
use kvd_tests::wire::{Value, Wire, message};
use kvd_tests::{Daemon, Launch, PATIENCE};
use tempfile::TempDir;

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

fn set_message(key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut fields = key_fields(key);
    fields.extend([
        ("value", Value::from(value)),
        ("retention", Value::from("short")),
        ("ttl_seconds", Value::Nil),
    ]);
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
        assert!(wire.receive().unwrap().bool("accepted"));
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
            (0..24).map(|at| format!("pipe-{round}-{at}").into_bytes()).collect();
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
            assert!(wire.receive().unwrap().bool("accepted"));
            assert!(wire.receive().unwrap().bytes("value").unwrap() == bytes_of(key, 2_000));
        }
    }
}

/// Gets by their place in the arena.
fn mapping_client(socket: PathBuf) -> impl FnMut(u64) + Send + 'static {
    let mut attached = Wire::connect(&socket).attach(1);
    let key = b"mapped".to_vec();
    move |round| {
        if round % 16 == 0 {
            attached.wire.send(&set_message(&key, &bytes_of(&key, 50_000)));
            assert!(attached.wire.receive().unwrap().bool("accepted"));
        }
        attached.wire.send(&get_message(&key));
        let answer = attached.wire.receive().unwrap();
        let mut bytes = vec![0; usize::try_from(answer.u64("length")).unwrap()];
        attached.arena.copy_out(answer.u64("slot_offset"), &mut bytes);
        assert!(bytes == bytes_of(&key, 50_000), "round {round}");
    }
}

#[test]
fn unchanged_clients_in_the_middle_of_their_requests_notice_nothing() {
    let place = Place::new();
    let mut daemon = place.launch().start();
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
    let mut daemon = place.launch().start();
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
