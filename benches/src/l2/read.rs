//! Bar: fetching cold 4 MiB blocks in batches of 16 and copying them out, against the fastest copy of the same bytes.

use std::time::Instant;

use anyhow::bail;
use kvd_client::View;

use super::Effort;
use super::cold::{Batches, Stage};
use crate::bar::Bar;
use crate::floor::copy::Way;
use crate::keys::{self, Key, NAMESPACE};
use crate::patience::PATIENCE;
use crate::report::Report;

const BOUND: f64 = 0.9;

pub(super) fn run(effort: Effort, stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    let rounds = effort.of(5 * effort.pairs(), effort.pairs());
    let batches = Batches::measure(stage, rounds, |stage, way, batch| match way {
        None => fetch(stage, batch),
        Some(way) => Ok(copy(stage, way, batch)),
    })?;
    let [ours, floor] = batches.texts(&stage.ways);
    report.compare("fetch and copy out, 16 × 4 MiB, cold", ours, floor, batches.ratio());
    report.bar(Bar::at_least("l2.read.4m", batches.ratio(), BOUND));
    Ok(())
}

/// Seconds for a batch from the daemon, from the question to the returned leases.
fn fetch(stage: &mut Stage, batch: &[usize]) -> anyhow::Result<f64> {
    let keys: Vec<Key> = batch.iter().map(|block| keys::key(*block as u64)).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
    let begun = Instant::now();
    let answer = stage.client.fetch(NAMESPACE, &keys, false, PATIENCE);
    let views: Vec<&View> = answer.items.iter().flatten().collect();
    if views.len() != batch.len() {
        bail!(
            "{} of {} stored blocks were missed ({:?})",
            batch.len() - views.len(),
            batch.len(),
            answer.trouble
        );
    }
    for (view, to) in views.into_iter().zip(stage.buffer.blocks_mut()) {
        view.copy_to(to);
    }
    drop(answer);
    Ok(begun.elapsed().as_secs_f64())
}

/// Seconds for the same bytes from this process's own arena.
fn copy(stage: &mut Stage, way: Way, batch: &[usize]) -> f64 {
    let begun = Instant::now();
    for (block, to) in batch.iter().zip(stage.buffer.blocks_mut()) {
        stage.own.copy_out(way, Stage::place(*block), to);
    }
    begun.elapsed().as_secs_f64()
}
