//! The load of [`super::saturated`]: processes that keep the disk, or the memory, busy while they are told to.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use kvd_client::Client;

use super::blocks::{self, Bytes};
use super::saturated::{LOAD_BLOCKS, LOAD_BYTES, YOUNG_BLOCKS};
use crate::daemon;
use crate::figures::Figures;
use crate::patience;
use crate::role;

/// Blocks that are stored, or fetched, at a time.
const BATCH: u64 = 8;
/// Blocks that may wait to be written: enough for the disk never to wait for them.
const WAITING_MAX: u64 = 2 * BATCH;
const PAUSE: Duration = Duration::from_millis(1);
/// What the copier goes over: more than any cache holds.
const COPIED_BYTES: usize = 512 << 20;

/// What both threads of the churn see.
#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Number of the block that is stored next.
    next: AtomicU64,
    moved_bytes: AtomicU64,
}

/// Stores blocks and fetches others from the device, both at once, from `go` to `stop`; then tells the bytes a second of
/// both together.
pub(crate) fn churn(socket: &Path) -> anyhow::Result<()> {
    let clients = ["kvd-bench-puts", "kvd-bench-gets", "kvd-bench-look"]
        .map(|name| daemon::client_of(socket, name));
    let [puts, gets, look] = clients;
    let sources = blocks::sources(LOAD_BYTES);
    let mut lines = std::io::stdin().lines();
    let mut next = LOAD_BLOCKS;
    role::say(role::READY)?;
    while let Some(line) = lines.next() {
        expect(&line?, "go")?;
        let shared = Shared { next: AtomicU64::new(next), ..Shared::default() };
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let put = scope.spawn(|| put(&puts, &look, &sources, &shared));
            let get = scope.spawn(|| get(&gets, &shared));
            let told = lines.next().context("an end")?.context("an order").map(drop);
            shared.stop.store(true, Ordering::Relaxed);
            for thread in [put, get] {
                thread.join().unwrap_or_else(|_panic| bail!("a thread panicked"))?;
            }
            told
        })?;
        next = shared.next.into_inner();
        let moved = shared.moved_bytes.into_inner() as f64;
        role::say(&format!("{}", moved / begun.elapsed().as_secs_f64()))?;
    }
    Ok(())
}

fn put(client: &Client, look: &Client, sources: &[Vec<u8>], shared: &Shared) -> anyhow::Result<()> {
    while !shared.stop.load(Ordering::Relaxed) {
        if Figures::read(look)?.get("disk_dirty_bytes") > WAITING_MAX * LOAD_BYTES as u64 {
            patience::pause(PAUSE);
            continue;
        }
        let next = shared.next.load(Ordering::Relaxed);
        blocks::store(client, next..next + BATCH, LOAD_BYTES, Bytes::Given(sources))?;
        shared.next.store(next + BATCH, Ordering::Relaxed);
        shared.moved_bytes.fetch_add(BATCH * LOAD_BYTES as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Goes over the oldest blocks in order, and begins anew when it comes to younger ones: by the time it comes back to one,
/// that has left the arena. Those that the device has lost by then (fio writes over some) are left out.
fn get(client: &Client, shared: &Shared) -> anyhow::Result<()> {
    let mut first = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let next = shared.next.load(Ordering::Relaxed);
        let oldest = next - LOAD_BLOCKS;
        if !(oldest..next - YOUNG_BLOCKS).contains(&first) {
            first = oldest;
        }
        let found = blocks::fetch_what_is_there(client, first..first + BATCH)?;
        shared.moved_bytes.fetch_add(found * LOAD_BYTES as u64, Ordering::Relaxed);
        first += BATCH;
    }
    Ok(())
}

/// Copies so many bytes a second as it is told with `go`, until `stop`.
pub(crate) fn copy() -> anyhow::Result<()> {
    let source = blocks::sources(LOAD_BYTES).swap_remove(0);
    let mut target = vec![1; COPIED_BYTES];
    let mut lines = std::io::stdin().lines();
    role::say(role::READY)?;
    while let Some(line) = lines.next() {
        let line = line?;
        let speed: f64 = line.strip_prefix("go ").context("an order")?.parse()?;
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| copy_at(speed, &source, &mut target, &stop));
            let told = lines.next().context("an end")?.context("an order").map(drop);
            stop.store(true, Ordering::Relaxed);
            told
        })?;
        role::say("ok")?;
    }
    Ok(())
}

fn copy_at(speed: f64, source: &[u8], target: &mut [u8], stop: &AtomicBool) {
    let begun = Instant::now();
    let mut copied = 0.0;
    for place in (0..target.len() / source.len()).cycle() {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        target[place * source.len()..][..source.len()].copy_from_slice(source);
        copied += source.len() as f64;
        let due = Duration::from_secs_f64(copied / speed.max(1.0));
        patience::pause(due.saturating_sub(begun.elapsed()).min(PAUSE * 100));
    }
}

fn expect(said: &str, wanted: &str) -> anyhow::Result<()> {
    if said != wanted {
        bail!("told {said:?} instead of {wanted:?}");
    }
    Ok(())
}
