//! A whole pick: who of 64 targets holds what of 2 048 blocks, and which one has the shortest expected time to the first
//! token. Engines that load all they can, and engines that load what pays, where a cut has to be found for each target.

use anyhow::ensure;
use router_core::account::{Placed, TargetLoad};
use router_core::index::{Chains, Fleet, Query};
use router_core::policy::KvAware;
use router_core::score::ettft::{Request, Target};
use router_core::score::{Speed, Way};

use super::hosts::{BLOCK_SIZE, PROMPT_BLOCKS, WORKERS, World};
use super::ingest::{Beside, on_processor};
use crate::bar::Bar;
use crate::percentile;
use crate::report::Report;
use crate::suite::Effort;

/// What a pick may take, without tokens.
const PICK_US: f64 = 100.0;

/// Measures.
///
/// # Errors
/// There is nobody to pick.
pub fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let world = World::new(if effort.quick { 8_192 } else { 60_000 });
    let fleet = world.fleet();
    let rounds = effort.of(20_000, 4000);
    for (what, is_cost_gated) in [("loads all", false), ("loads what pays", true)] {
        let way = Way {
            bytes_per_token: Some(131_072.0),
            is_pipelined: true,
            is_cost_gated,
            ..Way::default()
        };
        let mut alone = picks(&world, &fleet, &way, rounds)?;
        let mut busy = Beside::events(&world.index, || picks(&world, &fleet, &way, rounds))?;
        let mut late = [0.0; 2];
        for ((times, when), late) in [(&mut alone, ""), (&mut busy.found, " while events come in")]
            .into_iter()
            .zip(&mut late)
        {
            *late = percentile::of(times, 0.99);
            let median = percentile::median(times);
            let what = format!("pick{when}, {what}, p50 / p99");
            report.note(what, format!("{median:.1} / {late:.1} us"));
        }
        if is_cost_gated {
            report.bar(Bar::at_most("router-pick-p99-us", late[0], PICK_US));
            report.bar(Bar::at_most("router-pick-beside-events-p99-us", late[1], PICK_US));
            report.bar(Bar::at_most("router-pick-waits", busy.waits, 0.0));
        }
    }
    Ok(())
}

/// Times of picks, in microseconds of a processor: others may run on the machine.
fn picks(world: &World, fleet: &Fleet, way: &Way, rounds: usize) -> anyhow::Result<Vec<f64>> {
    let chains = Chains { router: &world.prompt, ..Chains::default() };
    let request =
        Request { prompt_tokens: f64::from(PROMPT_BLOCKS * BLOCK_SIZE), ..Request::default() };
    let mut loads = vec![TargetLoad::default(); fleet.len()];
    let mut in_flight = Vec::new();
    for (load, number) in loads.iter_mut().zip(0..) {
        let placed = Placed { work_tokens: f64::from(number * 1000), ..Placed::default() };
        in_flight.push(load.begin(placed, 0, None, 0.0));
    }
    let (mut query, mut picker) = (Query::new(), KvAware::new());
    let mut times = Vec::with_capacity(rounds);
    for seed in 0..rounds as u64 {
        let begun = on_processor()?;
        let ways = [*way; (u64::BITS / WORKERS) as usize];
        let answer = query.ask(&world.index, fleet, &chains);
        let targets = loads.iter().enumerate().map(|(number, load)| Target {
            held: answer.held(number),
            block_size: BLOCK_SIZE,
            way: ways.get(number / WORKERS as usize),
            speed: Speed::default(),
            load: load.load(64, &Speed::default(), 0.0),
            images_held: 0,
            is_last_of_session: false,
        });
        let pick = picker.pick(&request, targets, seed);
        ensure!(core::hint::black_box(pick).is_some(), "there is nobody to pick");
        times.push((on_processor()? - begun) * 1e6);
    }
    for (load, waiting) in loads.iter_mut().zip(in_flight) {
        load.abandon(None, waiting, 0.0);
    }
    Ok(times)
}
