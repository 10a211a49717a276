//! What it costs to know the ids of a prompt of 1 KiB and of 100 KiB: all anew, and with the turns before remembered.
//!
//! `KVD_BENCH_MODEL` names a model's folder; without it, the small vocabulary of the tests is used, which makes more ids of
//! a text than a real one and is somewhat slower.

#![expect(clippy::unwrap_used, reason = "a bench that cannot read its model stops")]

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use router_tokens::{Limits, Manner, Request, Route, Tokens};

/// A conversation of about this many bytes, in turns of 1 KiB.
fn body(bytes: usize) -> Vec<u8> {
    let sentence = "The quick brown fox jumps over 13 lazy dogs, isn't that so? Größe, 你好. ";
    let turn: String = sentence.chars().cycle().take(960).collect();
    let turns = bytes.div_ceil(1024);
    let messages: Vec<_> = (0..turns)
        .map(|number| {
            let role = if number % 2 == 0 { "user" } else { "assistant" };
            serde_json::json!({"role": role, "content": format!("{number} {turn}")})
        })
        .collect();
    serde_json::to_vec(&serde_json::json!({"model": "m", "messages": messages})).unwrap()
}

/// The folder of a model: of the tests, with a template of ChatML's kind.
fn model() -> (Option<tempfile::TempDir>, PathBuf) {
    if let Some(folder) = std::env::var_os("KVD_BENCH_MODEL") {
        return (None, folder.into());
    }
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let folder = tempfile::tempdir().unwrap();
    for file in ["tokenizer.json", "tokenizer_config.json"] {
        fs::copy(tests.join("models/byte_level").join(file), folder.path().join(file)).unwrap();
    }
    fs::copy(
        tests.join("templates/thinking_tools.jinja"),
        folder.path().join("chat_template.jinja"),
    )
    .unwrap();
    let path = folder.path().to_owned();
    (Some(folder), path)
}

fn tokens(criterion: &mut Criterion) {
    let (_folder, path) = model();
    let cached = Tokens::load(&path, Limits::default()).unwrap();
    let plain = Tokens::load(&path, Limits { cache_bytes: 0, ..Limits::default() }).unwrap();
    let manner = Manner::default();
    for (name, bytes) in [("1 KiB", 1 << 10), ("100 KiB", 100 << 10)] {
        let body = body(bytes);
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(body.len() as u64)).sample_size(20);
        group.bench_function("read the body", |bencher| {
            bencher.iter(|| Request::parse(Route::Chat, black_box(&body), 1 << 26).unwrap());
        });
        let request = Request::parse(Route::Chat, &body, 1 << 26).unwrap();
        for (name, tokens) in [("all anew", &plain), ("remembered", &cached)] {
            group.bench_function(name, |bencher| {
                bencher.iter(|| tokens.of(black_box(&request), &manner, UNIX_EPOCH).unwrap());
            });
        }
        group.finish();
    }
}

criterion_group!(benches, tokens);
criterion_main!(benches);
