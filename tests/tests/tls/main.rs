//! Certificates and passwords: who is let in, who is believed, and what is said of who is not. With a real etcd, real daemons, and mock
//! workers behind a door with TLS.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a case stops at the first surprise")]

mod authority;
mod servers;

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use kvd_tests::figures::wait_warm;
use kvd_tests::router::client::{get, post, send};
use kvd_tests::router::etcd::{free_port, record};
use kvd_tests::router::register::{Alone, Sidecar, run};
use kvd_tests::router::worker::{body_of, chat_stream, whole};
use kvd_tests::router::{Etcd, Router, Worker, ask};
use kvd_tests::until::until_true;
use kvd_tests::{Daemon, Launch};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

use self::authority::{Authority, Identity};
use self::servers::{Door, SecureEtcd};

const HERE: &str = "IP:127.0.0.1";
const ROUTER_LOST: &str = "etcd does not answer";
const WORKER_LOST: &str = "the worker is not registered";
const DAEMON_LOST: &str = "not registered in etcd; trying on";
const PASSWORD: &str = "no-one-may-read-this";
/// More than the longest pause between attempts, and a deadline.
const NEXT_ATTEMPT: Duration = Duration::from_secs(30);

fn launch(etcd: SocketAddr, flags: &[&str]) -> Launch {
    let events = ["--events-listen", "127.0.0.1:0", "--host-id", "host-1", "--max-bytes", "32M"];
    let etcd = ["--etcd-endpoint".to_owned(), etcd.to_string()];
    Launch::new().args(events).args(etcd).args(flags.iter().copied())
}

fn router(etcd: SocketAddr, flags: &[&str]) -> Router {
    Router::start(&[&["--etcd-endpoint", &etcd.to_string()], flags].concat())
}

fn is_registered(daemon: &Daemon) -> bool {
    daemon.metric("infera_kvd_registered") == Some(1.0)
}

fn end(mut sidecar: Sidecar) {
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.finish().code(), Some(5));
}

/// A server that accepts, and says nothing ever.
fn silent() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

#[test]
fn etcd_lets_in_who_has_a_certificate() {
    let authority = Authority::new();
    let etcd = SecureEtcd::start(&authority);
    let (ca, Identity { cert, key }) = (authority.file(), authority.identity("DNS:client"));
    let flags = ["--etcd-ca-file", &ca, "--etcd-cert-file", &cert, "--etcd-key-file", &key];
    let router = router(etcd.address(), &flags);
    let daemon = launch(etcd.address(), &flags).start();
    let sidecar = Sidecar::with_engine(etcd.address(), &flags, &[]);
    let id = sidecar.worker_id();
    until_true("the router knows the worker", || router.worker_ids() == [id.clone()]);
    until_true("the daemon is registered", || is_registered(&daemon));
    assert_eq!(ask(router.address()).status, 200);
    end(sidecar);
    until_true("the router has forgotten it", || router.worker_ids().is_empty());
    wait_warm(&daemon);
    assert!(daemon.stop().success());
}

#[test]
fn who_is_not_let_in_or_does_not_believe_etcd_says_why_and_tries_on() {
    let authority = Authority::new();
    let etcd = SecureEtcd::start(&authority);
    let (ca, stranger) = (authority.file(), Authority::new());
    let strangers = stranger.file();
    let Identity { cert, key } = stranger.identity("DNS:client");
    let theirs = ["--etcd-ca-file", &ca, "--etcd-cert-file", &cert, "--etcd-key-file", &key];
    // A member that does not let us in says so after it was greeted: the connection may be closed before that is read.
    let refused = ["ertificate", "closed", "reset", "broken"];
    for (flags, reasons) in [
        (&["--etcd-ca-file", strangers.as_str()][..], &["peer certificate: UnknownIssuer"][..]),
        (&theirs[..2], &refused),
        (&theirs[..], &refused),
    ] {
        let is_why = |line: &str| reasons.iter().any(|reason| line.contains(reason));
        let mut router = router(etcd.address(), flags);
        router.announce(ROUTER_LOST);
        let line = router.log().wait_for(ROUTER_LOST);
        assert!(is_why(&line), "{line}");
        assert_eq!(get(router.address(), "/ready").0, 503);
        let mut sidecar = Sidecar::with_engine(etcd.address(), flags, &[]);
        sidecar.announce(WORKER_LOST);
        let line = sidecar.log().wait_for(WORKER_LOST);
        assert!(is_why(&line), "{line}");
        end(sidecar);
        let daemon = launch(etcd.address(), flags).announce(DAEMON_LOST).start();
        let line = daemon.log().wait_for(DAEMON_LOST);
        assert!(is_why(&line), "{line}");
        wait_warm(&daemon);
        assert!(daemon.stop().success());
        router.signal(Signal::SIGTERM);
        assert!(router.wait().success());
    }
}

