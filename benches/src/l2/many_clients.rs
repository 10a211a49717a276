//! Bar: eight client processes that look up batches of 64 keys as fast as they can: how many keys a second in all, and
//! whether each gets its share.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};

use super::Effort;
use crate::bar::Bar;
use crate::daemon::{self, Daemon};
use crate::keys::{self, Key, NAMESPACE};
use crate::patience::PATIENCE;
use crate::percentile;
use crate::report::Report;
use crate::role::{self, Helper, Role};

const CLIENTS: u32 = 8;
const KEYS: usize = 64;
const BLOCKS: usize = 100_000;
const BLOCK_BYTES: usize = 64;
/// Keys a second.
const TOTAL_BOUND: f64 = 1e6;
/// Of a fair share.
const LEAST_BOUND: f64 = 0.5;

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let daemon = Daemon::start(&["--max-bytes", "64M"])?;
    keys::store(&daemon.client("kvd-bench"), 0..BLOCKS as u64, BLOCK_BYTES)?;
    let socket = daemon.socket();
    let start =
        |index| Helper::start(&Role::LookUp { socket: socket.clone(), index: u64::from(index) });
    let mut helpers = (0..CLIENTS).map(start).collect::<anyhow::Result<Vec<_>>>()?;
    let milliseconds = effort.of(3_000, 1_000);
    let (mut totals, mut leasts) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        for helper in &mut helpers {
            helper.tell(&milliseconds.to_string())?;
        }
        let speak = |helper: &mut Helper| helper.listen()?.parse::<f64>().context("keys a second");
        let speeds = helpers.iter_mut().map(speak).collect::<anyhow::Result<Vec<_>>>()?;
        let total: f64 = speeds.iter().sum();
        let least = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        totals.push(total);
        leasts.push(least * f64::from(CLIENTS) / total);
    }
    let (total, least) = (percentile::median(&mut totals), percentile::median(&mut leasts));
    report.note("8 clients × 64 keys, located and leased", format!("{:.2} M keys/s", total / 1e6));
    report.note("  the slowest, of a fair share", format!("{least:.2}"));
    report.bar(Bar::at_least("l2.clients8.keys_per_second", total, TOTAL_BOUND));
    report.bar(Bar::at_least("l2.clients8.least_share", least, LEAST_BOUND));
    Ok(())
}

/// The helper: told a number of milliseconds, looks up batches for that long and tells how many keys a second it did.
pub(crate) fn look_up(socket: &Path, index: u64) -> anyhow::Result<()> {
    let client = daemon::client_of(socket, &format!("kvd-bench-{index}"));
    client.attach()?;
    let keys: Vec<Key> =
        keys::shuffled(BLOCKS, index).into_iter().map(|number| keys::key(number as u64)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
    let mut batches = keys.chunks_exact(KEYS).cycle();
    role::say(role::READY)?;
    for line in std::io::stdin().lines() {
        let duration = Duration::from_millis(line?.parse().context("milliseconds")?);
        let mut found = 0_u32;
        let begun = Instant::now();
        while begun.elapsed() < duration {
            let batch = batches.next().context("a batch")?;
            let answer = client.fetch(NAMESPACE, batch, false, PATIENCE);
            if !answer.items.iter().all(Result::is_ok) {
                bail!("a stored block was missed ({:?})", answer.trouble);
            }
            found += u32::try_from(batch.len())?;
        }
        role::say(&format!("{}", f64::from(found) / begun.elapsed().as_secs_f64()))?;
    }
    Ok(())
}
