//! The sidecar with a mock engine, a real etcd and a real router: who is registered, when, and what becomes of the engine.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use kvd_tests::process::is_running;
use kvd_tests::router::client::get;
use kvd_tests::router::etcd::free_port;
use kvd_tests::router::register::{Alone, Sidecar, control, run};
use kvd_tests::router::{Etcd, Router, ask};
use kvd_tests::until::{until, until_true};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const EVENTS: &str = r#"{"enable_kv_cache_events":true,"endpoint":"tcp://*:5557","replay_endpoint":"tcp://*:5657","topic":"kv-events"}"#;
const LOST: &str = "the worker is not registered";
/// A lease of 30 s, and what etcd takes to notice.
const LEASE: Duration = Duration::from_secs(60);

fn record(etcd: &Etcd, id: &str) -> Option<Value> {
    etcd.record(id).map(|(record, _lease)| record)
}

fn wait_for_record(etcd: &Etcd, sidecar: &Sidecar) -> Value {
    let id = sidecar.worker_id();
    let what = format!("{id} is registered");
    until(&what, kvd_tests::PATIENCE, || record(etcd, &id))
}

fn wait_for_absence(etcd: &Etcd, sidecar: &Sidecar) {
    let id = sidecar.worker_id();
    until_true("it is not registered any more", || record(etcd, &id).is_none());
}

fn said(sidecar: &Sidecar, part: &str) -> bool {
    sidecar.log().count(part) > 0
}

/// Nobody listens there.
fn is_silent(engine: SocketAddr) -> bool {
    std::net::TcpStream::connect(engine).is_err()
}

#[test]
fn an_engine_becomes_a_worker_that_the_router_sends_requests_to() {
    let etcd = Etcd::start();
    let router = Router::start(&["--etcd-endpoint", &etcd.address().to_string()]);
    let more = ["--kv-events-config", EVENTS, "--max-num-seqs", "4", "--tokenizer", "/none"];
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &more);
    let found = wait_for_record(&etcd, &sidecar);
    let id = sidecar.worker_id();
    let canary: Vec<u8> =
        "Hello, world!\n你好，世界！<|im_start|>system\n<|endoftext|><|im_end|>🦄".into();
    let wanted = json!({
        "worker_id": id, "url": format!("http://{id}"), "model_name": "m", "engine": "vllm", "status": "active",
        "disagg_mode": "mixed", "disagg_meta": null, "request_transport": "http", "dp_rank": null, "dp_size": null,
        "kv_events_endpoint": "tcp://127.0.0.1:5557", "kv_replay_endpoint": "tcp://127.0.0.1:5657", "kv_block_size": 16,
        "max_decodes": 4, "model_root": "/models/m", "kvd": null,
        "kv": {"engine_block_size": 16, "index_block_size": 16, "tokenizer": "/none", "tokenizer_digest": "",
               "tokenizer_canary": canary, "supports_events": true, "event_version": 1,
               "events_endpoint": "tcp://127.0.0.1:5557", "snapshot_endpoint": null, "tiers": ["device"]}});
    assert_eq!(found, wanted);
    until_true("the router knows it", || router.worker_ids() == [id.clone()]);
    assert_eq!(ask(router.address()).status, 200);
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.finish().code(), Some(5));
    until_true("the router has forgotten it", || router.worker_ids().is_empty());
    assert_eq!(ask(router.address()).status, 503);
}

#[test]
fn it_is_taken_out_before_it_drains_and_drains_before_it_ends() {
    let etcd = Etcd::start();
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &[]);
    wait_for_record(&etcd, &sidecar);
    control(sidecar.engine(), &json!({"running": 1}));
    sidecar.signal(Signal::SIGTERM);
    wait_for_absence(&etcd, &sidecar);
    // The drain looks at the engine again and again, and finds it at work.
    assert_eq!(sidecar.log().wait_for("waiting for requests").matches("WARN").count(), 0);
    std::thread::park_timeout(Duration::from_secs(3));
    assert!(sidecar.is_running() && !said(&sidecar, "heard SIGTERM"));
    assert_eq!(get(sidecar.engine(), "/health").0, 200);
    control(sidecar.engine(), &json!({"running": 0}));
    assert_eq!(sidecar.finish().code(), Some(5), "the engine's exit code is ours");
    assert!(said(&sidecar, "heard SIGTERM with 0 running"));
}

