//! Bar: 64 blocks of 4 MiB that are nowhere but on the device, read by one client and by four at once, against fio with
//! as many jobs in the same files.

use std::sync::Barrier;
use std::time::Instant;

use anyhow::{Context as _, bail};
use kvd_client::Client;

use super::DEPTH;
use super::blocks::{self, Bytes};
use super::pace::Pace;
use super::tier::Tier;
use crate::bar::Bar;
use crate::daemon::Daemon;
use crate::floor::fio::{self, Pattern, Shape};
use crate::machine;
use crate::report::Report;
use crate::suite::Effort;

const LEN_BYTES: usize = 4 << 20;
/// Blocks that a client reads in a round.
const BLOCKS: u64 = 64;
const CLIENTS: [u32; 2] = [1, 4];
/// The daemon's default. An eighth of it is what reads may hold at once.
const ARENA: &str = "8G";
/// What fio goes over in each container.
const PART_BYTES: u64 = 512 << 20;
const BOUND: f64 = 0.9;

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let rounds = effort.of(effort.pairs(), 5) as u64;
    let count = rounds * BLOCKS * CLIENTS.iter().map(|clients| u64::from(*clients)).sum::<u64>();
    let region = ((count * LEN_BYTES as u64) >> 20) * 9 / 8 + 1024;
    let region = format!("{region}M");
    let tier = Tier::beside_fio(ARENA, &region)?;
    let daemon = tier.start()?;
    blocks::fill(&daemon, &daemon.client("kvd-bench"), 0..count, LEN_BYTES, Bytes::Own)?;
    daemon.stop()?;
    let daemon = tier.start()?;
    let huge = 100.0 * machine::huge_share(daemon.pid());
    report.note("pages of 2 MiB: daemon's arena", format!("{huge:.0} %"));
    let mut first = 0;
    for clients in CLIENTS {
        let pace = measure(&tier, &daemon, clients, rounds, &mut first)?;
        let [ours, floor] = pace.texts();
        let what = format!("cold read, 64 × 4 MiB for each of {clients}, depth {DEPTH}");
        report.compare(what, ours, floor, pace.ratio());
        report.bar(Bar::at_least(format!("l3.cold_read.clients{clients}"), pace.ratio(), BOUND));
    }
    daemon.stop()
}

fn measure(
    tier: &Tier,
    daemon: &Daemon,
    clients: u32,
    rounds: u64,
    first: &mut u64,
) -> anyhow::Result<Pace> {
    let shape = Shape { pattern: Pattern::Read, block_bytes: LEN_BYTES as u64, depth: DEPTH };
    let parts = tier.parts(clients, PART_BYTES)?;
    let connect = |index| {
        let client = daemon.client(&format!("kvd-bench-{index}"));
        client.attach().map(|_attached| client).context("attaching")
    };
    let connected = (0..clients).map(connect).collect::<anyhow::Result<Vec<_>>>()?;
    let mut pace = Pace::default();
    for _ in 0..rounds {
        let seconds = read(&connected, *first)?;
        *first += BLOCKS * u64::from(clients);
        let bytes = BLOCKS * u64::from(clients) * LEN_BYTES as u64;
        pace.add(bytes as f64 / seconds, fio::speed(shape, &parts)?);
    }
    Ok(pace)
}

/// Seconds until the slowest client has all of its blocks; they are checked afterwards.
fn read(clients: &[Client], first: u64) -> anyhow::Result<f64> {
    let start = Barrier::new(clients.len());
    let checked = Barrier::new(clients.len());
    let read = |index: usize| {
        let begin = first + index as u64 * BLOCKS;
        let numbers = begin..begin + BLOCKS;
        start.wait();
        let begun = Instant::now();
        let fetched = blocks::fetch(&clients[index], numbers.clone());
        let seconds = begun.elapsed().as_secs_f64();
        checked.wait();
        let (_, views) = fetched?;
        blocks::check(numbers, &views)?;
        Ok(seconds)
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..clients.len()).map(|index| scope.spawn(move || read(index))).collect();
        let mut slowest: f64 = 0.0;
        for thread in threads {
            let seconds: anyhow::Result<f64> =
                thread.join().unwrap_or_else(|_panic| bail!("a thread panicked"));
            slowest = slowest.max(seconds?);
        }
        Ok(slowest)
    })
}
