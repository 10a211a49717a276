//! Blocks of the suite: stored until they are on the device, and fetched from there.

use std::ops::Range;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use kvd_client::{Client, Commit, Retention, View};

use super::tier;
use crate::content::Content;
use crate::daemon::Daemon;
use crate::in_place;
use crate::keys::{self, Key, NAMESPACE};
use crate::patience::PATIENCE;

/// Bytes that are reserved, filled and committed at a time: some blocks of a prompt.
const BATCH_BYTES: usize = 16 << 20;
/// Most blocks of a batch.
const BATCH_MAX: usize = 64;
/// Payload of one round of [`fill`]: what the arena may hold without having been written.
const ROUND_BYTES: u64 = 256 << 20;

/// What is stored.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// Of each block its own, to be checked when it comes back.
    Own,
    /// The same few over and over, as from an engine's bounce buffers: nothing but the storing takes time.
    Given(&'a [Vec<u8>]),
}

/// Random bytes for [`Bytes::Given`].
#[must_use]
pub fn sources(len_bytes: usize) -> Vec<Vec<u8>> {
    let source = |number: u64| {
        let mut bytes = vec![0; len_bytes];
        Content::of(&number.to_le_bytes()).fill(&mut bytes);
        bytes
    };
    (0..2).map(source).collect()
}

/// Stores blocks of class long; they are acknowledged when this returns, no more.
///
/// # Errors
/// If one is refused, or there is no answer.
pub fn store(
    client: &Client,
    numbers: Range<u64>,
    len_bytes: usize,
    from: Bytes<'_>,
) -> anyhow::Result<()> {
    let numbers: Vec<u64> = numbers.collect();
    let mut own = vec![0; len_bytes];
    for batch in numbers.chunks((BATCH_BYTES / len_bytes).clamp(1, BATCH_MAX)) {
        let keys: Vec<Key> = batch.iter().map(|number| keys::key(*number)).collect();
        let lens = vec![len_bytes as u64; keys.len()];
        let granted = client.reserve(&lens, Retention::Long, PATIENCE).context("reserving")?;
        let mut commits = Vec::with_capacity(keys.len());
        for (index, (key, room)) in keys.iter().zip(granted).enumerate() {
            let ticket = room.map_err(|refusal| anyhow!("reserving: {}", refusal.as_str()))?;
            match from {
                Bytes::Given(sources) => ticket.write(0, &sources[index % sources.len()])?,
                Bytes::Own => {
                    Content::of(key).fill(&mut own);
                    ticket.write(0, &own)?;
                }
            }
            commits.push(Commit { ticket, key, len_bytes: len_bytes as u64, lineage: None });
        }
        for outcome in
            client.commit(NAMESPACE, commits, Retention::Long, None).context("committing")?
        {
            outcome.map_err(|refusal| anyhow!("committing: {}", refusal.as_str()))?;
        }
    }
    Ok(())
}

/// Seconds from the first reservation until all of it is on the device.
///
/// # Errors
/// As [`store`]; if the disk does not take it.
pub fn spill(
    daemon: &Daemon,
    client: &Client,
    numbers: Range<u64>,
    len_bytes: usize,
    from: Bytes<'_>,
) -> anyhow::Result<f64> {
    let wanted = daemon.figures()?.get("disk_spills_total") + (numbers.end - numbers.start);
    let begun = Instant::now();
    store(client, numbers, len_bytes, from)?;
    tier::until(daemon, "blocks to be on the device", |figures| {
        figures.get("disk_spills_total") >= wanted
    })?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Stores blocks until all are on the device, in rounds that the arena can hold.
///
/// # Errors
/// As [`spill`].
pub fn fill(
    daemon: &Daemon,
    client: &Client,
    numbers: Range<u64>,
    len_bytes: usize,
    from: Bytes<'_>,
) -> anyhow::Result<()> {
    let round = (ROUND_BYTES / len_bytes as u64).max(1);
    let mut first = numbers.start;
    while first < numbers.end {
        let end = numbers.end.min(first + round);
        spill(daemon, client, first..end, len_bytes, from)?;
        first = end;
    }
    Ok(())
}

/// Seconds until every one of these blocks can be read in the arena, and their bytes where they lie.
///
/// # Errors
/// If one is missing.
pub fn fetch(client: &Client, numbers: Range<u64>) -> anyhow::Result<(f64, Vec<View>)> {
    let keys: Vec<Key> = numbers.map(keys::key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
    let begun = Instant::now();
    let answer = client.fetch(NAMESPACE, &keys, false, PATIENCE);
    let seconds = begun.elapsed().as_secs_f64();
    let trouble = answer.trouble;
    let views: Result<Vec<View>, _> = answer.items.into_iter().collect();
    let views = views.map_err(|reason| anyhow!("a block was missed: {reason} ({trouble:?})"))?;
    if views.len() != keys.len() {
        bail!("{} of {} blocks were answered", views.len(), keys.len());
    }
    Ok((seconds, views))
}

/// Compares blocks with what belongs to their keys.
///
/// # Errors
/// If a byte is wrong.
pub fn check(numbers: Range<u64>, views: &[View]) -> anyhow::Result<()> {
    for (number, view) in numbers.zip(views) {
        if let Some(at) = in_place::first_difference(view, Content::of(&keys::key(number))) {
            bail!("block {number} is wrong at byte {at}");
        }
    }
    Ok(())
}

/// Fetches these blocks and gives them back at once; how many were there.
///
/// # Errors
/// If there is no answer.
pub fn fetch_what_is_there(client: &Client, numbers: Range<u64>) -> anyhow::Result<u64> {
    let keys: Vec<Key> = numbers.map(keys::key).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_slice()).collect();
    let answer = client.fetch(NAMESPACE, &keys, false, PATIENCE);
    if let Some(trouble) = answer.trouble {
        bail!("fetching: {trouble}");
    }
    Ok(answer.items.iter().filter(|item| item.is_ok()).count() as u64)
}