#[test]
fn a_second_signal_ends_the_drain_and_a_third_one_the_engine() {
    let etcd = Etcd::start();
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &["--ignore-term"]);
    wait_for_record(&etcd, &sidecar);
    control(sidecar.engine(), &json!({"running": 1}));
    sidecar.announce("requests may be cut off, as another signal asked for it");
    sidecar.announce("the engine is killed, as another signal asked for it");
    sidecar.signal(Signal::SIGINT);
    let _draining = sidecar.log().wait_for("waiting for requests in flight");
    sidecar.signal(Signal::SIGTERM);
    let _asked = sidecar.log().wait_for("heard SIGTERM with 1 running");
    assert!(sidecar.is_running());
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.finish().code(), Some(128 + 9));
}

#[test]
fn times_that_are_over_are_over() {
    let etcd = Etcd::start();
    let flags = ["--drain-timeout-s", "0.5", "--stop-timeout-s", "0.5"];
    let mut sidecar = Sidecar::with_engine(etcd.address(), &flags, &["--ignore-term"]);
    wait_for_record(&etcd, &sidecar);
    control(sidecar.engine(), &json!({"running": 1}));
    sidecar.announce("requests may be cut off: --drain-timeout-s is over");
    sidecar.announce("it did not end within --stop-timeout-s");
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.finish().code(), Some(128 + 9));
    assert!(said(&sidecar, "heard SIGTERM with 1 running"));
}

#[test]
fn a_dead_engine_is_taken_out_at_once_and_its_exit_code_is_ours() {
    let etcd = Etcd::start();
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &["--with-child"]);
    wait_for_record(&etcd, &sidecar);
    let child = sidecar.log().wait_for("child ");
    let child: i32 = child.rsplit(' ').next().unwrap().parse().unwrap();
    assert!(is_running(child));
    control(sidecar.engine(), &json!({"exit": 7}));
    assert_eq!(sidecar.finish().code(), Some(7));
    // No lease had the time to end.
    assert_eq!(record(&etcd, &sidecar.worker_id()), None);
    assert!(!is_running(child), "what it left behind holds its devices");

    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &[]);
    wait_for_record(&etcd, &sidecar);
    nix::sys::signal::kill(sidecar.engine_pid().unwrap(), Signal::SIGKILL).unwrap();
    let status = sidecar.finish();
    assert_eq!((status.code(), status.signal()), (Some(128 + 9), None));
    assert_eq!(record(&etcd, &sidecar.worker_id()), None);
}

#[test]
fn an_engine_that_is_not_ready_is_not_registered_and_ended_without_a_drain() {
    let etcd = Etcd::start();
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &["--health", "503"]);
    let _served = sidecar.log().wait_for("mock engine serves");
    control(sidecar.engine(), &json!({"running": 1}));
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.finish().code(), Some(5));
    assert!(!said(&sidecar, "waiting for requests") && !said(&sidecar, "registered"));

    let flags = ["--start-timeout-s", "2"];
    let mut sidecar = Sidecar::with_engine(etcd.address(), &flags, &["--health", "503"]);
    sidecar.announce("the engine is not ready within --start-timeout-s: status 503");
    assert_eq!(sidecar.finish().code(), Some(1));
    assert!(said(&sidecar, "heard SIGTERM") && is_silent(sidecar.engine()));
}

