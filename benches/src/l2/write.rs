//! Bar: reserving, filling and committing 4 MiB blocks in batches of 16, against the fastest copy of the same bytes
//! into an arena.

use std::time::Instant;

use anyhow::{Context as _, anyhow};
use kvd_client::{Commit, Retention};

use super::Effort;
use super::cold::{BLOCK_BYTES, Batches, Stage};
use crate::bar::Bar;
use crate::floor::copy::Way;
use crate::keys::{self, Key, NAMESPACE};
use crate::patience::PATIENCE;
use crate::report::Report;

const BOUND: f64 = 0.85;

/// The bytes come from the same two blocks over and over, as from an engine's bounce buffer: they are warm, and only
/// the arena is cold. That leaves the least time to hide the round trips in.
const SOURCES: usize = 2;

pub(super) fn run(effort: Effort, stage: &mut Stage, report: &mut Report) -> anyhow::Result<()> {
    let rounds = effort.of(5 * effort.pairs(), effort.pairs());
    let batches = Batches::measure(stage, rounds, |stage, way, batch| match way {
        None => store(stage, batch),
        Some(way) => Ok(copy(stage, way, batch)),
    })?;
    let [ours, floor] = batches.texts(&stage.ways);
    report.compare("reserve, copy in and commit, 16 × 4 MiB, cold", ours, floor, batches.ratio());
    report.bar(Bar::at_least("l2.write.4m", batches.ratio(), BOUND));
    Ok(())
}

fn source(stage: &Stage, index: usize) -> &[u8] {
    stage.buffer.block(index % SOURCES)
}

/// Seconds for a batch to the daemon, from the reservation to the last acknowledgement.
fn store(stage: &Stage, batch: &[usize]) -> anyhow::Result<f64> {
    let keys: Vec<Key> = batch.iter().map(|block| keys::key(*block as u64)).collect();
    let lens = vec![BLOCK_BYTES as u64; batch.len()];
    let begun = Instant::now();
    let granted = stage.client.reserve(&lens, Retention::Short, PATIENCE).context("reserving")?;
    let mut commits = Vec::with_capacity(batch.len());
    for (index, (key, room)) in keys.iter().zip(granted).enumerate() {
        let ticket = room.map_err(|refusal| anyhow!("reserving: {}", refusal.as_str()))?;
        ticket.write(0, source(stage, index))?;
        commits.push(Commit { ticket, key, len_bytes: BLOCK_BYTES as u64, lineage: None });
    }
    for outcome in
        stage.client.commit(NAMESPACE, commits, Retention::Short, None).context("committing")?
    {
        outcome.map_err(|refusal| anyhow!("committing: {}", refusal.as_str()))?;
    }
    Ok(begun.elapsed().as_secs_f64())
}

/// Seconds for the same bytes into this process's own arena.
fn copy(stage: &Stage, way: Way, batch: &[usize]) -> f64 {
    let begun = Instant::now();
    for (index, block) in batch.iter().enumerate() {
        stage.own.copy_in(way, Stage::place(*block), source(stage, index));
    }
    begun.elapsed().as_secs_f64()
}
