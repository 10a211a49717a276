//! What the router has daemons read ahead: blocks that only a disk has, for requests that wait for their turn, and for those
//! that are announced.

#![expect(clippy::unwrap_used, reason = "a case stops at the first surprise")]

use std::fs::Permissions;
use std::io::Write as _;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use kvd_client::{Client, Retention};
use kvd_proto::events::Registration;
use kvd_tests::disk::{Directory, figure, put, wait_ready, wait_written};
use kvd_tests::engine::{client_at, key_of};
use kvd_tests::figures::wait_warm;
use kvd_tests::router::etcd::record;
use kvd_tests::router::publisher::prompt;
use kvd_tests::router::site::page_keys;
use kvd_tests::router::worker::{event, stream_head};
use kvd_tests::router::{Etcd, Router, Step, Worker, post};
use kvd_tests::until::{until, until_true};
use kvd_tests::{Daemon, Launch, PATIENCE};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

const BLOCK: usize = 16;
/// Pages of the prompt that matters.
const PAGES: usize = 10;
/// Small, so that loading them is faster than computing on the slowest disk.
const PAGE_BYTES: usize = 20_000;
/// Of what is stored behind them to push them out of memory.
const FILLER_BYTES: usize = 1_000_000;
/// Tokens of a request that keeps a worker busy for some ten seconds, as far as the router knows.
const BUSY_TOKENS: u32 = 80_000;
const TOKENIZER: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/../router/tokens/tests/models/byte_level");

/// A host: a daemon with a disk, and a worker.
struct Host {
    id: &'static str,
    daemon: Daemon,
    client: Client,
    worker: Worker,
    _directory: Directory,
}

impl Host {
    fn start(etcd: &Etcd, id: &'static str, more: &[&str]) -> Self {
        Self::start_as(etcd, id, more, |_daemon| json!({"host_id": id}))
    }

    /// One whose worker says this of the daemon.
    fn start_as(
        etcd: &Etcd,
        id: &'static str,
        more: &[&str],
        kvd: impl FnOnce(&Daemon) -> Value,
    ) -> Self {
        let directory = Directory::new();
        let daemon = with_events(directory.launch(more), etcd, id).start();
        wait_warm(&daemon);
        wait_ready(&daemon);
        let client = client_at(daemon.socket());
        let worker = Worker::start();
        let done = Step::Bytes(b"data: [DONE]\n\n".to_vec());
        worker.answer(vec![stream_head(), Step::Bytes(event("x")), done, Step::End]);
        let mut record = record(&worker);
        record["engine"] = "sglang".into();
        record["kv_block_size"] = BLOCK.into();
        record["kvd"] = kvd(&daemon);
        etcd.register(&worker.address().to_string(), &record);
        Self { id, daemon, client, worker, _directory: directory }
    }

    /// Stores a prompt's pages, and as much behind them that only the disk has them.
    fn store_on_disk(&self, tokens: &[u32]) {
        for key in page_keys(tokens) {
            put(&self.client, key.as_bytes(), PAGE_BYTES, Retention::Long);
        }
        self.push_out(0);
    }

    /// Stores so much more, numbered from `first`, that what was in memory is on disk only.
    fn push_out(&self, first: u64) {
        for number in first..first + 40 {
            wait_written(&self.daemon);
            put(&self.client, &key_of(number), FILLER_BYTES, Retention::Long);
        }
        wait_written(&self.daemon);
    }

