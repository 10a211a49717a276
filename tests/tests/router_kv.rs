//! The router that knows what is cached: workers that publish events over real sockets, and where requests then go.

#![expect(clippy::unwrap_used, reason = "test code")]

use std::fs::Permissions;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};

use kvd_client::Retention;
use kvd_proto::block_key::Namespace;
use kvd_proto::v1::Request;
use kvd_tests::disk::put;
use kvd_tests::engine::client_at;
use kvd_tests::figures::wait_warm;
use kvd_tests::router::client::get;
use kvd_tests::router::etcd::{free_port, record};
use kvd_tests::router::publisher::{prompt, with_removed, with_stored};
use kvd_tests::router::site::page_keys;
use kvd_tests::router::worker::{event, stream_head, whole};
use kvd_tests::router::{Etcd, Publisher, Router, Step, Worker, post, run};
use kvd_tests::until::until_true;
use kvd_tests::{Launch, PATIENCE};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const BLOCK: usize = 16;
const DEVICE: &str = "infera_router_index_entries{tier=\"device\"}";
/// A tokenizer of bytes; prompts here are ids, so that it does not matter which.
const TOKENIZER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../router/tokens/tests/models/byte_level");

/// A worker that says nothing of what its answers took.
fn worker() -> Worker {
    let worker = Worker::start();
    let done = Step::Bytes(b"data: [DONE]\n\n".to_vec());
    worker.answer(vec![stream_head(), Step::Bytes(event("x")), done, Step::End]);
    worker
}

/// A worker that publishes.
struct Engine {
    worker: Worker,
    publisher: Publisher,
}

impl Engine {
    fn start() -> Self {
        Self { worker: worker(), publisher: Publisher::start() }
    }

    fn id(&self) -> String {
        self.worker.address().to_string()
    }

    fn record(&self, more: &Value) -> Value {
        let mut record = record(&self.worker);
        record["kv_events_endpoint"] = self.publisher.endpoint().into();
        record["kv_block_size"] = BLOCK.into();
        for (key, value) in more.as_object().unwrap() {
            record[key] = value.clone();
        }
        record
    }

    fn register(&self, etcd: &Etcd, more: &Value) {
        etcd.register(&self.id(), &self.record(more));
    }

    fn store(&mut self, tokens: &[u32]) {
        let publisher = &mut self.publisher;
        with_stored(tokens, BLOCK, |event| publisher.publish(&[event]));
    }

    fn remove(&mut self, tokens: &[u32]) {
        let publisher = &mut self.publisher;
        with_removed(tokens, BLOCK, |event| publisher.publish(&[event]));
    }

    /// Those of clients: the router's own question which tokenizer it has is none.
    fn requests(&self) -> usize {
        self.worker.seen().iter().filter(|seen| seen.target != "/tokenize").count()
    }
}

fn router(etcd: &Etcd, more: &[&str]) -> Router {
    let endpoint = etcd.address().to_string();
    let mut arguments = vec!["--etcd-endpoint", &endpoint, "--router-policy", "kv-aware"];
    arguments.extend(["--request-transport", "http", "--kv-event-transport", "zmq"]);
    arguments.extend(["--kv-tokenizer-path", TOKENIZER]);
    arguments.extend(more);
    Router::start(&arguments)
}

fn wait_for_workers(router: &Router, count: usize) {
    until_true("the workers are known", || router.worker_ids().len() == count);
}

fn wait_for_blocks(router: &Router, series: &str, blocks: u64) {
    until_true("the blocks are known", || router.metric(series) == Some(blocks as f64));
}

/// Asks for a completion of these ids, to its end.
fn complete(router: &Router, tokens: &[u32]) {
    let body = json!({"model": "m", "prompt": tokens, "stream": true, "max_tokens": 3});
    let mut reply = post(router.address(), "/v1/completions", &[], &body.to_string());
    assert_eq!(reply.status, 200);
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
}

/// How many of so many requests each engine gets.
fn spread(router: &Router, engines: &[&Engine], tokens: &[u32], count: usize) -> Vec<usize> {
    let before: Vec<usize> = engines.iter().map(|engine| engine.requests()).collect();
    for _ in 0..count {
        complete(router, tokens);
    }
    engines.iter().zip(before).map(|(engine, before)| engine.requests() - before).collect()
}

