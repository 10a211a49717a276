//! What a daemon has on disk, and how fast it has read from there, as a router counts with it; and prompts in words, whose
//! tokens the router makes as engines do.

#![expect(clippy::unwrap_used, reason = "a case stops at the first surprise")]

use std::path::{Path, PathBuf};

use kvd_client::Retention;
use kvd_tests::disk::{Directory, has, put, wait_ready, wait_written};
use kvd_tests::engine::client_at;
use kvd_tests::figures::wait_warm;
use kvd_tests::router::etcd::record;
use kvd_tests::router::publisher::{prompt, with_stored};
use kvd_tests::router::site::page_keys;
use kvd_tests::router::worker::{event, stream_head};
use kvd_tests::router::{Etcd, Publisher, Router, Step, Worker, post};
use kvd_tests::until::until_true;
use serde_json::{Value, json};

fn tokens_crate(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../router/tokens/tests").join(path)
}

fn router(etcd: &Etcd, tokenizer: &Path, more: &[&str]) -> Router {
    let (endpoint, tokenizer) = (etcd.address().to_string(), tokenizer.to_str().unwrap());
    let words = ["--etcd-endpoint", &endpoint, "--router-policy", "kv-aware"];
    let more = [&["--kv-tokenizer-path", tokenizer, "--enable-admin", "true"], more].concat();
    Router::start(&[&words[..], &more].concat())
}

fn explain(router: &Router, body: &str) -> Value {
    let mut reply = post(router.address(), "/v1/admin/explain", &[], body);
    serde_json::from_str(&reply.text()).unwrap()
}

#[test]
fn what_is_on_a_hosts_disk_counts_at_the_speed_that_was_measured() {
    const PAGE_BYTES: usize = 1_000_000;
    let (etcd, directory) = (Etcd::start(), Directory::new());
    let endpoint = format!("http://{}", etcd.address());
    let daemon = directory
        .launch(&["--host-id", "host-1", "--etcd-endpoint", &endpoint])
        .args(["--events-listen", "127.0.0.1:0", "--events-snapshot-listen", "127.0.0.1:0"])
        .start();
    wait_warm(&daemon);
    wait_ready(&daemon);
    let client = client_at(daemon.socket());
    // More than there is memory for: the first ones stay on disk only.
    let [asked, others, last] =
        [1, 2, 3].map(|seed| prompt(seed, if seed == 3 { 640 } else { 160 }));
    for tokens in [&asked, &others, &last] {
        for key in page_keys(tokens) {
            put(&client, key.as_bytes(), PAGE_BYTES, Retention::Long);
            wait_written(&daemon);
        }
    }
    let workers = [Worker::start(), Worker::start()];
    for (worker, host) in workers.iter().zip(["host-1", "host-2"]) {
        let mut record = record(worker);
        record["engine"] = "sglang".into();
        record["kv_block_size"] = 16.into();
        record["kvd"] = json!({"host_id": host});
        etcd.register(&worker.address().to_string(), &record);
    }
    // A megabyte a second, unless somebody knows better.
    let router =
        router(&etcd, &tokens_crate("models/byte_level"), &["--tier-bw", "25,0.001,3,25,25"]);
    until_true("both are known", || router.worker_ids().len() == 2);
    let body = json!({"model": "m", "prompt": asked}).to_string();
    let of = |host: &str| {
        let explained = explain(&router, &body);
        let targets = explained["targets"].as_array().unwrap();
        let is_there = |target: &&Value| {
            let at = workers
                .iter()
                .position(|worker| target["worker_id"] == worker.address().to_string());
            at == Some(if host == "host-1" { 0 } else { 1 })
        };
        targets.iter().find(is_there).unwrap()["terms"].clone()
    };
    until_true("it is known what is on disk", || of("host-1")["l3_tokens"] == 160.0);
    assert_eq!(of("host-2")["l3_tokens"], 0.0);
    let believed = of("host-1");
    assert_eq!(believed["loaded_bytes"][1], 10.0 * PAGE_BYTES as f64);
    assert!(believed["load_seconds"].as_f64() > Some(9.0), "{believed}");
    let index_entries = r#"infera_router_index_entries{tier="l3"}"#;
    assert_eq!(router.count(index_entries), 60);
    // Now somebody reads from there.
    for key in page_keys(&others) {
        assert!(has(&client, key.as_bytes(), PAGE_BYTES));
    }
    until_true("the measured speed counts", || {
        of("host-1")["load_seconds"].as_f64().is_some_and(|seconds| seconds < 5.0)
    });
    let measured = of("host-1");
    assert_eq!(measured["l3_tokens"], 160.0, "{measured}");
}

