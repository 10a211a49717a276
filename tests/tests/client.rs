//! The client library against the real daemon: stopped, killed, restarted, and well.

#![expect(clippy::expect_used, reason = "a case stops at the first surprise")]

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kvd_client::{Answer, Client, ClientError, MissReason, Namespace, Options, Retention, View};
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch, PATIENCE};
use nix::sys::signal::Signal;

const SMALL: &[&str] = &["--max-bytes", "64M"];
const SPACE: Namespace<'static> = Namespace { model: "m", compat_key: "c" };

/// Too short for a stopped daemon, and no wait for a test.
const MOMENT: Duration = Duration::from_millis(20);

fn client_of(daemon: &Daemon) -> Client {
    let mut options = Options::new(daemon.socket(), "client-test");
    options.deadline = PATIENCE;
    Client::new(options)
}

/// The only right bytes of a key, different in each length and place.
fn bytes_of(key: u64) -> Vec<u8> {
    let len = usize::try_from(key % 7 * 5_000 + key % 3).expect("small");
    key.to_le_bytes().into_iter().cycle().take(len).collect()
}

fn put(client: &Client, key: u64) -> Result<(), ClientError> {
    client.put(SPACE, &key.to_le_bytes(), &bytes_of(key), Retention::Short, None)
}

/// What the daemon counts under `held`.
fn held(daemon: &Daemon, what: &str) -> u64 {
    daemon.admin_json("/v1/stats")["held"][what].as_u64().expect("a count")
}

/// Stops the daemon and sees to it that it has stopped: the signal itself is only a request.
fn stop(daemon: &Daemon) {
    daemon.signal(Signal::SIGSTOP);
    until_true("the stop of every thread", || {
        let threads = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("threads");
        threads.into_iter().all(|thread| {
            let stat = std::fs::read_to_string(thread.expect("a thread").path().join("stat"));
            stat.is_ok_and(|stat| stat.contains(") T "))
        })
    });
}

#[test]
fn what_one_client_stores_another_reads_in_place() {
    let daemon = Daemon::start(SMALL);
    let (writer, reader) = (client_of(&daemon), client_of(&daemon));
    let keys: Vec<[u8; 8]> = (0..200_u64).map(u64::to_le_bytes).collect();
    for key in 0..200 {
        put(&writer, key).unwrap();
    }
    let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
    let located = reader.locate(SPACE, &keys, true);
    let fetched = reader.fetch(SPACE, &keys, true, PATIENCE);
    assert_eq!((located.items.len(), fetched.items.len()), (200, 200));
    for (key, (present, view)) in (0..).zip(located.items.iter().zip(&fetched.items)) {
        let view = view.as_ref().unwrap();
        assert_eq!(view.to_vec(), bytes_of(key));
        assert_eq!(present.unwrap().len_bytes, view.len() as u64);
    }
    assert_eq!(held(&daemon, "leases"), 200);
    drop(fetched);
    until_true("the release of all leases", || held(&daemon, "leases") == 0);
}

#[test]
fn a_view_keeps_its_bytes_when_its_key_gets_others() {
    let daemon = Daemon::start(SMALL);
    let client = client_of(&daemon);
    client.put(SPACE, b"k", b"old", Retention::Short, None).unwrap();
    let old = client.fetch(SPACE, &[b"k"], false, PATIENCE);
    for round in 0..200_u8 {
        client.put(SPACE, b"k", &[round; 100_000], Retention::Short, None).unwrap();
    }
    assert_eq!(old.items[0].as_ref().unwrap().to_vec(), b"old");
    assert_eq!(client.get(SPACE, b"k").unwrap(), [199; 100_000]);
    client.clear(kvd_client::ClearScope::Everything).unwrap();
    assert_eq!(old.items[0].as_ref().unwrap().to_vec(), b"old");
    let gone = client.get(SPACE, b"k").unwrap_err();
    assert!(matches!(gone, ClientError::Miss(MissReason::Cleared)), "{gone:?}");
}

#[test]
fn a_stopped_daemon_is_a_miss_and_what_it_granted_late_goes_back() {
    let daemon = Daemon::start(SMALL);
    let client = client_of(&daemon);
    client.put(SPACE, b"k", b"bytes", Retention::Short, None).unwrap();
    stop(&daemon);
    let answer = client.fetch(SPACE, &[b"k"], false, MOMENT);
    assert_eq!(answer.items[0].as_ref().err(), Some(&MissReason::Deadline));
    let error = client.reserve(&[4096, 4096], Retention::Short, MOMENT).unwrap_err();
    assert!(matches!(error, ClientError::Deadline { .. }), "{error:?}");
    daemon.signal(Signal::SIGCONT);
    assert_eq!(client.get(SPACE, b"k").unwrap(), b"bytes");
    until_true("the return of late rights", || {
        held(&daemon, "leases") == 0 && held(&daemon, "tickets") == 0
    });
    assert_eq!(client.attach().unwrap().session.0, client_session(&daemon), "still the first");
}

