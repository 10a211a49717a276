//! The admin interface over a real socket, with a real store in a small arena behind it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kvd_proto::block_key::Namespace;
use kvd_proto::ids::SessionId;
use kvd_proto::retention::Retention;
use kvd_shm::peer::PeerCredentials;
use kvd_store::{
    ClearCursor, ClearScope, Commit, CommitRules, Effects, Hold, Input, Keys, Outcome, Peer, Writer,
};
use serde_json::Value;

use super::Admin;
use crate::config::{self, Host, Invocation};
use crate::daemon::Daemon;
use crate::meters::{Op, SessionEnd};
use crate::session::registry::Facts;

const ARENA_BYTES: u64 = 1 << 20;

/// A daemon without engine sessions, and its admin interface.
struct Rig {
    daemon: Arc<Daemon>,
    admin: Admin,
    folder: tempfile::TempDir,
}

/// Status code and body of an answer.
type Answer = (u16, String);

impl Rig {
    fn new(more: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = format!("--socket={}", folder.path().join("kvd.sock").display());
        let fixed = [
            "infera-kvd",
            "--shared-arena-bytes=1M",
            "--no-shared-arena-pin",
            &socket,
        ];
        let arguments = fixed.iter().chain(more).map(Into::into);
        let Ok(Invocation::Serve(settings)) = config::load(arguments, [], Host::real()) else {
            panic!("the settings of the test are wrong");
        };
        let daemon = Arc::new(Daemon::prepare(*settings).unwrap());
        let admin = Admin::start(Arc::clone(&daemon)).unwrap();
        let rig = Self {
            daemon,
            admin,
            folder,
        };
        rig.apply(Input::ArenaReady { bytes: ARENA_BYTES });
        rig
    }

    fn apply(&self, input: Input<'_>) -> Effects {
        let mut effects = Effects::default();
        self.daemon.brain.apply(input, &mut effects);
        effects
    }

    fn open(&self, id: u64) -> SessionId {
        let session = SessionId(id);
        self.apply(Input::Open {
            session,
            peer: Peer::Unknowable,
        });
        session
    }

    fn store(&self, session: SessionId, namespace: Namespace<'_>, key: &[u8], len_bytes: u64) {
        let retention = Retention::Short;
        let reserve = Input::Reserve {
            session,
            len_bytes,
            class: Some(retention),
            writer: Writer::Client,
        };
        let Outcome::Reserved(Ok(granted)) = self.apply(reserve).outcome else {
            panic!("no room");
        };
        let commit = Input::Commit(Commit {
            session,
            ticket: granted.ticket,
            namespace,
            key,
            len_bytes,
            retention,
            ttl_ms: None,
            lineage: None,
            rules: CommitRules::Lease,
        });
        assert_eq!(self.apply(commit).outcome, Outcome::Committed(Ok(())));
    }

    fn socket(&self) -> PathBuf {
        self.daemon.settings.admin_socket.clone()
    }

    fn ask(&self, method: &str, path: &str) -> Answer {
        let mut stream = UnixStream::connect(self.socket()).unwrap();
        exchange(&mut stream, method, path)
    }

    fn get(&self, path: &str) -> Value {
        let (code, body) = self.ask("GET", path);
        assert_eq!(code, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }

    fn refused(&self, method: &str, path: &str) -> (u16, Value) {
        let (code, body) = self.ask(method, path);
        let body: Value = serde_json::from_str(&body).unwrap();
        (code, body["error"].clone())
    }
}

fn exchange(
    stream: &mut (impl std::io::Read + std::io::Write),
    method: &str,
    path: &str,
) -> Answer {
    let head = format!("{method} {path} HTTP/1.1\r\nHost: kvd\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no HTTP: {text:?}"));
    let code = head
        .split(' ')
        .nth(1)
        .and_then(|code| code.parse().ok())
        .unwrap();
    (code, body.to_owned())
}