#[test]
fn an_engine_that_is_not_well_is_taken_out_until_it_is() {
    let etcd = Etcd::start();
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &[]);
    let before = wait_for_record(&etcd, &sidecar);
    sidecar.announce("the engine is not well");
    control(sidecar.engine(), &json!({"health": 500}));
    wait_for_absence(&etcd, &sidecar);
    control(sidecar.engine(), &json!({"health": 200, "model": "other", "block_size": 32}));
    let after = wait_for_record(&etcd, &sidecar);
    // It may be another engine by now: it is asked anew.
    assert_eq!((&before["model_name"], &before["kv_block_size"]), (&json!("m"), &json!(16)));
    assert_eq!((&after["model_name"], &after["kv_block_size"]), (&json!("other"), &json!(32)));
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.finish().code(), Some(5));
}

#[test]
fn an_engine_that_runs_already_is_looked_after_and_left_alone() {
    let etcd = Etcd::start();
    let engine = free_port();
    let first = Alone::start(engine, &["--like", "sglang"]);
    let mut sidecar = Sidecar::beside(etcd.address(), engine, &[]);
    let found = wait_for_record(&etcd, &sidecar);
    assert_eq!(
        (&found["engine"], &found["dp_size"], &found["dp_rank"]),
        (&json!("sglang"), &json!(2), &json!(null))
    );
    assert_eq!(found["kv_events_endpoint"], "tcp://127.0.0.1:5557");
    assert_eq!(
        (&found["max_decodes"], &found["kv"]["tokenizer"]),
        (&json!(48), &json!("/models/tokenizer"))
    );
    sidecar.announce("the engine is not well; it is taken out until it is reason=nobody listens");
    drop(first);
    wait_for_absence(&etcd, &sidecar);
    let mut second = Alone::start(engine, &[]);
    assert_eq!(wait_for_record(&etcd, &sidecar)["engine"], "vllm");
    control(engine, &json!({"running": 1}));
    sidecar.signal(Signal::SIGTERM);
    wait_for_absence(&etcd, &sidecar);
    assert!(sidecar.is_running());
    control(engine, &json!({"running": 0}));
    assert_eq!(sidecar.finish().code(), Some(0));
    assert!(second.is_running());
}

#[test]
fn what_is_not_for_us_is_for_the_engine() {
    let etcd = Etcd::start();
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &[]);
    wait_for_record(&etcd, &sidecar);
    for (signal, name) in [(Signal::SIGUSR1, "SIGUSR1"), (Signal::SIGHUP, "SIGHUP")] {
        sidecar.signal(signal);
        let _passed_on = sidecar.log().wait_for(&format!("heard {name}"));
    }
    assert!(sidecar.is_running());
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.finish().code(), Some(5));
}

#[test]
fn a_worker_comes_back_whatever_etcd_loses() {
    let mut etcd = Etcd::start();
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &[]);
    sidecar.announce(LOST);
    let before = wait_for_record(&etcd, &sidecar);
    let id = sidecar.worker_id();
    let lease = etcd.record(&id).unwrap().1;
    // Restarted with what it knew: the same lease.
    etcd.kill();
    etcd.resume();
    assert_eq!(etcd.record(&id), Some((before.clone(), lease.clone())));
    // The key alone, then the lease, then everything.
    etcd.remove(&id);
    assert_eq!(wait_for_record(&etcd, &sidecar), before);
    let lease = etcd.record(&id).unwrap().1;
    etcd.revoke(&lease);
    assert_eq!(wait_for_record(&etcd, &sidecar), before);
    assert_ne!(etcd.record(&id).unwrap().1, lease);
    etcd.kill();
    etcd.resume_empty();
    assert_eq!(wait_for_record(&etcd, &sidecar), before);
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.finish().code(), Some(5));
    assert_eq!(record(&etcd, &id), None);
}

#[test]
fn a_start_and_an_end_need_no_etcd() {
    let mut etcd = Etcd::start();
    etcd.kill();
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &[]);
    sidecar.announce(LOST);
    let _lost = sidecar.log().wait_for(LOST);
    etcd.resume();
    wait_for_record(&etcd, &sidecar);
    etcd.kill();
    sidecar.announce("the lease can't be revoked; it ends within 30 s");
    sidecar.signal(Signal::SIGTERM);
    assert_eq!(sidecar.finish().code(), Some(5));
}