#[test]
fn requests_go_where_their_blocks_are_and_follow_them() {
    for score in ["ettft", "reference"] {
        let etcd = Etcd::start();
        let (mut one, mut other) = (Engine::start(), Engine::start());
        one.register(&etcd, &json!({}));
        other.register(&etcd, &json!({}));
        let router = router(&etcd, &["--score", score]);
        wait_for_workers(&router, 2);
        one.publisher.wait_for_listener();
        other.publisher.wait_for_listener();
        let tokens = prompt(1, 2_000);
        one.store(&tokens);
        wait_for_blocks(&router, DEVICE, 125);
        assert_eq!(spread(&router, &[&one, &other], &tokens, 20), [20, 0], "{score}");
        // A prompt that only begins alike goes there too, and one that does not need not.
        let longer: Vec<u32> = tokens.iter().copied().chain(prompt(9, 500)).collect();
        assert_eq!(spread(&router, &[&one, &other], &longer, 5), [5, 0], "{score}");
        one.remove(&tokens);
        wait_for_blocks(&router, DEVICE, 0);
        other.store(&tokens);
        wait_for_blocks(&router, DEVICE, 125);
        assert_eq!(spread(&router, &[&one, &other], &tokens, 20), [0, 20], "{score}");
        assert_eq!(router.count("infera_router_kv_gaps_total"), 0);
        let stored = r#"infera_router_kv_events_total{source="engine",type="stored"}"#;
        until_true("all is counted", || router.count(stored) == 2);
    }
}

#[test]
fn lost_messages_are_asked_for_where_somebody_replays_them() {
    let etcd = Etcd::start();
    let (mut one, other) = (Engine::start(), Engine::start());
    let (early, lost, late) = (prompt(1, 800), prompt(2, 800), prompt(3, 800));
    // Before anybody listens.
    with_stored(&early, BLOCK, |event| one.publisher.publish(&[event]));
    one.register(&etcd, &json!({"kv_replay_endpoint": one.publisher.replay_endpoint()}));
    other.register(&etcd, &json!({}));
    let router = router(&etcd, &[]);
    wait_for_workers(&router, 2);
    wait_for_blocks(&router, DEVICE, 50);
    one.publisher.wait_for_listener();
    with_stored(&lost, BLOCK, |event| one.publisher.lose(&[event]));
    one.store(&late);
    wait_for_blocks(&router, DEVICE, 150);
    for tokens in [&early, &lost, &late] {
        assert_eq!(spread(&router, &[&one, &other], tokens, 5), [5, 0]);
    }
    let doubted = r#"infera_router_kv_feeds{source="engine",state="doubted"}"#;
    until_true("nothing is doubted", || router.count(doubted) == 0);
}

#[test]
fn after_a_loss_for_good_a_worker_is_doubted_and_a_restart_empties_it() {
    let etcd = Etcd::start();
    let mut one = Engine::start();
    one.register(&etcd, &json!({}));
    let router = router(&etcd, &[]);
    one.publisher.wait_for_listener();
    one.store(&prompt(1, 800));
    wait_for_blocks(&router, DEVICE, 50);
    with_stored(&prompt(2, 800), BLOCK, |event| one.publisher.lose(&[event]));
    one.store(&prompt(3, 800));
    wait_for_blocks(&router, DEVICE, 100);
    let doubted = r#"infera_router_kv_feeds{source="engine",state="doubted"}"#;
    until_true("it is doubted", || router.count(doubted) == 1);
    until_true("the gap is counted", || router.count("infera_router_kv_gaps_total") == 1);
    // Another life of the same engine at the same place.
    let endpoint = one.publisher.endpoint().to_owned();
    drop(std::mem::replace(&mut one.publisher, Publisher::start()));
    one.publisher = Publisher::start_at(&endpoint);
    one.publisher.wait_for_listener();
    one.store(&prompt(4, 800));
    wait_for_blocks(&router, DEVICE, 50);
    until_true("nothing is doubted", || router.count(doubted) == 0);
    // And one whose first message is missed: the second one looks as if it were the former's next.
    drop(std::mem::replace(&mut one.publisher, Publisher::start()));
    one.publisher = Publisher::start_at(&endpoint);
    with_stored(&prompt(5, 800), BLOCK, |event| one.publisher.lose(&[event]));
    one.publisher.wait_for_listener();
    one.store(&prompt(6, 800));
    wait_for_blocks(&router, DEVICE, 100);
    until_true("it is doubted again", || router.count(doubted) == 1);
}

