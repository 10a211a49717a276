//! `bench`: how fast the running daemon takes, finds and gives blocks.
//!
//! The blocks have a model name of their own and are cleared afterwards. They are real blocks: in a
//! full daemon they push out others of class `none` only, or are refused.

mod lap;
mod reason;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kvd_client::{ClearScope, Client, Commit, Namespace, Retention};

use crate::deadline::DEADLINE;
use crate::exit::codes;
use crate::sockets::Sockets;
use crate::text;
use lap::Lap;

#[derive(Debug, Args)]
#[command(after_help = codes!("0 measured, 1 wrong bytes or no daemon"))]
pub(crate) struct Bench {
    /// Size of a block
    #[arg(long, default_value = "1M", value_parser = text::size)]
    block_bytes: u64,
    /// Number of blocks
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    blocks: u32,
    /// Blocks per call
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=4096))]
    batch: u32,
}

const SPACE: Namespace<'static> = Namespace { model: "kvdctl-bench", compat_key: "" };

/// So that blocks which somebody forgot to clear do not stay.
const TTL: Duration = Duration::from_secs(600);

/// The keys of one call.
type Batch = Vec<[u8; 8]>;

pub(crate) fn run(sockets: &Sockets, bench: &Bench) -> Result<ExitCode> {
    let client = sockets.client();
    let attached = client.attach()?;
    if bench.block_bytes > attached.limits.value_bytes_max {
        let largest = text::bytes(attached.limits.value_bytes_max);
        bail!("the daemon takes blocks of at most {largest}: give a smaller --block-bytes");
    }
    let numbers: Vec<u64> = (0..u64::from(bench.blocks)).collect();
    let batches: Vec<Batch> = numbers
        .chunks(bench.batch as usize)
        .map(|batch| batch.iter().map(|number| number.to_le_bytes()).collect())
        .collect();
    let laps = measure(&client, bench, &batches);
    client.clear(ClearScope::Model(SPACE.model))?;
    let laps = laps?;
    report(&laps, bench.block_bytes, attached.arena_bytes)?;
    let wrong: u64 = laps.iter().map(|lap| lap.wrong).sum();
    if wrong > 0 {
        bail!("{wrong} blocks came back with other bytes than were stored");
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(client: &Client, bench: &Bench, batches: &[Batch]) -> Result<[Lap; 3]> {
    let len = usize::try_from(bench.block_bytes)?;
    let mut block = vec![0; len];
    let put = run_lap("put", batches, |batch, lap| put(client, batch, &mut block, lap))?;
    let locate = run_lap("locate", batches, |batch, lap| {
        let answer = client.locate(SPACE, &keys(batch), false);
        answer.items.iter().filter_map(|item| item.as_ref().err()).for_each(|miss| lap.miss(*miss));
        answer.trouble.map_or(Ok(batch.len()), |trouble| Err(trouble.into()))
    })?;
    let get = run_lap("get", batches, |batch, lap| get(client, batch, &mut block, lap))?;
    Ok([put, locate, get])
}

/// Does one kind of call for each batch and takes the time of each. A call says how many blocks it
/// dealt with.
fn run_lap(
    name: &'static str,
    batches: &[Batch],
    mut call: impl FnMut(&Batch, &mut Lap) -> Result<usize>,
) -> Result<Lap> {
    let style = ProgressStyle::with_template("{msg:8} {wide_bar} {pos}/{len} batches")?;
    let bar = ProgressBar::new(batches.len() as u64).with_style(style).with_message(name);
    let mut lap = Lap::new(name);
    for batch in batches {
        let began = Instant::now();
        let blocks = call(batch, &mut lap)?;
        lap.add(blocks, began.elapsed());
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(lap)
}

fn put(client: &Client, batch: &Batch, block: &mut [u8], lap: &mut Lap) -> Result<usize> {
    let lens = vec![block.len() as u64; batch.len()];
    let tickets = client.reserve(&lens, Retention::None, DEADLINE)?;
    let mut commits = Vec::with_capacity(batch.len());
    for (ticket, key) in tickets.into_iter().zip(batch) {
        let ticket = match ticket {
            Ok(ticket) => ticket,
            Err(refusal) => {
                lap.refuse(refusal);
                continue;
            }
        };
        mark(block, *key);
        ticket.write(0, block)?;
        commits.push(Commit { ticket, key, len_bytes: block.len() as u64, lineage: None });
    }
    let outcomes = client.commit(SPACE, commits, Retention::None, Some(TTL))?;
    let mut stored = 0;
    for outcome in outcomes {
        match outcome {
            Ok(()) => stored += 1,
            Err(refusal) => lap.refuse(refusal),
        }
    }
    Ok(stored)
}

fn get(client: &Client, batch: &Batch, block: &mut [u8], lap: &mut Lap) -> Result<usize> {
    let answer = client.fetch(SPACE, &keys(batch), false, DEADLINE);
    let mut found = 0;
    for (item, key) in answer.items.iter().zip(batch) {
        match item {
            Ok(view) if view.len() == block.len() => {
                view.copy_to(block);
                found += 1;
                lap.wrong += u64::from(!is_marked(block, *key));
            }
            Ok(_) => lap.wrong += 1,
            Err(miss) => lap.miss(*miss),
        }
    }
    answer.trouble.map_or(Ok(found), |trouble| Err(trouble.into()))
}

fn keys(batch: &Batch) -> Vec<&[u8]> {
    batch.iter().map(<[u8; 8]>::as_slice).collect()
}

/// Writes the key over the beginning of the block, as far as there is room.
fn mark(block: &mut [u8], key: [u8; 8]) {
    block.iter_mut().zip(key).for_each(|(byte, mark)| *byte = mark);
}

fn is_marked(block: &[u8], key: [u8; 8]) -> bool {
    block.iter().zip(key).all(|(byte, mark)| *byte == mark)
}

fn report(laps: &[Lap], block_bytes: u64, arena_bytes: u64) -> Result<()> {
    let head = ["", "BLOCKS/S", "BYTES/S", "P50 A CALL", "P99 A CALL", "REFUSED OR MISSED"];
    let mut table = text::table(&head, 1);
    for lap in laps {
        let per_second = lap.blocks_per_second();
        let bytes = per_second.saturating_mul(block_bytes);
        table.add_row([
            lap.name.to_owned(),
            text::count(per_second),
            // Locating moves no bytes.
            if lap.name == "locate" { String::new() } else { text::bytes(bytes) },
            lap.quantile(50),
            lap.quantile(99),
            text::count(lap.failed_blocks()),
        ]);
    }
    text::print(&table)?;
    let mut out = io::stdout().lock();
    for lap in laps {
        for (reason, blocks) in &lap.failed {
            writeln!(out, "{}", reason.in_words(lap.name, *blocks, arena_bytes))?;
        }
    }
    Ok(())
}