#[test]
fn a_certificate_that_is_renewed_in_place_counts() {
    let authority = Authority::new();
    let etcd = SecureEtcd::start(&authority);
    let Identity { cert, key } = authority.identity("DNS:client");
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::copy(Authority::new().file(), &ca).unwrap();
    let ca_file = ca.to_str().unwrap();
    let flags = ["--etcd-ca-file", ca_file, "--etcd-cert-file", &cert, "--etcd-key-file", &key];
    let mut router = router(etcd.address(), &flags);
    router.announce(ROUTER_LOST);
    let _lost = router.log().wait_for(ROUTER_LOST);
    std::fs::copy(authority.file(), &ca).unwrap();
    let _found = router.log().wait_for("following etcd");
}

fn call(etcd: &Etcd, path: &str, body: &Value) {
    let reply = send(etcd.address(), "POST", path, &[], &body.to_string()).unwrap();
    assert_eq!(reply.status, 200, "{path}");
}

/// Below `/infera/` only `infera` may read and write.
fn lock(etcd: &Etcd) {
    for (name, password) in [("root", "root"), ("infera", PASSWORD)] {
        call(etcd, "/v3/auth/user/add", &json!({"name": name, "password": password}));
        call(etcd, "/v3/auth/role/add", &json!({"name": name}));
        call(etcd, "/v3/auth/user/grant", &json!({"user": name, "role": name}));
    }
    // /infera/ up to /infera0, in base64.
    let range =
        json!({"permType": "READWRITE", "key": "L2luZmVyYS8=", "range_end": "L2luZmVyYTA="});
    call(etcd, "/v3/auth/role/grant", &json!({"name": "infera", "perm": range}));
    call(etcd, "/v3/auth/enable", &json!({}));
}

#[test]
fn a_user_and_a_password_let_in() {
    let etcd = Etcd::start();
    lock(&etcd);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (file("right", &format!("{PASSWORD}\n")), file("wrong", "guess"));
    let flags = ["--etcd-user", "infera", "--etcd-password-file", &right];
    let router = router(etcd.address(), &flags);
    let sidecar = Sidecar::with_engine(etcd.address(), &flags, &[]);
    let from_environment = launch(etcd.address(), &flags[..2]);
    let daemon = from_environment.env("INFERA_ETCD_PASSWORD", PASSWORD).start();
    let id = sidecar.worker_id();
    until_true("the router knows the worker", || router.worker_ids() == [id.clone()]);
    until_true("the daemon is registered", || is_registered(&daemon));
    // Without the password, without any user: nothing is seen, nothing is written, and it is said why.
    for (flags, reason) in [
        (&["--etcd-user", "infera", "--etcd-password-file", &wrong][..], "authentication failed"),
        (&[][..], "user name is empty"),
    ] {
        let mut outsider = self::router(etcd.address(), flags);
        outsider.announce(ROUTER_LOST);
        let line = outsider.log().wait_for(ROUTER_LOST);
        assert!(line.contains(reason), "{line}");
        assert_eq!(outsider.worker_ids(), Vec::<String>::new());
    }
    for log in [router.log(), sidecar.log(), daemon.log()] {
        assert!(!log.text().contains(PASSWORD), "{}", log.text());
    }
    end(sidecar);
    until_true("the router has forgotten it", || router.worker_ids().is_empty());
    wait_warm(&daemon);
    assert!(daemon.stop().success());
}

#[test]
fn a_member_that_is_away_or_silent_is_passed_over() {
    let etcd = Etcd::start();
    let silent = silent();
    let members = format!("{},{},{}", free_port(), silent.local_addr().unwrap(), etcd.address());
    let mut router = Router::start(&["--etcd-endpoint", &members]);
    // Who accepts is a member until it does not answer.
    router.announce(ROUTER_LOST);
    let worker = Worker::start();
    etcd.register(&worker.address().to_string(), &record(&worker));
    let began = Instant::now();
    until_true("the router knows the worker", || router.worker_ids().len() == 1);
    assert!(began.elapsed() < NEXT_ATTEMPT);
    assert_eq!(ask(router.address()).status, 200);
}

#[test]
fn an_etcd_that_says_nothing_holds_nobody_up() {
    let silent = silent();
    let address = silent.local_addr().unwrap();
    let mut router = router(address, &[]);
    router.announce(ROUTER_LOST);
    let line = router.log().wait_for(ROUTER_LOST);
    assert!(line.contains("no answer within 5s"), "{line}");
    router.signal(Signal::SIGTERM);
    assert!(router.wait().success());
    let mut sidecar = Sidecar::with_engine(address, &[], &[]);
    sidecar.announce(WORKER_LOST);
    let _lost = sidecar.log().wait_for(WORKER_LOST);
    end(sidecar);
}

