//! Events a second on one thread, from their bytes to the index: alone, and while somebody asks the index all the time.

use core::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use nix::time::{ClockId, clock_gettime};
use router_core::fold::{EngineView, Moment};
use router_core::index::{Chains, Index, Query};

use super::hosts::{World, engine, removed, stored};
use crate::affinity::{self, pin};
use crate::bar::Bar;
use crate::report::Report;
use crate::suite::Effort;

/// Blocks of one prompt, and of one event.
const PROMPT: u32 = 256;
/// Prompts that come and go again. The first one is the beginning of the one that is asked for.
const PROMPTS: u64 = 64;
/// A million a second.
const BLOCKS_PER_SECOND: f64 = 1e6;

/// A worker whose prompts come and go: payloads made beforehand, stored, removed again from their ends.
#[derive(Debug)]
struct Churn {
    view: EngineView,
    payloads: Vec<(Vec<u8>, u64)>,
}

impl Churn {
    /// A worker that is on none of the hosts.
    fn new() -> Self {
        let number = |prompt: u64| if prompt == 0 { 0 } else { 1 << 60 | prompt };
        let blocks = u64::from(PROMPT);
        let come = (0..PROMPTS).map(|prompt| (stored(number(prompt), 0..PROMPT), blocks));
        let go = (0..PROMPTS).map(|prompt| (removed(number(prompt), 0..PROMPT), blocks));
        Self { view: engine(99, 0), payloads: come.chain(go).collect() }
    }

    /// Everything comes and goes once; returns the number of blocks that did.
    fn turn(&mut self, index: &Index) -> u64 {
        for (payload, _) in &self.payloads {
            self.view.live(index, None, payload, Moment(0));
        }
        self.payloads.iter().map(|(_, blocks)| blocks).sum()
    }

    /// Blocks a second of a processor, for as long as `goes_on` says so; leaves the index as it was.
    fn rate(mut self, index: &Index, mut goes_on: impl FnMut() -> bool) -> anyhow::Result<f64> {
        // The table takes the size that it needs.
        self.turn(index);
        let (mut blocks, begun) = (0, on_processor()?);
        while goes_on() {
            blocks += self.turn(index);
        }
        let seconds = on_processor()? - begun;
        ensure!(self.view.counts().turned_away == 0, "blocks were turned away");
        self.view.leave(index);
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let blocks = blocks as f64;
        Ok(blocks / seconds)
    }
}

/// Time that this thread had a processor, in seconds: others may run on the machine.
pub(super) fn on_processor() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(Duration::from(time).as_secs_f64())
}

/// What `read` finds while another thread, on another core, changes the index as fast as it can.
#[derive(Debug)]
pub(super) struct Beside<T> {
    /// What it found.
    pub(super) found: T,
    /// How often it gave its processor up, which is what waiting for a lock would look like.
    pub(super) waits: f64,
    /// Blocks a second that the other thread changed, of its processor.
    pub(super) rate: f64,
}

impl<T> Beside<T> {
    /// Reads.
    ///
    /// # Errors
    /// If `read` fails, or a block was turned away.
    pub(super) fn events(
        index: &Index,
        read: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<Self> {
        let cores = affinity::cores()?;
        let (for_events, for_reads) = (cores[0], cores[cores.len() - 1]);
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let events = {
                let _pinned = pin(for_events)?;
                let change = || Churn::new().rate(index, || !is_over.load(Ordering::Relaxed));
                thread::Builder::new()
                    .name("bench-events".to_owned())
                    .spawn_scoped(scope, change)?
            };
            let _pinned = pin(for_reads)?;
            let before = given_up();
            let found = read();
            let after = given_up();
            is_over.store(true, Ordering::Relaxed);
            let rate = events.join().ok().context("the thread with the events panicked")??;
            #[expect(clippy::cast_precision_loss, reason = "few")]
            let waits = (after? - before?) as f64;
            Ok(Self { found: found?, waits, rate })
        })
    }
}

/// How often this thread gave its processor up of its own accord.
fn given_up() -> anyhow::Result<i64> {
    Ok(getrusage(UsageWho::RUSAGE_THREAD)?.voluntary_context_switches())
}

/// Measures.
///
/// # Errors
/// Something was left out.
pub fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let world = World::new(if effort.quick { 8192 } else { 60_000 });
    let mut turns = effort.of(300, 50);
    let alone = Churn::new().rate(&world.index, || {
        turns -= 1;
        turns > 0
    })?;
    let fleet = world.fleet();
    let chains = Chains { router: &world.prompt, ..Chains::default() };
    let asked = Beside::events(&world.index, || {
        let mut query = Query::new();
        for _ in 0..effort.of(300_000, 50_000) {
            core::hint::black_box(query.ask(&world.index, &fleet, &chains));
        }
        Ok(())
    })?;
    let text = |rate: f64| format!("{:.2} M", rate / 1e6);
    report.note("events, blocks a second of a processor, alone", text(alone));
    report.note("the same while somebody asks all the time", text(asked.rate));
    let id = "router-ingest-blocks-per-second";
    report.bar(Bar::at_least(id, alone.min(asked.rate), BLOCKS_PER_SECOND));
    Ok(())
}
