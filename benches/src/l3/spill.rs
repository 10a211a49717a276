//! Bar: blocks of 1 MiB and of 4 MiB from a client's buffers to the device, against fio with the same size and depth in
//! the same files.

use kvd_client::ClearScope;

use super::DEPTH;
use super::blocks::{self, Bytes};
use super::pace::Pace;
use super::tier::{self, Tier};
use crate::bar::Bar;
use crate::floor::fio::{self, Pattern, Shape};
use crate::report::Report;
use crate::suite::Effort;

const SIZES: [(&str, usize); 2] = [("1m", 1 << 20), ("4m", 4 << 20)];
/// Payload of one round: half of the arena, so that nothing has to leave it before it is written.
const ROUND_BYTES: u64 = 1 << 30;
const ARENA: &str = "2G";
const REGION: &str = "3G";
const REGION_BYTES: u64 = 3 << 30;
const BOUND: f64 = 0.9;

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    for (name, len_bytes) in SIZES {
        let pace = measure(effort, len_bytes)?;
        let [ours, floor] = pace.texts();
        let what = format!("spill, {} MiB blocks, depth {DEPTH}", len_bytes >> 20);
        report.compare(what, ours, floor, pace.ratio());
        report.bar(Bar::at_least(format!("l3.spill.{name}"), pace.ratio(), BOUND));
    }
    Ok(())
}

fn measure(effort: Effort, len_bytes: usize) -> anyhow::Result<Pace> {
    let tier = Tier::beside_fio(ARENA, REGION)?;
    let daemon = tier.start()?;
    let client = daemon.client("kvd-bench");
    let sources = blocks::sources(len_bytes);
    let given = Bytes::Given(&sources);
    let round = ROUND_BYTES / len_bytes as u64;
    // Once around, so that every container is there and the first round is like the last.
    let lap = REGION_BYTES / len_bytes as u64;
    blocks::fill(&daemon, &client, 0..lap, len_bytes, given)?;
    let shape = Shape { pattern: Pattern::Write, block_bytes: len_bytes as u64, depth: DEPTH };
    let part = tier.parts(1, ROUND_BYTES)?;
    let mut pace = Pace::default();
    let mut first = lap;
    for _ in 0..effort.of(effort.pairs(), 5) {
        client.clear(ClearScope::Everything)?;
        tier::until(&daemon, "room on the device", |figures| {
            figures.get("disk_entries") == 0 && figures.get("disk_free_bytes") >= ROUND_BYTES
        })?;
        let seconds = blocks::spill(&daemon, &client, first..first + round, len_bytes, given)?;
        first += round;
        // Nobody reads again what it writes over: the next round begins with a clear.
        let floor = fio::speed(shape, &part)?;
        pace.add(ROUND_BYTES as f64 / seconds, floor);
    }
    daemon.stop()?;
    Ok(pace)
}