const NAMESPACE: Namespace<'static> = Namespace {
    model: "org/m",
    compat_key: "tp0of1",
};

#[test]
fn the_socket_is_its_owners_and_leaves_with_the_interface() {
    let rig = Rig::new(&[]);
    let path = rig.socket();
    assert_eq!(path, rig.folder.path().join("kvd.admin.sock"));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(
        Admin::start(Arc::clone(&rig.daemon)).is_err(),
        "a live socket is never stolen"
    );
    rig.admin.stop();
    assert!(!path.try_exists().unwrap());
}

#[test]
fn health_needs_the_lock_and_nothing_else() {
    let rig = Rig::new(&[]);
    assert_eq!(rig.ask("GET", "/healthz"), (200, "ok\n".to_owned()));
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (hold, held) = std::sync::mpsc::channel();
    let daemon = Arc::clone(&rig.daemon);
    let stuck = std::thread::Builder::new().spawn(move || {
        daemon.brain.inspect(|_, _| {
            hold.send(()).unwrap();
            released.recv().unwrap();
        });
    });
    held.recv().unwrap();
    assert_eq!(rig.ask("GET", "/healthz").0, 503, "the lock is held");
    assert_eq!(
        rig.ask("GET", "/readyz").0,
        503,
        "not accepting, but answered at once"
    );
    release.send(()).unwrap();
    stuck.unwrap().join().unwrap();
    assert_eq!(rig.ask("GET", "/healthz").0, 200);
}

#[test]
fn readiness_follows_accepting_and_draining_and_names_what_is_missing() {
    let rig = Rig::new(&[]);
    let readiness = |wanted: u16| -> Value {
        let (code, body) = rig.ask("GET", "/readyz");
        assert_eq!(code, wanted, "{body}");
        serde_json::from_str(&body).unwrap()
    };
    assert_eq!(readiness(503)["reasons"], serde_json::json!(["starting"]));
    rig.daemon.status.accepting.store(true, Ordering::Relaxed);
    rig.daemon.status.note("no huge pages");
    let ready = readiness(200);
    assert_eq!(ready["ready"], true);
    assert_eq!(ready["degraded"], serde_json::json!(["no huge pages"]));
    assert_eq!(ready["arena_bytes"], ARENA_BYTES);
    rig.daemon.status.draining.store(true, Ordering::Relaxed);
    assert_eq!(readiness(503)["reasons"], serde_json::json!(["draining"]));
}

#[test]
fn stats_add_up() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    rig.store(session, NAMESPACE, b"present", 1000);
    let keys: [&[u8]; 2] = [b"present", b"absent"];
    rig.apply(Input::Fetch {
        session,
        namespace: NAMESPACE,
        keys: Keys::slices(&keys),
        prefix: false,
        hold: Hold::Lease,
    });
    let stats = rig.get("/v1/stats");
    assert_eq!(stats["epoch"], rig.daemon.status.epoch);
    assert_eq!(stats["tiers"]["host"]["entries"], 1);
    assert_eq!(stats["tiers"]["host"]["payload_bytes"], 1000);
    assert_eq!(stats["totals"]["gets"], 2);
    assert_eq!(stats["totals"]["hits"], 1);
    assert_eq!(stats["misses_by_reason"]["never_stored"], 1);
    assert_eq!(stats["held"]["leases"], 1);
    let memory = &stats["memory"];
    let states = [
        "free_bytes",
        "ticketed_bytes",
        "stored_bytes",
        "orphaned_bytes",
    ];
    let sum: u64 = states
        .iter()
        .map(|state| memory[state].as_u64().unwrap())
        .sum();
    assert_eq!(sum, ARENA_BYTES, "{memory}");
    assert_eq!(memory["payload_bytes"], 1000);
}

