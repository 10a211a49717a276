//! Bar: one hit, one client. The round trip of a get against a bare tokio ping-pong with frames of the same sizes.

use anyhow::{Context as _, bail};
use kvd_proto::v1::get::Get;
use kvd_proto::v1::{Reply, Request};

use super::Effort;
use super::round_trip::{self, Pairs, Place, Stage};
use crate::bar::Bar;
use crate::keys::NAMESPACE;
use crate::patience::PATIENCE;
use crate::report::Report;

/// p50 and p99, each against the floor's.
const BOUNDS: [f64; 2] = [1.5, 3.0];

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    for (index, place) in round_trip::places()?.into_iter().enumerate() {
        // Both ends on one core is what counts: across cores, the machine's wake-ups drown everything else.
        measure(effort, place, index == 0, report)?;
    }
    Ok(())
}

fn measure(effort: Effort, place: Place, counts: bool, report: &mut Report) -> anyhow::Result<()> {
    let mut stage = Stage::set(place)?;
    let trips = if counts { effort.of(20_000, 4_000) } else { effort.of(3_000, 1_000) };
    let (mut modern, mut reference) = (Pairs::default(), Pairs::default());
    let (mut released, mut blocking) = (Pairs::default(), Pairs::default());
    let [fetch_sizes, get_sizes] = [round_trip::fetch_sizes(1), round_trip::get_sizes()];
    for _ in 0..effort.pairs() {
        let bare = stage.tokio.sample(fetch_sizes, trips)?;
        let [fetched, cycles] = fetches(&stage, trips)?;
        modern.add(fetched, bare.clone());
        released.add(cycles, bare.clone());
        blocking.add(stage.blocking.sample(fetch_sizes, trips)?, bare);
        let bare = stage.tokio.sample(get_sizes, trips)?;
        reference.add(gets(&mut stage, trips)?, bare);
    }
    for (what, pairs) in [
        ("get, protocol 2", &modern),
        ("get and release, protocol 2", &released),
        ("get, protocol 1", &reference),
        ("bare blocking threads", &blocking),
    ] {
        let [ours, floor] = pairs.texts();
        report.compare(
            format!("{what}, {}: p50 / p99", place.name),
            ours,
            floor,
            pairs.ratios()[0],
        );
    }
    if counts {
        for (id, pairs) in [("v2", &modern), ("v1", &reference)] {
            for (which, ratio) in ["p50", "p99"].into_iter().zip(pairs.ratios()).enumerate() {
                let (share, ratio) = ratio;
                report.bar(Bar::at_most(format!("l2.get.{id}.{share}"), ratio, BOUNDS[which]));
            }
        }
    }
    Ok(())
}

/// Fetches of one block each: the calls alone, and with the return of the lease.
fn fetches(stage: &Stage, trips: usize) -> anyhow::Result<[Vec<f64>; 2]> {
    let mut calls = Vec::with_capacity(trips);
    let cycles = round_trip::sample(trips, |index| {
        let begun = std::time::Instant::now();
        let key = &stage.keys[index % stage.keys.len()];
        let answer = stage.client.fetch(NAMESPACE, &[key], false, PATIENCE);
        calls.push(begun.elapsed().as_secs_f64() * 1e6);
        let found = answer.items.first().context("an answer without items")?;
        if let Err(reason) = found {
            bail!("a stored block was missed: {reason} ({:?})", answer.trouble);
        }
        Ok(())
    })?;
    Ok([calls, cycles])
}

fn gets(stage: &mut Stage, trips: usize) -> anyhow::Result<Vec<f64>> {
    let Stage { reference, keys, .. } = stage;
    round_trip::sample(trips, |index| {
        let key = &keys[index % keys.len()];
        match reference.ask(&Request::Get(Get { key, namespace: NAMESPACE }))? {
            Reply::GetShared(_) => Ok(()),
            other => bail!("a stored block was answered with {other:?}"),
        }
    })
}
