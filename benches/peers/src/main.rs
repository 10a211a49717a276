//! foyer on the work of the suite `l3`: told on standard input to put blocks and to get them, it tells how many seconds
//! that took.
//!
//! How it is driven: a hybrid cache in this process, as its users have it, with its block engine over files in a folder,
//! `O_DIRECT`, its `io_uring` engine. Its memory holds nothing, so that every get reads the device. Its buffers are
//! large enough that it sheds nothing, and its files are written once before, as ours are: first writes are slower. A put
//! counts until everything is on the device (`wait`), a get until the value is there; all gets of a batch are under way
//! at once.
//!
//! Lines in: `put FIRST COUNT`, `get FIRST COUNT`, `reopen`. Lines out: `ready`, seconds, `ok`.

use std::fs;
use std::io::{BufRead as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context as _, bail};
use foyer::{
    BlockEngineConfig, DeviceBuilder as _, FsDeviceBuilder, HybridCache, HybridCacheBuilder,
    HybridCachePolicy, IoEngineConfig, UringIoEngineConfig,
};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// What foyer evicts at a time; an entry must fit, and what is left over at the end is waste.
const REGION_BYTES: usize = 64 << 20;
/// More than any batch.
const BUFFER_BYTES: usize = 2 << 30;
const FLUSHERS: usize = 2;
/// Room for the zeros that its files are written with.
const PIECE_BYTES: usize = 4 << 20;

type Cache = HybridCache<u64, Vec<u8>>;

/// Where foyer works, and on what.
struct Plan {
    folder: PathBuf,
    capacity_bytes: usize,
    block_bytes: usize,
}

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [folder, capacity, block] = arguments.as_slice() else {
        bail!("usage: kvd-peers FOLDER CAPACITY_BYTES BLOCK_BYTES")
    };
    let plan = Plan {
        folder: folder.into(),
        capacity_bytes: capacity.parse().context("capacity")?,
        block_bytes: block.parse().context("block size")?,
    };
    let runtime = Builder::new_multi_thread().enable_all().build()?;
    let cache = runtime.block_on(open(&plan))?;
    runtime.block_on(cache.close())?;
    write_once(&plan.folder)?;
    let cache = runtime.block_on(open(&plan))?;
    say("ready")?;
    serve(&plan, &runtime, cache)
}

fn serve(plan: &Plan, runtime: &Runtime, mut cache: Cache) -> anyhow::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words.as_slice() {
            ["put", first, count] => {
                let seconds =
                    runtime.block_on(put(plan, &cache, first.parse()?, count.parse()?))?;
                say(&seconds.to_string())?;
            }
            ["get", first, count] => {
                let seconds =
                    runtime.block_on(get(plan, &cache, first.parse()?, count.parse()?))?;
                say(&seconds.to_string())?;
            }
            ["reopen"] => {
                runtime.block_on(cache.close())?;
                cache = runtime.block_on(open(plan))?;
                say("ok")?;
            }
            _ => bail!("told {line:?}"),
        }
    }
    Ok(())
}

async fn open(plan: &Plan) -> anyhow::Result<Cache> {
    let device = FsDeviceBuilder::new(&plan.folder)
        .with_capacity(plan.capacity_bytes)
        .with_direct(true)
        .build()?;
    let engine = BlockEngineConfig::new(device)
        .with_block_size(REGION_BYTES)
        .with_flushers(FLUSHERS)
        .with_buffer_pool_size(BUFFER_BYTES)
        .with_submit_queue_size_threshold(BUFFER_BYTES);
    let ring: Box<dyn IoEngineConfig> = UringIoEngineConfig::new().boxed();
    let cache = HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .memory(1)
        .with_shards(1)
        .storage()
        .with_io_engine_config(ring)
        .with_engine_config(engine)
        .build()
        .await?;
    Ok(cache)
}

/// Writes every byte of foyer's files, so that the file system has nothing left to find.
fn write_once(folder: &Path) -> anyhow::Result<()> {
    let zeros = vec![0; PIECE_BYTES];
    for entry in fs::read_dir(folder)? {
        let mut file = fs::OpenOptions::new().write(true).open(entry?.path())?;
        let mut left = usize::try_from(file.metadata()?.len())?;
        while left > 0 {
            let piece = left.min(zeros.len());
            file.write_all(&zeros[..piece])?;
            left -= piece;
        }
        file.sync_all()?;
    }
    Ok(())
}

async fn put(plan: &Plan, cache: &Cache, first: u64, count: u64) -> anyhow::Result<f64> {
    let values: Vec<(u64, Vec<u8>)> =
        (first..first + count).map(|key| (key, value(key, plan.block_bytes))).collect();
    let begun = Instant::now();
    for (key, value) in values {
        cache.insert(key, value);
    }
    cache.storage().wait().await;
    Ok(begun.elapsed().as_secs_f64())
}

async fn get(plan: &Plan, cache: &Cache, first: u64, count: u64) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let mut under_way = JoinSet::new();
    for key in first..first + count {
        let cache = cache.clone();
        under_way.spawn(async move { (key, cache.get(&key).await) });
    }
    let got = under_way.join_all().await;
    let seconds = begun.elapsed().as_secs_f64();
    for (key, found) in got {
        let found = found?.with_context(|| format!("block {key} is not there any more"))?;
        if *found.value() != value(key, plan.block_bytes) {
            bail!("block {key} is wrong");
        }
    }
    Ok(seconds)
}

/// Pseudo-random bytes that belong to a key.
fn value(key: u64, len: usize) -> Vec<u8> {
    let mut state = key.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

fn say(line: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()?;
    Ok(())
}