#[test]
fn each_rank_is_a_target_with_blocks_of_its_own() {
    let etcd = Etcd::start();
    let (worker, port) = (worker(), consecutive_ports());
    let place = |rank: u16| format!("tcp://127.0.0.1:{}", port + rank);
    let mut ranks = [Publisher::start_at(&place(0)), Publisher::start_at(&place(1))];
    let mut more = record(&worker);
    more["kv_events_endpoint"] = place(0).into();
    more["kv_block_size"] = BLOCK.into();
    more["dp_size"] = 2.into();
    etcd.register(&worker.address().to_string(), &more);
    let router = router(&etcd, &[]);
    for (rank, publisher) in ranks.iter_mut().enumerate() {
        publisher.wait_for_listener();
        let seed = u32::try_from(rank).unwrap() + 1;
        with_stored(&prompt(seed, 1_600), BLOCK, |event| publisher.publish(&[event]));
    }
    wait_for_blocks(&router, DEVICE, 200);
    for _ in 0..5 {
        for rank in ["1", "0"] {
            complete(&router, &prompt(rank.parse::<u32>().unwrap() + 1, 1_600));
            let seen = worker.seen().pop().unwrap();
            assert_eq!(seen.header("x-data-parallel-rank"), Some(rank));
        }
    }
    let view = format!("infera_policy_cache_view_size{{worker_id=\"{}#dp1\"}}", worker.address());
    assert_eq!(router.count(&view), 100);
}

/// Two ports in a row that nobody listens on.
fn consecutive_ports() -> u16 {
    loop {
        let port = free_port().port();
        if port < u16::MAX && std::net::TcpListener::bind(("127.0.0.1", port + 1)).is_ok() {
            return port;
        }
    }
}

#[test]
fn a_worker_that_comes_back_finds_its_blocks_and_one_on_new_ports_does_not() {
    let etcd = Etcd::start();
    let mut one = Engine::start();
    one.register(&etcd, &json!({}));
    let router = router(&etcd, &[]);
    one.publisher.wait_for_listener();
    one.store(&prompt(1, 800));
    wait_for_blocks(&router, DEVICE, 50);
    etcd.remove(&one.id());
    wait_for_workers(&router, 0);
    // Nobody listens anew, so nothing can be lost meanwhile.
    one.store(&prompt(2, 800));
    wait_for_blocks(&router, DEVICE, 100);
    one.register(&etcd, &json!({}));
    wait_for_workers(&router, 1);
    let view = format!("infera_policy_cache_view_size{{worker_id=\"{}\"}}", one.id());
    assert_eq!(router.count(&view), 100);
    one.publisher = Publisher::start();
    one.register(&etcd, &json!({}));
    one.publisher.wait_for_listener();
    wait_for_blocks(&router, DEVICE, 0);
    one.store(&prompt(3, 800));
    wait_for_blocks(&router, &view, 50);
}

#[test]
fn what_a_hosts_daemon_holds_counts_for_the_workers_on_it() {
    let etcd = Etcd::start();
    let endpoint = format!("http://{}", etcd.address());
    let daemon = Launch::new()
        .args(["--max-bytes", "32M", "--host-id", "host-1", "--etcd-endpoint", &endpoint])
        .args(["--events-listen", "127.0.0.1:0", "--events-snapshot-listen", "127.0.0.1:0"])
        .start();
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    let tokens = prompt(1, 2_000);
    let keys = page_keys(&tokens);
    let (before, after) = keys.split_at(60);
    before.iter().for_each(|key| put(&client, key.as_bytes(), 1_000, Retention::Long));
    let (on_host, elsewhere) = (Engine::start(), Engine::start());
    let sglang = json!({"engine": "sglang", "kvd": {"host_id": "host-1"}});
    on_host.register(&etcd, &sglang);
    // By its address it would be there too.
    elsewhere.register(&etcd, &json!({"engine": "sglang", "kvd": {"host_id": "host-2"}}));
    let router = router(&etcd, &["--enable-admin", "true"]);
    wait_for_workers(&router, 2);
    let l2 = r#"infera_router_index_entries{tier="l2"}"#;
    // What was there before comes as a snapshot, the rest as events.
    wait_for_blocks(&router, l2, 60);
    after.iter().for_each(|key| put(&client, key.as_bytes(), 1_000, Retention::Long));
    wait_for_blocks(&router, l2, 125);
    let body = json!({"model": "m", "prompt": tokens}).to_string();
    let mut reply = post(router.address(), "/v1/admin/explain", &[], &body);
    let explained: Value = serde_json::from_str(&reply.text()).unwrap();
    let [first, second] = explained["targets"].as_array().unwrap().as_slice() else {
        panic!("{explained}")
    };
    assert_eq!(
        (explained["reason"].as_str(), first["host_id"].as_str()),
        (Some("l2"), Some("host-1"))
    );
    assert_eq!(first["terms"]["l2_tokens"], json!(2_000.0), "{explained}");
    assert_eq!(second["terms"]["l2_tokens"], json!(0.0), "{explained}");
    assert_eq!(spread(&router, &[&on_host, &elsewhere], &tokens, 10), [10, 0]);
    // The daemon takes its record back as it ends, and with it goes what it held.
    drop(client);
    assert!(daemon.stop().success());
    wait_for_blocks(&router, l2, 0);
}

