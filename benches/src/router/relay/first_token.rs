//! Time to the first token of one request after the other, in turn: at the worker itself, through nginx, through a router
//! that makes no tokens, and through one that does, for prompts that it has never seen and for prompts that it has. What a
//! proxy adds is the difference. Both routers choose by cache; only the tokenizer makes the difference between them.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context as _, ensure};
use kvd_tests::router::Etcd;
use serde_json::json;
use tempfile::TempDir;

use super::door::{Door, Stage, first_token};
use super::load;
use crate::affinity::pin;
use crate::bar::Bar;
use crate::percentile;
use crate::report::Report;
use crate::suite::Effort;

/// Prompts, what to call them, and what part of the usual rounds they get: new ones take long.
const PROMPTS: [(usize, &str, usize); 2] = [(1 << 10, "1k", 1), (100 << 10, "100k", 4)];
const WARM_UP: usize = 20;
/// What the router may add at the median if it makes no tokens.
const ADDED_MS: f64 = 1.0;
/// What is asked in each round: the number of a door, and what that is to show. The last two get the same prompt.
const WAYS: [(usize, &str); 5] = [
    (0, "direct"),
    (1, "nginx"),
    (2, "router without tokens"),
    (3, "router with tokens, new prompt"),
    (3, "router with tokens, known prompt"),
];
/// Makes tokens: so many requests.
const TOKENIZED: &str = "infera_router_tokenize_seconds_count ";

/// Measures.
///
/// # Errors
/// Something is missing, or an answer is wrong.
pub fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let etcd = Etcd::start();
    let model = model()?;
    let stage = Stage::set(|worker| Ok(routers(worker, &etcd, model.path())))?;
    let _pinned = pin(stage.cores.clients)?;
    let mut number = 0;
    for (bytes, name, part) in PROMPTS {
        let mut connections: Vec<_> = stage.doors.iter().map(Door::connect).collect();
        let mut times = [const { Vec::new() }; WAYS.len()];
        for round in 0..effort.of(2_000, 400) / part + WARM_UP {
            number += 1;
            let request = load::request(number, bytes, 1, 0);
            for ((door, _), times) in WAYS.iter().zip(&mut times) {
                let took = first_token(&mut connections[*door], &request)?;
                if round >= WARM_UP {
                    times.push(took.as_secs_f64() * 1e3);
                }
            }
        }
        tell(name, &mut times, report);
    }
    let figures = stage.doors[3].get("/metrics")?;
    let count = figures.lines().find_map(|line| line.strip_prefix(TOKENIZED)).unwrap_or("0");
    ensure!(count.parse::<usize>()? >= 2 * number, "only {count} prompts were made tokens");
    Ok(())
}

fn tell(name: &str, times: &mut [Vec<f64>; WAYS.len()], report: &mut Report) {
    let ways = times.each_mut().map(|times| [0.5, 0.99].map(|share| percentile::of(times, share)));
    let text = |[median, late]: [f64; 2]| format!("{median:.3} / {late:.3} ms");
    let [direct, nginx, ..] = ways;
    let added = |way: [f64; 2]| [way[0] - direct[0], way[1] - direct[1]];
    report.note(format!("first token of {name}, direct, p50 / p99"), text(direct));
    for ((_, what), way) in WAYS.iter().zip(ways).skip(2) {
        report.compare(
            format!("added to the first token of {name}, {what} (nginx), p50 / p99"),
            text(added(way)),
            text(added(nginx)),
            added(way)[0] / added(nginx)[0],
        );
    }
    let id = format!("router-first-token-{name}-added-p50-ms");
    report.bar(Bar::at_most(id, added(ways[2])[0], ADDED_MS));
}

/// The options of the two routers. The worker says how long its blocks are, without which nobody would look for any.
fn routers(worker: SocketAddr, etcd: &Etcd, model: &Path) -> Vec<Vec<String>> {
    let id = worker.to_string();
    let record = json!({
        "worker_id": id,
        "url": format!("http://{worker}"),
        "model_name": "m",
        "engine": "vllm",
        "kv_block_size": 16,
    });
    etcd.register(&id, &record);
    let etcd = etcd.address().to_string();
    let without = ["--router-policy", "kv-aware", "--etcd-endpoint", &etcd].map(str::to_owned);
    let tokenizer = ["--kv-tokenizer-path".to_owned(), model.display().to_string()];
    vec![without.to_vec(), [&without[..], &tokenizer].concat()]
}

/// A folder of a model with the small vocabulary of the tests, which makes more ids of a text than a real one and is a bit
/// slower.
fn model() -> anyhow::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("kvd-bench-").tempdir().context("a folder")?;
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../router/tokens/tests");
    let files = [
        ("models/byte_level/tokenizer.json", "tokenizer.json"),
        ("models/byte_level/tokenizer_config.json", "tokenizer_config.json"),
        ("templates/thinking_tools.jinja", "chat_template.jinja"),
    ];
    for (from, to) in files {
        fs::copy(tests.join(from), folder.path().join(to)).context("the tests' model")?;
    }
    Ok(folder)
}
