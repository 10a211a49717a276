//! Bars: bytes that are read and written for nothing. While blocks are only read, every byte is read once and none is
//! written; while they come and go in a full region, little more is written than they have.

use anyhow::Context as _;

use super::blocks::{self, Bytes};
use super::tier::{self, Tier};
use crate::bar::Bar;
use crate::daemon::Daemon;
use crate::machine::Moved;
use crate::report::Report;
use crate::suite::Effort;

const LEN_BYTES: usize = 1 << 20;
const ARENA: &str = "512M";
const REGION: &str = "1G";
const REGION_BYTES: u64 = 1 << 30;
/// Blocks that are fetched at once.
const BATCH: u64 = 64;
/// Read for each byte served, and written: one and none, but for a line in a log.
const READ_BOUND: f64 = 1.01;
const WRITTEN_BOUND: f64 = 0.01;
/// Journal and snapshots included.
const CHURN_BOUND: f64 = 1.05;

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let tier = Tier::new(&["--max-bytes", ARENA, "--long-bytes", REGION])?;
    let next = churn(effort, &tier, report)?;
    read_only(&tier, next, report)
}

/// Stores several times what the region holds; tells the number of the block that would be next.
fn churn(effort: Effort, tier: &Tier, report: &mut Report) -> anyhow::Result<u64> {
    let daemon = tier.start()?;
    let client = daemon.client("kvd-bench");
    let lap = REGION_BYTES / LEN_BYTES as u64;
    // Full before it counts, and every container written once.
    let before = 2 * lap;
    let end = before + lap * effort.of(8, 2) as u64;
    blocks::fill(&daemon, &client, 0..before, LEN_BYTES, Bytes::Own)?;
    let moved = moved(&daemon)?;
    let spilled = daemon.figures()?.get("disk_spill_bytes_total");
    blocks::fill(&daemon, &client, before..end, LEN_BYTES, Bytes::Own)?;
    let moved = self::moved(&daemon)?.since(moved);
    let spilled = daemon.figures()?.get("disk_spill_bytes_total") - spilled;
    // What clients asked for, not what the daemon may have written twice.
    let asked = (end - before) * LEN_BYTES as u64;
    let ratio = moved.written_bytes as f64 / asked as f64;
    report.note(
        "churn in a full region, 1 MiB blocks: written for each byte stored",
        format!("{ratio:.4}; blocks alone {:.4}", spilled as f64 / asked as f64),
    );
    report.bar(Bar::at_most("l3.churn.written", ratio, CHURN_BOUND));
    let allocated = tier.allocated_bytes()? as f64 / REGION_BYTES as f64;
    report.note("  on the disk, of the cap", format!("{allocated:.4}"));
    report.bar(Bar::at_most("l3.churn.allocated", allocated, 1.0));
    daemon.stop()?;
    Ok(end)
}

/// Reads the last blocks after a restart.
fn read_only(tier: &Tier, next: u64, report: &mut Report) -> anyhow::Result<()> {
    let daemon = tier.start()?;
    let client = daemon.client("kvd-bench");
    let entries = daemon.figures()?.get("disk_entries");
    // The latest are there whatever was evicted; half of them leaves room for doubt about which those are.
    let count = (entries / 2 / BATCH).min(4) * BATCH;
    let first = next - count;
    tier::until(&daemon, "the end of growth", settled())?;
    let before = moved(&daemon)?;
    let loaded = daemon.figures()?.get("disk_load_bytes_total");
    for begin in (first..next).step_by(usize::try_from(BATCH)?) {
        let (_, views) = blocks::fetch(&client, begin..begin + BATCH)?;
        blocks::check(begin..begin + BATCH, &views)?;
    }
    let moved = moved(&daemon)?.since(before);
    let loaded = daemon.figures()?.get("disk_load_bytes_total") - loaded;
    let served = (count * LEN_BYTES as u64) as f64;
    let (read, written) = (moved.read_bytes as f64 / served, moved.written_bytes as f64 / served);
    report.note(
        "only reading: read / written for each byte served",
        format!("{read:.4} / {written:.4}; by the daemon's count {:.4}", loaded as f64 / served),
    );
    report.bar(Bar::at_most("l3.read_only.read", read, READ_BOUND));
    report.bar(Bar::at_most("l3.read_only.counted", loaded as f64 / served, READ_BOUND));
    report.bar(Bar::at_most("l3.read_only.written", written, WRITTEN_BOUND));
    daemon.stop()
}

fn moved(daemon: &Daemon) -> anyhow::Result<Moved> {
    Moved::of(daemon.pid()).context("a daemon without figures of the kernel")
}

/// Whether the containers have stopped growing: the same size at two looks in a row.
fn settled() -> impl FnMut(&crate::figures::Figures) -> bool {
    let mut last = 0;
    move |figures| {
        let now = figures.get("disk_capacity_bytes");
        let same = now > 0 && now == last;
        last = now;
        same
    }
}