#[test]
fn workers_that_others_keep_busy_are_left_alone() {
    let etcd = Etcd::start();
    let (mut busy, idle) = (Engine::start(), Engine::start());
    busy.worker.tell("vllm:num_requests_waiting{engine=\"0\"} 50\nvllm:num_requests_running 8\n");
    busy.register(&etcd, &json!({}));
    idle.register(&etcd, &json!({}));
    let router = router(&etcd, &["--enable-admin", "true"]);
    wait_for_workers(&router, 2);
    busy.publisher.wait_for_listener();
    // It has a little of the prompt, which alone would decide.
    let tokens = prompt(1, 1_600);
    busy.store(&tokens[..160]);
    wait_for_blocks(&router, DEVICE, 10);
    // From its first request on it is known how much one takes, and so how much those that wait.
    until_true("its queue is known", || {
        complete(&router, &tokens);
        idle.requests() > 0
    });
    assert_eq!(spread(&router, &[&busy, &idle], &tokens, 5), [0, 5]);
    // Polls are not requests.
    assert!(busy.worker.seen().iter().all(|seen| seen.method == "POST"));
}

#[test]
fn a_router_without_caches_says_so_and_one_with_them_shows_them() {
    let etcd = Etcd::start();
    let mut one = Engine::start();
    one.register(&etcd, &json!({}));
    let with = router(&etcd, &[]);
    one.publisher.wait_for_listener();
    one.store(&prompt(1, 800));
    wait_for_blocks(&with, DEVICE, 50);
    let path = format!("/v1/admin/cache-view/{}", one.id());
    let (status, body) = get(with.address(), &path);
    let view: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (status, &view["block_count"], &view["block_size"]),
        (200, &json!(50), &json!(BLOCK))
    );
    assert_eq!(get(with.address(), "/v1/admin/cache-view/nobody").0, 404);
    // Not asked for at its start.
    assert_eq!(post(with.address(), "/v1/admin/explain", &[], "{}").status, 503);
    until_true("it is ready", || get(with.address(), "/ready").0 == 200);
    let without = Router::for_workers(&[&one.worker], &[]);
    assert_eq!(get(without.address(), &path).0, 503);
    // Its threads end with it.
    with.signal(Signal::SIGTERM);
    assert!(with.wait().success());
}

#[test]
fn an_answer_of_a_length_that_was_announced_counts_to_its_end() {
    let worker = Worker::start();
    let usage = json!({"prompt_tokens": 800, "prompt_tokens_details": {"cached_tokens": 784}});
    let body = json!({"choices": [], "usage": usage}).to_string();
    worker.answer(whole(200, &[], &body));
    let router = Router::for_workers(
        &[&worker],
        &["--router-policy", "kv-aware", "--kv-tokenizer-path", TOKENIZER],
    );
    let asked = json!({"model": "m", "prompt": prompt(1, 800), "max_tokens": 3}).to_string();
    let mut reply = post(router.address(), "/v1/completions", &[], &asked);
    assert_eq!((reply.status, reply.text()), (200, body));
    let outcome = "infera_request_duration_seconds_count{router=\"mixed\",outcome=\"ok\"}";
    until_true("the request is counted", || router.count(outcome) == 1);
    assert_eq!(router.count("infera_router_cached_tokens_observed_total"), 784);
}

