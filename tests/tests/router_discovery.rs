//! The router and a real etcd: who is there, and what becomes of that when etcd, the line to it or a worker goes.

use std::time::Duration;

use kvd_tests::router::client::get;
use kvd_tests::router::etcd::record;
use kvd_tests::router::worker::{chat_stream, whole};
use kvd_tests::router::{Etcd, Line, Router, Worker, ask};
use kvd_tests::until::{until, until_true};
use nix::sys::signal::Signal;
use serde_json::json;

const LOST: &str = "etcd does not answer";
/// What the router may need at worst to notice a line that is dead without a word, and more.
const DEAD_LINE: Duration = Duration::from_secs(60);

fn router_at(address: std::net::SocketAddr) -> Router {
    Router::start(&["--etcd-endpoint", &address.to_string()])
}

fn ids(workers: &[&Worker]) -> Vec<String> {
    let mut ids: Vec<String> = workers.iter().map(|worker| worker.address().to_string()).collect();
    ids.sort_unstable();
    ids
}

fn wait_for(router: &Router, workers: &[&Worker]) {
    let wanted = ids(workers);
    until_true("the router knows these workers", || router.worker_ids() == wanted);
}

fn picks(router: &Router, worker: &Worker) -> Option<f64> {
    let id = worker.address();
    router.metric(&format!("infera_router_picks_total{{role=\"mixed\",worker_id=\"{id}\"}}"))
}

fn register(etcd: &Etcd, worker: &Worker) -> i64 {
    etcd.register(&worker.address().to_string(), &record(worker))
}

#[test]
fn workers_come_and_go() {
    let etcd = Etcd::start();
    let (first, second) = (Worker::start(), Worker::start());
    register(&etcd, &first);
    let mut router = router_at(etcd.address());
    until_true("it is ready", || get(router.address(), "/ready").0 == 200);
    assert_eq!(ask(router.address()).status, 200);
    register(&etcd, &second);
    wait_for(&router, &[&first, &second]);
    let models: serde_json::Value =
        serde_json::from_str(&get(router.address(), "/v1/models").1).unwrap();
    assert_eq!((&models["data"][0]["id"], &models["data"][1]), (&json!("m"), &json!(null)));
    // Unknown fields are shown, bad records are skipped, draining workers are not asked.
    let mut odd = record(&first);
    odd["status"] = json!("draining");
    odd["zone"] = json!({"rack": 7});
    etcd.register(&first.address().to_string(), &odd);
    router.announce("a record can't be read");
    etcd.register("nonsense", &json!({"worker_id": 7}));
    until_true("the odd record is there", || {
        router.workers().iter().any(|worker| worker["zone"]["rack"] == 7)
    });
    until_true("the bad record is counted", || {
        router.count("infera_router_discovery_bad_records_total") > 0
    });
    let before = second.seen().len();
    (0..4).for_each(|_| assert_eq!(ask(router.address()).status, 200));
    assert_eq!(second.seen().len() - before, 4);
    etcd.remove(&second.address().to_string());
    wait_for(&router, &[&first]);
    let mut reply = ask(router.address());
    assert_eq!((reply.status, reply.code().as_str()), (503, "no_worker"));
    assert_eq!(get(router.address(), "/ready").0, 503);
    assert_eq!(picks(&router, &second), None, "the series of who is gone");
}

#[test]
fn each_rank_of_a_worker_is_asked_by_its_number() {
    let etcd = Etcd::start();
    let worker = Worker::start();
    let mut ranks = record(&worker);
    ranks["dp_size"] = json!(3);
    etcd.register(&worker.address().to_string(), &ranks);
    let router = router_at(etcd.address());
    wait_for(&router, &[&worker]);
    (0..6).for_each(|_| assert_eq!(ask(router.address()).status, 200));
    let asked: Vec<Option<String>> = worker
        .seen()
        .iter()
        .map(|seen| seen.header("x-data-parallel-rank").map(str::to_owned))
        .collect();
    let mut counts = [0; 3];
    for rank in asked {
        counts[rank.unwrap().parse::<usize>().unwrap()] += 1;
    }
    assert_eq!(counts, [2, 2, 2]);
}

