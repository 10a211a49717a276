//! Events a second on one thread, from their bytes to the index.

use std::time::Duration;

use anyhow::ensure;
use nix::time::{ClockId, clock_gettime};
use router_core::fold::{EngineView, Moment};
use router_core::index::Index;

use super::hosts::{World, engine, removed, stored};
use crate::bar::Bar;
use crate::report::Report;
use crate::suite::Effort;

/// Blocks of one prompt, and of one event.
const PROMPT: u32 = 256;
/// Prompts that come and go again.
const PROMPTS: u64 = 64;
/// A million a second.
const BLOCKS_PER_SECOND: f64 = 1e6;

/// A worker whose prompts come and go: payloads made beforehand, stored, removed again from their ends.
#[derive(Debug)]
pub struct Churn {
    view: EngineView,
    payloads: Vec<(Vec<u8>, u64)>,
}

impl Default for Churn {
    fn default() -> Self {
        Self::new()
    }
}

impl Churn {
    /// A worker that is on none of the hosts.
    #[must_use]
    pub fn new() -> Self {
        let number = |prompt: u64| 1 << 60 | prompt;
        let blocks = u64::from(PROMPT);
        let come = (0..PROMPTS).map(|prompt| (stored(number(prompt), 0..PROMPT), blocks));
        let go = (0..PROMPTS).map(|prompt| (removed(number(prompt), 0..PROMPT), blocks));
        Self { view: engine(99, 0), payloads: come.chain(go).collect() }
    }

    /// Everything comes and goes once; returns the number of blocks that did.
    pub fn turn(&mut self, index: &Index) -> u64 {
        for (payload, _) in &self.payloads {
            self.view.live(index, None, payload, Moment(0));
        }
        self.payloads.iter().map(|(_, blocks)| blocks).sum()
    }

    /// Leaves the index.
    pub fn leave(&mut self, index: &Index) {
        self.view.leave(index);
    }
}

/// Time that this thread had a processor, in seconds: others may run on the machine.
pub(super) fn on_processor() -> anyhow::Result<f64> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(Duration::from(time).as_secs_f64())
}

/// Measures.
///
/// # Errors
/// Something was left out.
pub fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let world = World::new(if effort.quick { 8192 } else { 60_000 });
    let mut churn = Churn::new();
    let mut blocks = churn.turn(&world.index);
    let before = blocks;
    let begun = on_processor()?;
    for _ in 0..effort.of(300, 50) {
        blocks += churn.turn(&world.index);
    }
    let seconds = on_processor()? - begun;
    ensure!(churn.view.counts().turned_away == 0, "blocks were turned away");
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let rate = (blocks - before) as f64 / seconds;
    report.note("events, blocks a second of a processor", format!("{:.2} M", rate / 1e6));
    report.bar(Bar::at_least("router-ingest-blocks-per-second", rate, BLOCKS_PER_SECOND));
    Ok(())
}