#[test]
fn a_worker_that_twice_did_not_have_what_it_said_is_no_longer_believed() {
    let etcd = Etcd::start();
    let mut one = Engine::start();
    one.register(&etcd, &json!({}));
    let router = router(&etcd, &[]);
    one.publisher.wait_for_listener();
    let tokens = prompt(1, 800);
    one.store(&tokens);
    wait_for_blocks(&router, DEVICE, 50);
    let says = |cached: u32| {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": 800, "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": cached}}});
        let event = format!("data: {usage}\n\ndata: [DONE]\n\n").into_bytes();
        one.worker.answer(vec![stream_head(), Step::Bytes(event), Step::End]);
        complete(&router, &tokens);
    };
    // Once is chance, and what it has clears it.
    says(160);
    says(784);
    says(160);
    assert_eq!(router.count(DEVICE), 50);
    says(160);
    wait_for_blocks(&router, DEVICE, 10);
    assert_eq!(router.count("infera_router_cached_tokens_observed_total"), 160 * 3 + 784);
}

/// The operations on one connection, and the keys of hints.
fn hints_on(connection: &UnixStream, count: usize) -> Vec<(String, usize)> {
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut connection = connection;
    let next = || {
        let mut length = [0; 4];
        connection.read_exact(&mut length).unwrap();
        let mut body = vec![0; u32::from_be_bytes(length) as usize];
        connection.read_exact(&mut body).unwrap();
        match Request::decode(&body).unwrap() {
            Request::Hello(hello) => (format!("hello {}", hello.protocol_version), 0),
            Request::PrefetchHint(hint) => {
                let Namespace { model, compat_key } = hint.namespace;
                (format!("{model} {compat_key} {}", hint.deadline_ms), hint.keys.len())
            }
            other => panic!("{other:?}"),
        }
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[test]
fn prewarming_reaches_the_daemon_on_this_host_also_after_its_restart() {
    let folder = tempfile::Builder::new().prefix("router-hints-").tempdir().unwrap();
    let socket = folder.path().join("kvd.sock");
    let daemon = UnixListener::bind(&socket).unwrap();
    let worker = Worker::start();
    let socket = socket.to_str().unwrap();
    let router = Router::for_workers(&[&worker], &["--kvd-socket-path", socket]);
    let prewarm = |body: &Value| {
        let mut reply = post(router.address(), "/v1/cache/prewarm", &[], &body.to_string());
        let status = reply.status;
        (status, serde_json::from_str::<Value>(&reply.text()).unwrap())
    };
    let keys: Vec<String> = (0..100).map(|key| format!("{key:016x}")).collect();
    let body = json!({"model": "m", "block_hashes": keys, "compat_key": "c", "deadline_ms": 500});
    let hello = ("hello 1".to_owned(), 0);
    let hints = [("m c 500".to_owned(), 64), ("m c 500".to_owned(), 36)];
    for _life in 0..2 {
        let (status, answer) = prewarm(&body);
        assert_eq!(
            (status, &answer["accepted"], &answer["n_keys"]),
            (202, &json!(true), &json!(100))
        );
        let (connection, _) = daemon.accept().unwrap();
        assert_eq!(hints_on(&connection, 3), [std::slice::from_ref(&hello), &hints].concat());
        // The same connection is used again.
        assert_eq!(prewarm(&body).0, 202);
        assert_eq!(hints_on(&connection, 2), hints);
    }
    let sent = r#"infera_router_prefetch_total{result="sent"}"#;
    until_true("all were sent", || router.count(sent) == 8);
    assert_eq!(prewarm(&json!({"model": "m", "block_hashes": []})).0, 202);
    for (field, wrong) in [
        ("model", json!("")),
        ("model", json!(1)),
        ("block_hashes", json!(["0g"])),
        ("block_hashes", json!("00")),
        ("deadline_ms", json!(0)),
        // No daemon keeps as much; the first two would stand in each of a thousand hints.
        ("model", json!("m".repeat(1_025))),
        ("compat_key", json!("c".repeat(1_025))),
        ("block_hashes", json!(["00".repeat(257)])),
        ("block_hashes", json!(vec!["00"; 65_537])),
    ] {
        let mut body = body.clone();
        body[field] = wrong;
        assert_eq!(prewarm(&body).0, 400, "{field} {:.99}", body[field]);
    }
    let without = Router::for_workers(&[&worker], &[]);
    assert_eq!(post(without.address(), "/v1/cache/prewarm", &[], &body.to_string()).status, 503);
}

#[test]
fn a_daemon_that_wants_keys_and_a_token_is_heard_with_them_only() {
    let folder = tempfile::Builder::new().prefix("router-keys-").tempdir().unwrap();
    let pair = || {
        let pair = zmq::CurveKeyPair::new().unwrap();
        let text = |key: &[u8]| zmq::z85_encode(key).unwrap();
        (text(&pair.public_key), text(&pair.secret_key))
    };
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (server, ours) = (pair(), pair());
    let keys = format!("server {} {}\nclient {}\n", server.0, server.1, ours.0);
    let (keys, token) = (file("server", &keys), file("token", "0123456789abcdef0123"));
    let ours = file("ours", &format!("client {} {}\n", ours.0, ours.1));
    let etcd = Etcd::start();
    let endpoint = format!("http://{}", etcd.address());
    let daemon = Launch::new()
        .args(["--max-bytes", "32M", "--host-id", "host-1", "--etcd-endpoint", &endpoint])
        .args(["--events-listen", "127.0.0.1:0", "--events-snapshot-listen", "127.0.0.1:0"])
        .args(["--events-curve-file", &keys, "--events-token-file", &token])
        .start();
    wait_warm(&daemon);
    let client = client_at(daemon.socket());
    let keys = page_keys(&prompt(1, 160));
    let (before, after) = keys.split_at(5);
    before.iter().for_each(|key| put(&client, key.as_bytes(), 1_000, Retention::Long));
    let one = Engine::start();
    one.register(&etcd, &json!({"engine": "sglang", "kvd": {"host_id": "host-1"}}));
    let mut without = router(&etcd, &[]);
    without.announce("events can't be listened to");
    let with = router(&etcd, &["--kvd-curve-file", &ours, "--kvd-token-file", &token]);
    let l2 = r#"infera_router_index_entries{tier="l2"}"#;
    wait_for_blocks(&with, l2, 5);
    after.iter().for_each(|key| put(&client, key.as_bytes(), 1_000, Retention::Long));
    wait_for_blocks(&with, l2, 10);
    until_true("the other one has tried", || {
        without.log().text().contains("events can't be listened to")
    });
    assert_eq!(without.count(l2), 0);
    // A file that others may read is refused.
    std::fs::set_permissions(&token, Permissions::from_mode(0o644)).unwrap();
    let output = run(&["--router-policy", "kv-aware", "--port", "0", "--kvd-token-file", &token]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_worker_that_counts_other_tokens_gets_no_credit_until_it_counts_the_same() {
    let etcd = Etcd::start();
    let mut one = Engine::start();
    one.register(&etcd, &json!({}));
    let mut router = router(&etcd, &["--enable-admin", "true"]);
    router.announce("no credit for a worker that counts other tokens");
    one.publisher.wait_for_listener();
    let tokens = prompt(1, 800);
    one.store(&tokens);
    wait_for_blocks(&router, DEVICE, 50);
    let credit = || {
        let body = json!({"model": "m", "prompt": tokens}).to_string();
        let mut reply = post(router.address(), "/v1/admin/explain", &[], &body);
        let explained: Value = serde_json::from_str(&reply.text()).unwrap();
        explained["targets"][0]["device_blocks"].as_u64().unwrap()
    };
    let counts = |count: u32| {
        let usage = json!({"choices": [], "usage": {"prompt_tokens": count}});
        let event = format!("data: {usage}\n\ndata: [DONE]\n\n").into_bytes();
        one.worker.answer(vec![stream_head(), Step::Bytes(event), Step::End]);
        complete(&router, &tokens);
    };
    counts(801);
    counts(801);
    assert_eq!(credit(), 50);
    counts(801);
    let parity = format!("infera_router_render_parity{{worker_id=\"{}\",model=\"m\"}}", one.id());
    until_true("the third time decides", || router.count(&parity) == 0);
    assert_eq!(credit(), 0);
    counts(800);
    until_true("it is right again", || router.count(&parity) == 1);
    assert_eq!(credit(), 50);
}