#[test]
fn engines_are_told_how_long_to_keep_blocks() {
    let etcd = Etcd::start();
    let worker = Worker::start();
    let router = router_at(etcd.address());
    for (engine, wanted) in [
        ("sglang", json!({"priority": 100, "infera_retention": "long"})),
        (
            "vllm",
            json!({"kv_transfer_params": {"infera_retention": "long"}, "_infera_retention": "long"}),
        ),
        ("atom", json!({})),
    ] {
        let mut it = record(&worker);
        it["engine"] = json!(engine);
        etcd.register(&worker.address().to_string(), &it);
        until_true("the engine is known", || {
            router.workers().first().is_some_and(|worker| worker["engine"] == engine)
        });
        assert_eq!(ask(router.address()).status, 200);
        let mut body = worker.seen().pop().unwrap().json();
        for sent in ["model", "stream", "messages"] {
            assert!(body.as_object_mut().unwrap().remove(sent).is_some());
        }
        assert_eq!(body, wanted, "{engine}");
    }
}

#[test]
fn a_worker_that_registers_in_another_shape_begins_anew() {
    let etcd = Etcd::start();
    let worker = Worker::start();
    let id = worker.address().to_string();
    register(&etcd, &worker);
    let router = router_at(etcd.address());
    wait_for(&router, &[&worker]);
    assert_eq!(ask(router.address()).status, 200);
    assert_eq!(picks(&router, &worker), Some(1.0));
    // A lease that was lost: the same shape is the same worker.
    etcd.remove(&id);
    wait_for(&router, &[]);
    register(&etcd, &worker);
    wait_for(&router, &[&worker]);
    assert_eq!(picks(&router, &worker), Some(1.0));
    // A start of the engine: events come from another port.
    let mut other = record(&worker);
    other["kv_events_endpoint"] = json!("tcp://127.0.0.1:7001");
    etcd.register(&id, &other);
    until_true("it begins anew", || picks(&router, &worker) == Some(0.0));
    assert_eq!(ask(router.address()).status, 200);
    // And on another port of its own: the old one is not asked any more.
    let moved = Worker::start();
    let mut record = other.clone();
    record["url"] = json!(moved.url());
    etcd.register(&id, &record);
    until_true("its new port is known", || router.workers()[0]["url"] == moved.url());
    worker.kill();
    assert_eq!(ask(router.address()).status, 200);
    assert_eq!(moved.seen().len(), 1);
}

#[test]
fn without_etcd_the_workers_known_so_far_are_served_and_what_changed_is_caught_up_with() {
    let mut etcd = Etcd::start();
    let (first, second) = (Worker::start(), Worker::start());
    register(&etcd, &first);
    let mut router = router_at(etcd.address());
    router.announce(LOST);
    wait_for(&router, &[&first]);
    etcd.kill();
    let stale = || router.metric("infera_router_discovery_stale_seconds").unwrap_or(f64::NAN);
    until_true("it is said", || stale() > 0.0);
    (0..4).for_each(|_| assert_eq!(ask(router.address()).status, 200));
    assert_eq!(get(router.address(), "/ready").0, 200);
    etcd.resume();
    register(&etcd, &second);
    wait_for(&router, &[&first, &second]);
    assert!(stale() < 0.001);
    assert_eq!(router.count("infera_router_discovery_losses_total"), 1);
}

#[test]
fn a_router_that_starts_before_etcd_waits_for_it() {
    let mut etcd = Etcd::start();
    let worker = Worker::start();
    register(&etcd, &worker);
    etcd.kill();
    let mut router = router_at(etcd.address());
    router.announce(LOST);
    let _said = router.log().wait_for(LOST);
    assert_eq!(get(router.address(), "/ready").0, 503);
    let mut reply = ask(router.address());
    assert_eq!((reply.status, reply.code().as_str()), (503, "no_worker"));
    etcd.resume();
    wait_for(&router, &[&worker]);
    until_true("it is ready", || get(router.address(), "/ready").0 == 200);
}

