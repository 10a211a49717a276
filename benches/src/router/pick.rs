//! Who of 64 targets holds what of a prompt of 2 048 blocks: time of one question, alone and while events come in.

use anyhow::ensure;
use router_core::index::{Chains, Fleet, Index, Query};

use super::hosts::{PROMPT_BLOCKS, World};
use super::ingest::{Beside, on_processor};
use crate::bar::Bar;
use crate::percentile;
use crate::report::Report;
use crate::suite::Effort;

/// Half of what a pick may take; the score gets the other half.
const QUESTION_US: f64 = 50.0;
/// More than any cache holds.
const OTHER_BYTES: usize = 64 << 20;
/// Blocks of each worker besides the prompt, quick and thorough.
const OTHER_BLOCKS: (u32, u32) = (60_000, 8_192);

/// Measures.
///
/// # Errors
/// The answers are wrong.
pub fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let blocks = if effort.quick { OTHER_BLOCKS.1 } else { OTHER_BLOCKS.0 };
    let world = World::new(blocks);
    ensure!(world.is_whole(), "the index has not everything");
    let fleet = world.fleet();
    let rounds = effort.of(100_000, 20_000);
    let chains = Chains { router: &world.prompt, ..Chains::default() };
    let mut query = Query::new();
    let answer = query.ask(&world.index, &fleet, &chains);
    let last = answer.held(answer.len() - 1);
    ensure!(last.device_blocks == PROMPT_BLOCKS, "the last worker has all of it");
    let first = answer.held(0);
    let below: u32 = first.below().map(|run| run.end - run.start).sum();
    ensure!(first.device_blocks + below == PROMPT_BLOCKS * 3 / 4, "the disk has three quarters");

    let mut alone = questions(&world.index, &fleet, &chains, rounds, || {})?;
    // Between two picks a router does other things.
    let other = vec![1_u8; OTHER_BYTES];
    let mut cold = questions(&world.index, &fleet, &chains, rounds / 20, || {
        core::hint::black_box(other.iter().step_by(64).map(|byte| u64::from(*byte)).sum::<u64>());
    })?;
    let mut busy =
        Beside::events(&world.index, || questions(&world.index, &fleet, &chains, rounds, || {}))?;
    let nobody: Vec<u64> = world.prompt.iter().map(|name| !name).collect();
    let chains = Chains { router: &nobody, ..Chains::default() };
    let mut unknown = questions(&world.index, &fleet, &chains, rounds, || {})?;
    for (what, times) in [
        ("alone", &mut alone),
        ("with cold caches", &mut cold),
        ("while events come in", &mut busy.found),
        ("of a new prompt", &mut unknown),
    ] {
        let [median, late] = [0.5, 0.99].map(|share| percentile::of(times, share));
        report.note(format!("question {what}, p50 / p99"), format!("{median:.1} / {late:.1} us"));
    }
    report.note("events meanwhile, blocks a second", format!("{:.2} M", busy.rate / 1e6));
    report.note("index, bytes", world.index.bytes().to_string());
    let late = [&mut alone, &mut busy.found].map(|times| percentile::of(times, 0.99));
    report.bar(Bar::at_most("router-question-p99-us", late[0], QUESTION_US));
    report.bar(Bar::at_most("router-question-beside-events-p99-us", late[1], QUESTION_US));
    report.bar(Bar::at_most("router-question-waits", busy.waits, 0.0));
    Ok(())
}

/// Times of questions, in microseconds of a processor: others may run on the machine. `between`: what is done before each
/// of them.
fn questions(
    index: &Index,
    fleet: &Fleet,
    chains: &Chains<'_>,
    rounds: usize,
    between: impl Fn(),
) -> anyhow::Result<Vec<f64>> {
    let mut query = Query::new();
    let mut times = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        between();
        let begun = on_processor()?;
        core::hint::black_box(query.ask(index, fleet, chains));
        times.push((on_processor()? - begun) * 1e6);
    }
    Ok(times)
}
