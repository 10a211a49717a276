//! Who is served, health, bounds and errors.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::Value;

use super::super::Sockets;
use super::{ARENA_BYTES, Rig, exchange};

#[test]
fn the_socket_is_its_owners_and_leaves_with_the_interface() {
    let rig = Rig::new(&[]);
    let path = rig.socket();
    assert_eq!(path, rig.folder.path().join("kvd.admin.sock"));
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = Sockets::open(&rig.daemon.settings, None, None);
    assert!(second.is_err(), "a live socket is never stolen");
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
    assert_eq!(rig.ask("GET", "/readyz").0, 503, "not accepting, but answered at once");
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
        assert_eq!((code, error["code"].clone()), (400, "bad_request".into()), "{path}: {error}");
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
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert_eq!(rig.ask("GET", "/healthz").0, 200);
}

#[test]
fn connections_are_bounded_and_places_are_given_back() {
    let rig = Rig::new(&[]);
    let idle: Vec<UnixStream> =
        (0..32).map(|_| UnixStream::connect(rig.socket()).unwrap()).collect();
    let mut one_more = UnixStream::connect(rig.socket()).unwrap();
    let mut answer = Vec::new();
    let got = one_more.read_to_end(&mut answer);
    assert!(matches!(got, Ok(0) | Err(_)), "closed without an answer: {answer:?}");
    drop(idle);
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    loop {
        let mut stream = UnixStream::connect(rig.socket()).unwrap();
        let head = b"GET /healthz HTTP/1.1\r\nHost: kvd\r\nConnection: close\r\n\r\n";
        let mut text = String::new();
        let served = stream.write_all(head).and_then(|()| stream.read_to_string(&mut text));
        if served.is_ok() && text.starts_with("HTTP/1.1 200") {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "places are not given back");
    }
}