/// A model with a tokenizer, and the template `name`.
fn model_with(name: &str) -> tempfile::TempDir {
    let folder = tempfile::Builder::new().prefix("router-model-").tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        let from = tokens_crate("models/byte_level").join(file);
        std::fs::copy(from, folder.path().join(file)).unwrap();
    }
    let template = tokens_crate("templates").join(name).with_extension("jinja");
    std::fs::copy(template, folder.path().join("chat_template.jinja")).unwrap();
    folder
}

fn golden(path: &str) -> Vec<Value> {
    let text = std::fs::read(tokens_crate("golden").join(path)).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// What clients ask, and the ids that the real engine made of it. The order of a body's fields counts.
fn asked_and_made() -> Vec<(&'static str, String, Vec<u32>)> {
    const CHATS: [&str; 9] = [
        "talk",
        "tools",
        "tools_named",
        "used",
        "used_twice",
        "reasoning",
        "thinking_off",
        "parts",
        "documents",
    ];
    let ids_of = |value: &Value| {
        let ids = value.as_array().unwrap().iter();
        ids.map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect::<Vec<_>>()
    };
    let made = golden("vllm/thinking_tools.json");
    let chats = golden("chats.json").into_iter().zip(made);
    let chats = chats.filter(|(chat, _)| CHATS.iter().any(|name| chat["name"] == *name));
    let chats = chats.map(|(chat, made)| {
        let body = chat["body"].as_str().unwrap().to_owned();
        ("/v1/chat/completions", body, ids_of(&made["ids"]))
    });
    let texts = golden("texts_byte_level.json").into_iter().map(|text| {
        (
            "/v1/completions",
            json!({"prompt": text["text"]}).to_string(),
            ids_of(&text["with_specials"]),
        )
    });
    // Long enough that it matters.
    chats.chain(texts.filter(|(_, _, ids)| ids.len() > 16)).collect()
}

#[test]
fn chats_and_texts_go_where_the_blocks_of_their_tokens_are() {
    const BLOCK: usize = 4;
    let etcd = Etcd::start();
    let workers = [Worker::start(), Worker::start()];
    let mut publishers = [Publisher::start(), Publisher::start()];
    for (worker, publisher) in workers.iter().zip(&publishers) {
        let done = Step::Bytes(b"data: [DONE]\n\n".to_vec());
        worker.answer(vec![stream_head(), Step::Bytes(event("x")), done, Step::End]);
        let mut record = record(worker);
        record["kv_events_endpoint"] = publisher.endpoint().into();
        record["kv_block_size"] = BLOCK.into();
        etcd.register(&worker.address().to_string(), &record);
    }
    let model = model_with("thinking_tools");
    let router = router(&etcd, model.path(), &[]);
    publishers.iter().for_each(Publisher::wait_for_listener);
    let all = asked_and_made();
    for route in ["/v1/chat/completions", "/v1/completions"] {
        assert!(all.iter().any(|(path, ..)| *path == route), "nothing for {route}");
    }
    for (number, (path, body, ids)) in all.into_iter().enumerate() {
        let rest = body.strip_prefix('{').unwrap();
        let body = format!(r#"{{"model":"m","stream":true,{rest}"#);
        let (here, there) = (&workers[number % 2], &workers[1 - number % 2]);
        let blocks = ids.len() / BLOCK;
        let publisher = &mut publishers[number % 2];
        let cleared = kvd_proto::events::Event::Cleared(kvd_proto::events::Cleared::default());
        with_stored(&ids, BLOCK, |stored| publisher.publish(&[cleared, stored]));
        let id = here.address().to_string();
        let found = || {
            let explained = explain(&router, &body);
            let targets = explained["targets"].as_array().unwrap();
            let target = targets.iter().find(|target| target["worker_id"] == id).unwrap();
            (explained["prompt_tokens"].as_f64(), target["device_blocks"].as_u64())
        };
        let wanted = (Some(ids.len() as f64), Some(blocks as u64));
        let mut last = (None, None);
        let is_right = kvd_tests::until::within(kvd_tests::PATIENCE, || {
            last = found();
            (last == wanted).then_some(())
        });
        assert!(is_right.is_some(), "{last:?}, not {wanted:?}: {path} {body}");
        let before = (here.seen().len(), there.seen().len());
        let mut reply = post(router.address(), path, &[], &body);
        assert!(reply.text().ends_with("data: [DONE]\n\n"));
        assert_eq!((here.seen().len(), there.seen().len()), (before.0 + 1, before.1), "{body}");
    }
    let page = kvd_tests::router::client::get(router.address(), "/metrics").1;
    let skipped =
        page.lines().filter(|line| line.starts_with("infera_cache_locality_skipped_total{"));
    assert!(skipped.clone().all(|line| line.ends_with(" 0")), "{:?}", skipped.collect::<Vec<_>>());
}