#[test]
fn listings_page_through_everything_once() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    for number in 0..150_u8 {
        rig.store(session, NAMESPACE, &[7, number], u64::from(number));
    }
    let mut seen = Vec::new();
    let mut path = "/v1/ls?limit=40".to_owned();
    loop {
        let page = rig.get(&path);
        let rows = page["rows"].as_array().unwrap();
        assert!(rows.len() <= 40);
        seen.extend(
            rows.iter()
                .map(|row| row["key"].as_str().unwrap().to_owned()),
        );
        let Some(next) = page["next"].as_u64() else {
            break;
        };
        path = format!("/v1/ls?limit=40&cursor={next}");
    }
    seen.sort();
    let wanted: Vec<String> = (0..150).map(|number| format!("07{number:02x}")).collect();
    assert_eq!(seen, wanted);
}

#[test]
fn listings_filter_by_namespace_and_key() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    let other = Namespace {
        model: "org/m",
        compat_key: "tp1of2",
    };
    rig.store(session, NAMESPACE, &[0xAB, 1], 10);
    rig.store(session, NAMESPACE, &[0xCD, 1], 20);
    rig.store(session, other, &[0xAB, 1], 30);
    let lengths = |query: &str| -> Vec<u64> {
        let page = rig.get(&format!("/v1/ls?{query}"));
        assert_eq!(page["next"], Value::Null);
        let rows = page["rows"].as_array().unwrap();
        let mut lengths: Vec<u64> = rows
            .iter()
            .map(|row| row["len_bytes"].as_u64().unwrap())
            .collect();
        lengths.sort_unstable();
        lengths
    };
    assert_eq!(lengths(""), [10, 20, 30]);
    assert_eq!(lengths("prefix=ab"), [10, 30]);
    assert_eq!(lengths("compat_key=tp0of1"), [10, 20]);
    assert_eq!(lengths("model=org%2Fm&compat_key=tp1of2&prefix=AB01"), [30]);
    assert_eq!(lengths("model=other"), [0_u64; 0]);
    let row = rig.get("/v1/ls?prefix=cd")["rows"][0].clone();
    assert_eq!(row["retention"], "short");
    assert_eq!(row["model"], "org/m");
    assert_eq!(row["pins"], 0);
}

#[test]
fn why_explains_presence_absence_and_the_wrong_namespace() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    rig.store(session, NAMESPACE, &[1, 2, 3], 10);
    let found = rig.get("/v1/why?key=010203&model=org/m&compat_key=tp0of1");
    assert_eq!(found["present"], true);
    assert_eq!(found["row"]["len_bytes"], 10);
    let elsewhere = rig.get("/v1/why?key=010203&model=org/m&compat_key=tp0of2");
    assert_eq!(elsewhere["present"], false);
    assert_eq!(elsewhere["reason"], "other_namespace");
    assert_eq!(elsewhere["elsewhere"]["compat_key"], "tp0of1");
    let never = rig.get("/v1/why?key=ff&model=org/m&compat_key=tp0of1");
    assert_eq!(never["reason"], "never_stored");
    let everything = ClearScope::Everything;
    rig.apply(Input::Clear {
        scope: everything,
        cursor: ClearCursor::START,
    });
    let cleared = rig.get("/v1/why?key=010203&model=org/m&compat_key=tp0of1");
    assert_eq!(cleared["reason"], "cleared");
    assert_eq!(cleared["explanation"], "removed by a clear");
}