#[test]
fn a_sidecar_that_dies_is_forgotten_by_its_lease_and_not_before() {
    let etcd = Etcd::start();
    let mut sidecar = Sidecar::with_engine(etcd.address(), &[], &[]);
    wait_for_record(&etcd, &sidecar);
    sidecar.crash();
    let id = sidecar.worker_id();
    assert!(record(&etcd, &id).is_some());
    until("its lease ends", LEASE, || record(&etcd, &id).is_none().then_some(()));
}

#[test]
fn whoever_registers_last_has_the_key() {
    let etcd = Etcd::start();
    let engine = free_port();
    let _engine = Alone::start(engine, &[]);
    let mut first = Sidecar::beside(etcd.address(), engine, &[]);
    wait_for_record(&etcd, &first);
    let mut second = Sidecar::beside(etcd.address(), engine, &["--model-name", "second"]);
    until_true("the second one is there", || {
        record(&etcd, &second.worker_id()).is_some_and(|record| record["model_name"] == "second")
    });
    first.announce("another process has registered as the same worker");
    let _noticed = first.log().wait_for("another process has registered as the same worker");
    first.signal(Signal::SIGTERM);
    assert_eq!(first.finish().code(), Some(0));
    assert_eq!(record(&etcd, &second.worker_id()).unwrap()["model_name"], "second");
    second.signal(Signal::SIGTERM);
    assert_eq!(second.finish().code(), Some(0));
    assert_eq!(record(&etcd, &second.worker_id()), None);
}

#[test]
fn the_daemon_of_the_host_is_named_if_there_is_one() {
    let etcd = Etcd::start();
    let put = |id: &str, address: &str| {
        let record = json!({"host_id": id, "epoch": 7, "addrs": [address]});
        etcd.put(&format!("/infera/kvd/{id}"), &record);
    };
    let register = |flags: &[&str]| {
        let mut sidecar = Sidecar::with_engine(etcd.address(), flags, &[]);
        let found = wait_for_record(&etcd, &sidecar);
        sidecar.signal(Signal::SIGTERM);
        assert_eq!(sidecar.finish().code(), Some(5));
        found["kvd"].clone()
    };
    put("far", "192.0.2.9");
    etcd.put("/infera/kvd/bad", &json!("no record"));
    assert_eq!(register(&[]), json!(null));
    put("here", "127.0.0.1");
    assert_eq!(register(&[]), json!({"host_id": "here"}));
    put("here-too", "127.0.0.1");
    assert_eq!(register(&[]), json!(null), "it can't be told which one is meant");
    assert_eq!(register(&["--kvd-host-id", "said"]), json!({"host_id": "said"}));
}

#[test]
fn records_are_printed_without_being_registered() {
    let etcd = Etcd::start();
    let more = ["--data-parallel-size", "2", "--data-parallel-rank", "1"];
    let mut sidecar = Sidecar::with_engine(etcd.address(), &["--print"], &more);
    assert_eq!(sidecar.finish().code(), Some(0));
    let text = sidecar.log().text();
    let from = text.find("\n{").expect("a record");
    let printed = serde_json::Deserializer::from_str(&text[from..]).into_iter::<Value>().next();
    let printed = printed.unwrap().unwrap();
    assert_eq!(
        (&printed["worker_id"], &printed["dp_rank"]),
        (&json!(sidecar.worker_id()), &json!(1))
    );
    assert_eq!(record(&etcd, &sidecar.worker_id()), None);
    assert!(!said(&sidecar, "registered") && is_silent(sidecar.engine()));
}

#[test]
fn a_program_that_is_not_there_is_named() {
    let output = run(&["--", "/none/vllm"]);
    assert_eq!(output.0, Some(1));
    assert!(output.1.contains("/none/vllm"), "{}", output.1);
    assert_eq!(run(&[]).0, Some(2));
}
