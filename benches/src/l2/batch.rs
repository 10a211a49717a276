//! Bar: 64 hits at once against the ping-pong of a single hit: looked up and leased in one call, and located first, as
//! a scheduler does, then leased by a second call.

use anyhow::bail;

use super::Effort;
use super::round_trip::{self, Pairs, Place, Stage};
use crate::bar::Bar;
use crate::keys::NAMESPACE;
use crate::patience::PATIENCE;
use crate::report::Report;

const KEYS: usize = 64;
/// Against a ping-pong with the frames of one key, p50.
const BOUND: f64 = 3.0;

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    for (index, place) in round_trip::places()?.into_iter().enumerate() {
        measure(effort, place, index == 0, report)?;
    }
    Ok(())
}

fn measure(effort: Effort, place: Place, counts: bool, report: &mut Report) -> anyhow::Result<()> {
    let stage = Stage::set(place)?;
    let trips = if counts { effort.of(10_000, 2_000) } else { effort.of(2_000, 500) };
    let (mut fetches, mut planned, mut same_size) =
        (Pairs::default(), Pairs::default(), Pairs::default());
    for _ in 0..effort.pairs() {
        let bare = stage.tokio.sample(round_trip::fetch_sizes(1), trips)?;
        fetches.add(look_ups(&stage, trips, false)?, bare.clone());
        planned.add(look_ups(&stage, trips, true)?, bare.clone());
        same_size.add(stage.tokio.sample(round_trip::fetch_sizes(KEYS as u64), trips)?, bare);
    }
    for (what, pairs) in [
        ("64 hits, located and leased", &fetches),
        ("locate 64, then lease 64", &planned),
        ("bare ping-pong, frames of 64 keys", &same_size),
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
        report.bar(Bar::at_most("l2.batch64.lease.p50", fetches.ratios()[0], BOUND));
        report.bar(Bar::at_most("l2.batch64.locate_lease.p50", planned.ratios()[0], BOUND));
    }
    Ok(())
}

/// Looks up batches; `planned`: first asks where the blocks are, as a scheduler does.
fn look_ups(stage: &Stage, trips: usize, planned: bool) -> anyhow::Result<Vec<f64>> {
    let keys: Vec<&[u8]> = stage.keys.iter().map(|key| key.as_slice()).collect();
    let batches: Vec<&[&[u8]]> = keys.chunks_exact(KEYS).collect();
    let mut last = None;
    round_trip::sample(trips, |index| {
        let batch = batches[index % batches.len()];
        if planned {
            let located = stage.client.locate(NAMESPACE, batch, false);
            if !located.items.iter().all(Result::is_ok) {
                bail!("a stored block was not located ({:?})", located.trouble);
            }
        }
        // The leases of the batch before go back here.
        let answer = last.insert(stage.client.fetch(NAMESPACE, batch, false, PATIENCE));
        if !answer.items.iter().all(Result::is_ok) {
            bail!("a stored block was missed ({:?})", answer.trouble);
        }
        Ok(())
    })
}