    /// Sends it something that takes long; until the connection is closed.
    fn keep_busy(&self, router: &Router) -> TcpStream {
        self.worker.answer_once(vec![Step::Hold]);
        let before = self.worker.seen().len();
        let body = json!({"model": "m", "prompt": prompt(77, BUSY_TOKENS), "stream": true});
        let body = body.to_string();
        let length = body.len();
        let head = "POST /v1/completions HTTP/1.1\r\nHost: r\r\nContent-Type: application/json\r\n";
        let mut connection = TcpStream::connect(router.address()).unwrap();
        write!(connection, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
        until_true("the worker is busy", || self.worker.seen().len() > before);
        connection
    }

    fn hinted(&self) -> u64 {
        figure(&self.daemon, "hints_total")
    }
}

fn with_events(launch: Launch, etcd: &Etcd, id: &str) -> Launch {
    let endpoint = format!("http://{}", etcd.address());
    launch.args(["--host-id", id, "--etcd-endpoint", &endpoint]).args([
        "--events-listen",
        "127.0.0.1:0",
        "--events-snapshot-listen",
        "127.0.0.1:0",
    ])
}

fn router(etcd: &Etcd, more: &[&str]) -> Router {
    let endpoint = etcd.address().to_string();
    let mut arguments = vec!["--etcd-endpoint", &endpoint, "--router-policy", "kv-aware"];
    arguments.extend(["--request-transport", "http", "--kv-event-transport", "zmq"]);
    arguments.extend(["--kv-tokenizer-path", TOKENIZER, "--enable-admin", "true"]);
    arguments.extend(more);
    Router::start(&arguments)
}

fn prefetches(router: &Router, result: &str) -> u64 {
    router.count(&format!("infera_router_prefetch_total{{result=\"{result}\"}}"))
}

/// As many tokens as the prompt that matters has.
fn is_all(tokens: f64) -> bool {
    (tokens - (PAGES * BLOCK) as f64).abs() < 0.5
}

/// Tokens that the first choice would load from a tier, and how long it waits.
fn expected(router: &Router, tokens: &[u32]) -> (f64, f64, f64) {
    let body = json!({"model": "m", "prompt": tokens}).to_string();
    let mut reply = post(router.address(), "/v1/admin/explain", &[], &body);
    let explained: Value = serde_json::from_str(&reply.text()).unwrap();
    let terms = &explained["targets"][0]["terms"];
    let of = |term: &str| terms[term].as_f64().unwrap_or(0.0);
    (of("l2_tokens"), of("l3_tokens"), of("queue_seconds"))
}

fn wait_until_on_disk(router: &Router, tokens: &[u32]) {
    until_true("it is known that the disk has all of it", || is_all(expected(router, tokens).1));
}

fn complete(router: &Router, tokens: &[u32]) {
    let body = json!({"model": "m", "prompt": tokens, "stream": true, "max_tokens": 3});
    let mut reply = post(router.address(), "/v1/completions", &[], &body.to_string());
    assert_eq!(reply.status, 200);
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
}

fn prewarm(router: &Router, body: &Value) -> (u16, Value) {
    let mut reply = post(router.address(), "/v1/cache/prewarm", &[], &body.to_string());
    (reply.status, serde_json::from_str(&reply.text()).unwrap())
}

fn tokens() -> Vec<u32> {
    prompt(1, u32::try_from(PAGES * BLOCK).unwrap())
}

#[test]
fn blocks_on_disk_are_in_memory_before_an_engine_with_a_queue_asks_for_them() {
    let etcd = Etcd::start();
    let host = Host::start(&etcd, "host-1", &[]);
    host.store_on_disk(&tokens());
    let router = router(&etcd, &[]);
    wait_until_on_disk(&router, &tokens());
    // An idle worker asks at once: nobody could be faster.
    complete(&router, &tokens());
    assert_eq!((prefetches(&router, "sent"), host.hinted()), (0, 0));
    let busy = host.keep_busy(&router);
    assert!(expected(&router, &tokens()).2 > 1.0, "it has a queue");
    let loads = figure(&host.daemon, "loads_total");
    complete(&router, &tokens());
    until_true("the hint is sent", || prefetches(&router, "sent") == 1);
    until_true("all of it is loaded", || {
        figure(&host.daemon, "loads_total") == loads + PAGES as u64
    });
    assert_eq!(host.hinted(), PAGES as u64);
    until_true("it is known to be in memory", || is_all(expected(&router, &tokens()).0));
    // What is in memory needs no hint.
    complete(&router, &tokens());
    assert_eq!(prefetches(&router, "sent"), 1);
    assert_eq!((prefetches(&router, "failed"), prefetches(&router, "dropped")), (0, 0));
    drop(busy);
}

#[test]
fn a_daemon_that_does_not_answer_costs_a_request_nothing() {
    let etcd = Etcd::start();
    let host = Host::start(&etcd, "host-1", &[]);
    host.store_on_disk(&tokens());
    let router = router(&etcd, &[]);
    wait_until_on_disk(&router, &tokens());
    let busy = host.keep_busy(&router);
    let picks = || {
        let of = |what: &str| router.metric(&format!("infera_router_pick_seconds_{what}"));
        (of("count").unwrap(), of("sum").unwrap())
    };
    let before = picks();
    // Its sockets take connections, and nobody is there.
    host.daemon.signal(Signal::SIGSTOP);
    complete(&router, &tokens());
    let after = picks();
    assert!(after.0 > before.0);
    assert!(after.1 - before.1 < 0.9, "it did not wait for the hint, which takes a second");
    until_true("the hint failed", || prefetches(&router, "failed") == 1);
    host.daemon.signal(Signal::SIGCONT);
    assert_eq!(prefetches(&router, "sent"), 0);
    drop(busy);
}

#[test]
fn hints_are_shown_the_token_and_one_that_is_wrong_is_counted() {
    let folder = tempfile::Builder::new().prefix("router-hints-").tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let right = file("right", "0123456789abcdef0123");
    let wrong = file("wrong", "0123456789abcdef0124");
    let etcd = Etcd::start();
    // Without the way to snapshots, which take the token too, all comes as events; the daemon's own record has it.
    let more = ["--events-token-file", &right, "--kvd-prefix", "/elsewhere/"];
    let host = Host::start_as(&etcd, "host-1", &more, |daemon| {
        let places = until("the daemon is reached", PATIENCE, || {
            let places = daemon.admin_json("/v1/events");
            (places["events"].is_string() && places["snapshot_address"].is_string())
                .then_some(places)
        });
        let hints = format!("http://{}/v1/prefetch", places["snapshot_address"].as_str().unwrap());
        json!({"host_id": "host-1", "events_endpoint": places["events"],
            "replay_endpoint": places["replay"], "prefetch_url": hints})
    });
    let with = router(&etcd, &["--kvd-token-file", &right]);
    let without = router(&etcd, &["--kvd-token-file", &wrong]);
    let heard = r#"infera_router_kv_events_total{source="host",type="stored"}"#;
    until_true("both hear of what is stored", || {
        put(&host.client, b"is anybody there", 10, Retention::None);
        with.count(heard) > 0 && without.count(heard) > 0
    });
    host.store_on_disk(&tokens());
    for (router, result) in [(&without, "failed"), (&with, "sent")] {
        // Without snapshots it counts half: the disk came up after the first message.
        until_true("all of it is heard of", || {
            expected(router, &tokens()).1 >= (PAGES * BLOCK / 2) as f64
        });
        let busy = host.keep_busy(router);
        complete(router, &tokens());
        until_true("the hint was answered", || prefetches(router, result) == 1);
        drop(busy);
        until_true("the worker is idle", || expected(router, &tokens()).2 < 1e-9);
    }
    assert_eq!(host.hinted(), PAGES as u64);
}

#[test]
fn a_prewarm_goes_to_the_host_that_has_it_on_disk() {
    let etcd = Etcd::start();
    let has = Host::start(&etcd, "host-1", &[]);
    let has_not = Host::start(&etcd, "host-2", &[]);
    has.store_on_disk(&tokens());
    let router = router(&etcd, &[]);
    wait_until_on_disk(&router, &tokens());
    let count = json!(PAGES);
    // By keys, whose namespace need not be known.
    let keys: Vec<String> = page_keys(&tokens()).iter().map(|key| hex(key)).collect();
    let by_keys = json!({"model": "m", "block_hashes": keys, "deadline_ms": 20_000});
    let (status, answer) = prewarm(&router, &by_keys);
    assert_eq!((status, &answer["hosts"], &answer["n_keys"]), (202, &json!([has.id]), &count));
    until_true("it is in memory", || is_all(expected(&router, &tokens()).0));
    assert_eq!((has.hinted(), has_not.hinted()), (PAGES as u64, 0));
    // By now nobody has it on disk only.
    assert_eq!(prewarm(&router, &by_keys).1["hosts"], json!([]));
    // By its prompt, which the first host's worker would get.
    let by_prompt = json!({"model": "m", "prompt": tokens(), "deadline_ms": 20_000});
    let (status, answer) = prewarm(&router, &by_prompt);
    assert_eq!((status, &answer["hosts"], &answer["n_keys"]), (202, &json!([has.id]), &json!(0)));
    has.push_out(40);
    wait_until_on_disk(&router, &tokens());
    let (status, answer) = prewarm(&router, &by_prompt);
    assert_eq!((status, &answer["hosts"], &answer["n_keys"]), (202, &json!([has.id]), &count));
    until_true("it is in memory", || is_all(expected(&router, &tokens()).0));
    assert_eq!((has.hinted(), has_not.hinted()), (2 * PAGES as u64, 0));
    // No request was sent, and none counts as load.
    assert!(has.worker.seen().iter().all(|seen| seen.target != "/v1/completions"));
    assert!(expected(&router, &tokens()).2 < 1e-9);
    for wrong in [
        json!({"model": "m"}),
        json!({"model": "m", "prompt": tokens(), "block_hashes": keys}),
        json!({"model": "m", "prompt": tokens(), "deadline_ms": 0}),
    ] {
        assert_eq!(prewarm(&router, &wrong).0, 400, "{wrong}");
    }
    assert_eq!(prewarm(&router, &json!({"model": "other", "prompt": [1, 2]})).0, 503);
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn only_a_daemon_with_a_disk_says_that_it_takes_hints() {
    let etcd = Etcd::start();
    let registered = |id: &str| -> Registration {
        let is_whole = |record: &Value| record["snapshot_url"].is_string();
        let record = until("the daemon is registered", PATIENCE, || {
            etcd.record(id).map(|(record, _)| record).filter(is_whole)
        });
        serde_json::from_value(record).unwrap()
    };
    let where_to = ["--kvd-prefix", "/infera/workers/"];
    let with = Host::start(&etcd, "with", &where_to);
    let without = Launch::new().args(["--max-bytes", "32M"]).args(where_to);
    let _without = with_events(without, &etcd, "without").start();
    let (with, without) = (registered(with.id), registered("without"));
    let folder = |url: &str| Path::new(url).parent().unwrap().to_str().unwrap().to_owned();
    let (snapshots, hints) = (with.snapshot_url.unwrap(), with.prefetch_url.unwrap());
    assert_eq!(folder(&folder(&snapshots)), folder(&hints), "both are at the same door");
    assert_eq!(without.prefetch_url, None);
}