#[test]
fn top_joins_what_a_session_is_with_what_it_holds() {
    let rig = Rig::new(&["--tickets-max=2"]);
    let hog = rig.open(1);
    for _ in 0..3 {
        rig.apply(Input::Reserve {
            session: hog,
            len_bytes: 4096,
            class: Some(Retention::Short),
            writer: Writer::Client,
        });
    }
    let credentials = PeerCredentials {
        pid: Some(42),
        uid: 1000,
        gid: 1000,
    };
    let facts = Arc::new(Facts::new(hog, credentials));
    facts.client_id.set("hog".to_owned()).unwrap();
    facts.requests.store(3, Ordering::Relaxed);
    let (stream, _peer) = UnixStream::pair().unwrap();
    rig.daemon.registry.insert(facts, Arc::new(stream));
    rig.open(2);
    let top = rig.get("/v1/top");
    assert_eq!(top["caps"]["tickets_max"], 2);
    let [first, second] = top["sessions"].as_array().unwrap().as_slice() else {
        panic!("{top}");
    };
    assert_eq!(first["client_id"], "hog");
    assert_eq!(
        (first["pid"].clone(), first["uid"].clone()),
        (42.into(), 1000.into())
    );
    assert_eq!(
        (first["tickets"].clone(), first["refused_total"].clone()),
        (2.into(), 1.into())
    );
    assert_eq!(first["at_cap"], serde_json::json!(["tickets"]));
    assert_eq!(first["requests"], 3);
    assert_eq!(second["id"], 2);
    assert_eq!(second["client_id"], Value::Null);
    assert_eq!(second["at_cap"], serde_json::json!([]));
}

#[test]
fn quarantine_is_released_for_closed_sessions_only() {
    let rig = Rig::new(&[]);
    let lost = rig.open(1);
    let reserve = Input::Reserve {
        session: lost,
        len_bytes: 4096,
        class: Some(Retention::Short),
        writer: Writer::Client,
    };
    rig.apply(reserve);
    let credentials = PeerCredentials {
        pid: None,
        uid: 0,
        gid: 0,
    };
    let (stream, _peer) = UnixStream::pair().unwrap();
    rig.daemon
        .registry
        .insert(Arc::new(Facts::new(lost, credentials)), Arc::new(stream));
    let (code, error) = rig.refused("POST", "/v1/quarantine/release?session=1");
    assert_eq!((code, error["code"].clone()), (409, "conflict".into()));
    rig.daemon.registry.remove(lost);
    rig.apply(Input::Close { session: lost });
    let quarantined = rig.get("/v1/stats")["held"]["quarantined_bytes"]
        .as_u64()
        .unwrap();
    assert!(quarantined >= 4096);
    let top = rig.get("/v1/top");
    assert_eq!(top["sessions"][0]["closed"], true);
    let (code, body) = rig.ask("POST", "/v1/quarantine/release?session=1");
    assert_eq!(
        (code, body),
        (200, format!("{{\"released_bytes\":{quarantined}}}"))
    );
    assert_eq!(rig.get("/v1/stats")["held"]["quarantined_bytes"], 0);
    assert_eq!(rig.ask("GET", "/v1/quarantine/release").0, 405);
}

#[test]
fn metrics_have_help_and_type_and_the_right_values() {
    let rig = Rig::new(&[]);
    let session = rig.open(1);
    rig.store(session, NAMESPACE, b"key", 1000);
    rig.daemon
        .meters
        .sessions_ended
        .count(SessionEnd::WriteStall);
    rig.daemon
        .meters
        .requests
        .of(Op::Fetch)
        .observe(Duration::from_micros(15));
    let (code, text) = rig.ask("GET", "/metrics");
    assert_eq!(code, 200);
    for line in [
        "# HELP infera_kvd_entries Rows in host memory.",
        "# TYPE infera_kvd_entries gauge",
        "infera_kvd_entries 1",
        "infera_kvd_host_bytes 1000",
        "# TYPE infera_kvd_misses_total counter",
        "infera_kvd_misses_total{reason=\"never_stored\"} 0",
        "infera_kvd_sessions_ended_total{reason=\"write_stall\"} 1",
        "infera_kvd_request_seconds_bucket{op=\"fetch\",le=\"0.00003\"} 1",
        "infera_kvd_request_seconds_count{op=\"fetch\"} 1",
        "infera_kvd_arena_bytes 1048576",
        "infera_kvd_ready 0",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line:?} is not in\n{text}"
        );
    }
    check_exposition(&text);
}