#[test]
fn workers_outlive_an_etcd_that_has_forgotten_them() {
    let mut etcd = Etcd::start();
    let (kept, other) = (Worker::start(), Worker::start());
    for _ in 0..5 {
        register(&etcd, &kept);
    }
    let mut router = router_at(etcd.address());
    router.announce(LOST);
    wait_for(&router, &[&kept]);
    etcd.kill();
    etcd.resume_empty();
    register(&etcd, &other);
    // Nobody is lost at once: workers register again within the life of a lease.
    wait_for(&router, &[&kept, &other]);
    register(&etcd, &kept);
    etcd.remove(&other.address().to_string());
    wait_for(&router, &[&kept]);
    // Who does not come back is let go of.
    etcd.kill();
    etcd.resume_empty();
    until("it is let go of", DEAD_LINE, || router.worker_ids().is_empty().then_some(()));
}

#[test]
fn an_etcd_that_forgot_and_went_on_is_not_taken_for_the_one_before() {
    // Whether the other worker has registered again: then all keys are there, as of the same revisions.
    for is_back in [false, true] {
        let mut etcd = Etcd::start();
        let (first, second, moved) = (Worker::start(), Worker::start(), Worker::start());
        register(&etcd, &first);
        register(&etcd, &second);
        let mut router = router_at(etcd.address());
        router.announce(LOST);
        wait_for(&router, &[&first, &second]);
        // While the router does not look, etcd comes as far as before, and further.
        router.signal(Signal::SIGSTOP);
        etcd.kill();
        etcd.resume_empty();
        let mut record = record(&first);
        record["url"] = json!(moved.url());
        etcd.register(&first.address().to_string(), &record);
        if is_back {
            register(&etcd, &second);
        }
        (0..5).for_each(|_| etcd.put("/elsewhere", &json!({})));
        router.signal(Signal::SIGCONT);
        until("the change is known", DEAD_LINE, || {
            router.workers().iter().any(|worker| worker["url"] == moved.url()).then_some(())
        });
        assert_eq!(router.worker_ids(), ids(&[&first, &second]), "nobody is lost at once");
    }
}

#[test]
fn what_was_compacted_while_nobody_looked_is_listed_anew() {
    let etcd = Etcd::start();
    let line = Line::to(etcd.address());
    let (first, second, third) = (Worker::start(), Worker::start(), Worker::start());
    register(&etcd, &first);
    register(&etcd, &second);
    let mut router = router_at(line.address());
    router.announce(LOST);
    wait_for(&router, &[&first, &second]);
    line.go_dead();
    etcd.remove(&first.address().to_string());
    for _ in 0..5 {
        register(&etcd, &third);
    }
    etcd.compact(register(&etcd, &third));
    until("both changes are known", DEAD_LINE, || {
        (router.worker_ids() == ids(&[&second, &third])).then_some(())
    });
}

#[test]
fn a_line_that_is_dead_without_a_word_is_given_up() {
    let etcd = Etcd::start();
    let line = Line::to(etcd.address());
    let (first, second) = (Worker::start(), Worker::start());
    register(&etcd, &first);
    let mut router = router_at(line.address());
    router.announce(LOST);
    wait_for(&router, &[&first]);
    line.go_dead();
    register(&etcd, &second);
    until("the change is known", DEAD_LINE, || {
        (router.worker_ids() == ids(&[&first, &second])).then_some(())
    });
    assert!(line.connections() >= 2);
    assert_eq!(ask(router.address()).status, 200);
}

#[test]
fn a_worker_that_is_killed_costs_no_request_that_another_could_serve() {
    let etcd = Etcd::start();
    let workers = [Worker::start(), Worker::start(), Worker::start()];
    for worker in &workers {
        worker.answer(chat_stream(2));
        register(&etcd, worker);
    }
    let mut router = router_at(etcd.address());
    router.announce("a worker did not answer");
    wait_for(&router, &workers.each_ref());
    let [first, second, third] = workers;
    let killed = first.address();
    first.kill();
    // Its record is still there: nobody has told etcd.
    (0..30).for_each(|_| assert_eq!(ask(router.address()).status, 200));
    // And back on the same port, without the breaker having been told.
    let back = Worker::start_on(killed);
    back.answer(whole(200, &[], "{}"));
    until_true("it is asked again", || {
        assert_eq!(ask(router.address()).status, 200);
        !back.seen().is_empty()
    });
    drop((second, third));
}