/// The session of the one connected client.
fn client_session(daemon: &Daemon) -> u64 {
    let top = daemon.admin_json("/v1/top");
    let sessions = top["sessions"].as_array().expect("a list");
    let mut ours = sessions.iter().filter(|session| session["client_id"] == "client-test");
    let id = ours.next().expect("one")["id"].as_u64().expect("an id");
    assert!(ours.next().is_none(), "only one");
    id
}

#[test]
fn a_killed_daemon_is_a_miss_and_its_arena_stays_readable() {
    let daemon = Daemon::start(SMALL);
    let client = client_of(&daemon);
    put(&client, 20).unwrap();
    let views = client.fetch(SPACE, &[&20_u64.to_le_bytes()], false, PATIENCE);
    daemon.kill();
    for _ in 0..3 {
        let answer = client.fetch(SPACE, &[b"k"], false, PATIENCE);
        assert_eq!(answer.items[0].as_ref().err(), Some(&MissReason::Shed));
    }
    assert_eq!(views.items[0].as_ref().unwrap().to_vec(), bytes_of(20));
}

#[test]
fn running_clients_outlive_restarts_and_never_read_wrong_bytes() {
    const CLIENTS: u64 = 4;
    const RESTARTS: usize = 3;
    let folder = tempfile::Builder::new().prefix("kvd-").tempdir_in("/tmp").unwrap();
    let socket = folder.path().join("kvd.sock");
    let launch = || Launch::new().args(SMALL).socket(&socket).start();
    // Hits of each client since the last restart.
    let hits: Vec<AtomicU64> = (0..CLIENTS).map(|_| AtomicU64::new(0)).collect();
    let busy = || hits.iter().all(|hits| hits.load(Ordering::Relaxed) >= 50);
    let daemon = std::thread::scope(|scope| {
        let mut daemon = launch();
        let _stop = Stop(&hits);
        for (number, hits) in (0..CLIENTS).zip(&hits) {
            let client = Client::new(Options::new(&socket, format!("engine-{number}")));
            scope.spawn(move || run_engine(&client, number, hits));
        }
        for _ in 0..RESTARTS {
            until_true("work of every client", busy);
            daemon.kill();
            hits.iter().for_each(|hits| hits.store(0, Ordering::Relaxed));
            daemon = launch();
        }
        until_true("work of every client", busy);
        daemon
    });
    until_true("the end of all rights", || {
        held(&daemon, "leases") == 0 && held(&daemon, "tickets") == 0
    });
}

/// In place of a number of hits, tells an engine to stop.
const STOP: u64 = u64::MAX / 2;

/// Stops the engines when it goes, also by a panic: they would be waited for for ever.
struct Stop<'a>(&'a [AtomicU64]);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|hits| hits.store(STOP, Ordering::Relaxed));
    }
}

/// Stores and reads its own keys and its neighbours' until told to stop. Trouble is no failure;
/// wrong bytes are.
fn run_engine(client: &Client, number: u64, hits: &AtomicU64) {
    let mut older: Option<(u64, Answer<View>)> = None;
    for round in 0.. {
        if hits.load(Ordering::Relaxed) >= STOP {
            return;
        }
        let key = round % 64 * 8 + number;
        drop(put(client, key));
        let wanted: Vec<[u8; 8]> = (key..key + 8).map(u64::to_le_bytes).collect();
        let keys: Vec<&[u8]> = wanted.iter().map(<[u8; 8]>::as_slice).collect();
        let answer = client.fetch(SPACE, &keys, false, PATIENCE);
        hits.fetch_add(right_hits(key, &answer), Ordering::Relaxed);
        // Views live on into the next round, and so across restarts.
        if let Some((key, answer)) = older.replace((key, answer)) {
            right_hits(key, &answer);
        }
    }
}

/// How many of the keys from `first` on were hits. Every one must have its own bytes.
fn right_hits(first: u64, answer: &Answer<View>) -> u64 {
    let mut hits = 0;
    for (key, view) in (first..).zip(&answer.items) {
        if let Ok(view) = view {
            assert_eq!(view.to_vec(), bytes_of(key));
            hits += 1;
        }
    }
    hits
}