/// Every sample follows the HELP and TYPE of its family, and no series appears twice.
fn check_exposition(text: &str) {
    let mut family = String::new();
    let mut series = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let mut words = rest.split(' ');
            let keyword = words.next().unwrap();
            assert!(keyword == "HELP" || keyword == "TYPE", "{line}");
            family = words.next().unwrap().to_owned();
            continue;
        }
        let (name, value) = line.rsplit_once(' ').unwrap();
        assert!(
            name.starts_with(&family),
            "{name} is not of the family {family}"
        );
        assert!(value.parse::<f64>().is_ok_and(f64::is_finite), "{line}");
        assert!(series.insert(name.to_owned()), "{name} appears twice");
    }
    assert!(series.len() > 60, "{}", series.len());
}

#[test]
fn the_tcp_address_serves_health_and_metrics_only() {
    let probe = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = probe.local_addr().unwrap();
    drop(probe);
    let rig = Rig::new(&[&format!("--metrics-listen={address}")]);
    let ask = |method: &str, path: &str| {
        exchange(&mut TcpStream::connect(address).unwrap(), method, path).0
    };
    assert_eq!(ask("GET", "/healthz"), 200);
    assert_eq!(ask("GET", "/readyz"), 503);
    assert_eq!(ask("GET", "/metrics"), 200);
    for path in ["/v1/stats", "/v1/ls", "/v1/why?key=00", "/v1/top", "/"] {
        assert_eq!(ask("GET", path), 404, "{path}");
    }
    assert_eq!(ask("POST", "/v1/quarantine/release"), 404);
    rig.admin.stop();
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn wrong_requests_get_a_coded_error() {
    let rig = Rig::new(&[]);
    for path in [
        "/v1/ls?limit=0",
        "/v1/ls?limit=1001",
        "/v1/ls?limit=many",
        "/v1/ls?prefix=abc",
        "/v1/ls?colour=red",
        "/v1/why",
        "/v1/why?key=xy",
        &format!("/v1/why?key={}", "00".repeat(257)),
    ] {
        let (code, error) = rig.refused("GET", path);
        assert_eq!(
            (code, error["code"].clone()),
            (400, "bad_request".into()),
            "{path}: {error}"
        );
        assert!(!error["message"].as_str().unwrap().is_empty());
    }
    let (code, error) = rig.refused("GET", "/v2/stats");
    assert_eq!((code, error["code"].clone()), (404, "not_found".into()));
}

#[test]
fn a_head_beyond_the_limit_is_refused_and_costs_nobody_else_anything() {
    let rig = Rig::new(&[]);
    let mut stream = UnixStream::connect(rig.socket()).unwrap();
    let flood = format!("GET /{} HTTP/1.1\r\n", "x".repeat(64 << 10));
    // The daemon may close before it has read everything.
    drop(stream.write_all(flood.as_bytes()));
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    let answer = String::from_utf8_lossy(&answer);
    assert!(
        answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
        "{answer}"
    );
    assert_eq!(rig.ask("GET", "/healthz").0, 200);
}

#[test]
fn connections_are_bounded_and_places_are_given_back() {
    let rig = Rig::new(&[]);
    let idle: Vec<UnixStream> = (0..32)
        .map(|_| UnixStream::connect(rig.socket()).unwrap())
        .collect();
    let mut one_more = UnixStream::connect(rig.socket()).unwrap();
    let mut answer = Vec::new();
    let got = one_more.read_to_end(&mut answer);
    assert!(
        matches!(got, Ok(0) | Err(_)),
        "closed without an answer: {answer:?}"
    );
    drop(idle);
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    loop {
        let mut stream = UnixStream::connect(rig.socket()).unwrap();
        let head = b"GET /healthz HTTP/1.1\r\nHost: kvd\r\nConnection: close\r\n\r\n";
        let mut text = String::new();
        let served = stream
            .write_all(head)
            .and_then(|()| stream.read_to_string(&mut text));
        if served.is_ok() && text.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(
            std::time::Instant::now() < deadline,
            "places are not given back"
        );
    }
}
