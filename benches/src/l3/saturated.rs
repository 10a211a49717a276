//! Bar: the round trip of a hit in memory while the disk is kept busy with spills and reads, against a bare ping-pong
//! while fio keeps the same disk as busy and another process copies as many bytes. Nobody is confined to a core.

use anyhow::{Context as _, bail};
use kvd_client::Client;

use super::DEPTH;
use super::blocks::{self, Bytes};
use super::tier::Tier;
use crate::bar::Bar;
use crate::floor::fio::{Load, Pattern, Shape};
use crate::floor::ping_pong::{Kind, PingPong};
use crate::keys::{self, NAMESPACE};
use crate::l2::round_trip::{self, Pairs};
use crate::patience::PATIENCE;
use crate::report::Report;
use crate::role::{Helper, Role};
use crate::suite::Effort;

const ARENA: &str = "1G";
const REGION: &str = "4G";
/// Warm blocks that are looked up; of the class of the load, so that they stay because they are warm.
const HITS: u64 = 256;
/// Number of the first of them, far from those of the load.
const HITS_FROM: u64 = 1 << 40;
const HIT_BYTES: usize = 4096;
/// Part of a container that fio goes over.
const PART_BYTES: u64 = 512 << 20;
const BOUND: f64 = 2.0;

/// Blocks of the load: bytes of each, and how many the region holds before it begins.
pub(crate) const LOAD_BYTES: usize = 4 << 20;
pub(crate) const LOAD_BLOCKS: u64 = 768;
/// So many of the latest may still be in the arena, which holds 256.
pub(crate) const YOUNG_BLOCKS: u64 = 320;

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let tier = Tier::beside_fio(ARENA, REGION)?;
    let daemon = tier.start()?;
    let client = daemon.client("kvd-bench");
    blocks::fill(&daemon, &client, 0..LOAD_BLOCKS, LOAD_BYTES, Bytes::Own)?;
    blocks::fill(&daemon, &client, HITS_FROM..HITS_FROM + HITS, HIT_BYTES, Bytes::Own)?;
    let ping = PingPong::start(Kind::Tokio)?;
    let trips = effort.of(20_000, 10_000);
    let mut churn = Helper::start(&Role::Churn { socket: daemon.socket() })?;
    let mut copier = Helper::start(&Role::Copy)?;
    let part = tier.parts(2, PART_BYTES)?.pop().context("a container")?;
    let shape = Shape { pattern: Pattern::Mixed, block_bytes: LOAD_BYTES as u64, depth: DEPTH };
    let mut pairs = Pairs::default();
    let mut speeds = Vec::new();
    for _ in 0..effort.of(effort.pairs(), 5) {
        churn.tell("go")?;
        let ours = hits(&client, trips);
        churn.tell("stop")?;
        let moved: f64 = churn.listen()?.parse().context("bytes a second of the churn")?;
        speeds.push(moved);
        let load = Load::start(shape, &part)?;
        copier.tell(&format!("go {moved}"))?;
        let floor = ping.sample(round_trip::fetch_sizes(1), trips);
        copier.tell("stop")?;
        copier.listen()?;
        drop(load);
        pairs.add(ours?, floor?);
    }
    let [ours, floor] = pairs.texts();
    let moved = crate::percentile::median(&mut speeds) / 1e9;
    report.compare("hit under a busy disk: p50 / p99", ours, floor, pairs.ratios()[1]);
    report.note("  spilled and read meanwhile", format!("{moved:.2} GB/s"));
    report.bar(Bar::at_most("l3.saturated.hit.p99", pairs.ratios()[1], BOUND));
    daemon.stop()
}

fn hits(client: &Client, trips: usize) -> anyhow::Result<Vec<f64>> {
    let keys: Vec<keys::Key> = (HITS_FROM..HITS_FROM + HITS).map(keys::key).collect();
    round_trip::sample(trips, |index| {
        let answer = client.fetch(NAMESPACE, &[&keys[index % keys.len()]], false, PATIENCE);
        match answer.items.first().context("an answer without items")? {
            Ok(_) => Ok(()),
            Err(reason) => bail!("a warm block was missed: {reason} ({:?})", answer.trouble),
        }
    })
}