#[test]
fn workers_at_https_are_asked_and_polled() {
    let authority = Authority::new();
    let worker = Worker::start();
    let door = Door::to(worker.address(), &authority.identity(HERE));
    let ca = authority.file();
    let flags = ["--worker", &door.url(), "--worker-ca-file", &ca, "--router-policy", "kv-aware"];
    let mut router = Router::start(&flags);
    router.announce("kv-aware without");
    until_true("it is polled", || worker.connections() > 0);
    assert!(worker.seen().is_empty());
    let mut reply = ask(router.address());
    assert_eq!((reply.status, reply.text().into_bytes()), (200, body_of(&chat_stream(3))));
    worker.answer_once(whole(200, &[], r#"{"tokens":[1]}"#));
    let mut reply = post(router.address(), "/tokenize", &[], r#"{"model":"m","prompt":"x"}"#);
    assert_eq!((reply.status, reply.text().as_str()), (200, r#"{"tokens":[1]}"#));
    // Registered as well as named.
    let etcd = Etcd::start();
    let mut registered = record(&worker);
    registered["url"] = json!(door.url());
    etcd.register(&door.authority(), &registered);
    let router = self::router(etcd.address(), &["--worker-ca-file", &ca]);
    until_true("the router knows the worker", || router.worker_ids().len() == 1);
    assert_eq!(ask(router.address()).status, 200);
}

#[test]
fn a_worker_that_is_not_believed_gets_nothing() {
    let authority = Authority::new();
    let ca = authority.file();
    let worker = Worker::start();
    let stranger = Authority::new();
    for (identity, reason) in [
        (stranger.identity(HERE), "invalid peer certificate: UnknownIssuer"),
        (authority.identity("DNS:elsewhere"), "not valid for name"),
    ] {
        let door = Door::to(worker.address(), &identity);
        let mut router = Router::start(&["--worker", &door.url(), "--worker-ca-file", &ca]);
        router.announce("a worker did not answer");
        let mut reply = ask(router.address());
        assert_eq!((reply.status, reply.code().as_str()), (502, "worker_unreachable"));
        let line = router.log().wait_for("a worker did not answer");
        assert!(line.contains(reason), "{line}");
    }
    // One that accepts, and never greets; and one that has no TLS.
    let silent = silent();
    for address in [silent.local_addr().unwrap(), worker.address()] {
        let url = format!("https://{address}");
        let mut router = Router::start(&["--worker", &url, "--worker-ca-file", &ca]);
        router.announce("a worker did not answer");
        assert_eq!(ask(router.address()).status, 502);
    }
    assert!(worker.seen().is_empty(), "nothing was sent to who is not believed");
}

#[test]
fn an_engine_at_https_is_registered_so() {
    let authority = Authority::new();
    let engine = free_port();
    let _engine = Alone::start(engine, &[]);
    let door = Door::to(engine, &authority.identity(HERE));
    let url = door.url();
    let print = |ca: &str| {
        run(&["--print", "--url", &url, "--engine-ca-file", ca, "--start-timeout-s", "5"])
    };
    let (code, said) = print(&authority.file());
    assert_eq!(code, Some(0), "{said}");
    let stranger = Authority::new();
    let (code, said) = print(&stranger.file());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("UnknownIssuer"), "{said}");
}

#[test]
fn the_daemon_of_the_host_tells_its_id_whenever_it_comes() {
    let etcd = Etcd::start();
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("kvd.sock");
    let admin = folder.path().join("kvd.admin.sock");
    let flags = ["--kvd-admin-socket", admin.to_str().unwrap()];
    let sidecar = Sidecar::with_engine(etcd.address(), &flags, &[]);
    let id = sidecar.worker_id();
    let kvd = || etcd.record(&id).map(|(record, lease)| (record["kvd"].clone(), lease));
    until_true("it is registered without", || kvd().is_some_and(|(kvd, _)| kvd == Value::Null));
    let (_, lease) = kvd().unwrap();
    let start = |host_id: &str| {
        let events = ["--events-listen", "127.0.0.1:0", "--host-id", host_id, "--max-bytes", "32M"];
        let daemon = Launch::new().socket(&socket).args(events).start();
        wait_warm(&daemon);
        daemon
    };
    let is_told = |host_id: &str| kvd() == Some((json!({"host_id": host_id}), lease.clone()));
    let daemon = start("host-9");
    until_true("the record names it", || is_told("host-9"));
    assert!(daemon.stop().success());
    let daemon = start("host-10");
    until_true("the record names the new one", || is_told("host-10"));
    assert!(daemon.stop().success());
    end(sidecar);
}
