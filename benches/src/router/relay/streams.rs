//! 200 and 1 000 streams of events at once: as fast as they go, and at a pace. Worker, nginx and router in turn.
//!
//! How many events pass tells proxies apart only where it is the proxy that has no time left. On two cores it is worker and
//! clients, who share one; what is compared then is the processor time that each proxy needs for an event.

use std::time::Instant;

use anyhow::ensure;

use super::door::{Door, Stage, busy_s};
use super::load::{BEGUN, Load, OVER, Outcome};
use crate::affinity::pin;
use crate::bar::Bar;
use crate::percentile;
use crate::report::Report;
use crate::role::{Helper, Role};
use crate::suite::Effort;

/// Streams at once, and how far apart their events are at a pace, in microseconds: 10 000 and 20 000 events a second.
const LOADS: [(u32, u32); 2] = [(200, 20_000), (1_000, 50_000)];
/// Events of a stream, as fast as they go and at a pace.
const EVENTS: [u32; 2] = [64, 32];
/// What a plain proxy does.
const VERSUS_NGINX: f64 = 0.9;
/// From here on it is the proxy that events wait for.
const FULL: f64 = 0.9;
/// What the router may add between two events.
const ADDED_MS: f64 = 2.0;

/// What came of a load, and how busy who was, in processors: worker, proxy, clients.
#[derive(Debug)]
struct Run {
    outcome: Outcome,
    seconds: f64,
    busy: [f64; 3],
}

/// Measures.
///
/// # Errors
/// Something is missing or fails.
pub fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let stage = Stage::set(|worker| {
        let options = ["--router-policy", "round-robin", "--worker", &format!("http://{worker}")];
        Ok(vec![options.map(str::to_owned).to_vec()])
    })?;
    let rounds = effort.of(effort.pairs(), 3);
    let window_ms = if effort.quick { 700 } else { 2_000 };
    let (mut whole, mut spoiled) = (0, 0);
    for (streams, pace_us) in LOADS {
        for (events, interval_us) in [(EVENTS[0], 0), (EVENTS[1], pace_us)] {
            let mut runs = [const { Vec::new() }; 3];
            for _ in 0..rounds {
                for (door, runs) in stage.doors.iter().zip(&mut runs) {
                    let address = door.address;
                    let load = Load { address, streams, events, interval_us, window_ms };
                    runs.push(put(&stage, door, load)?);
                }
            }
            for run in runs.iter().flatten() {
                whole += run.outcome.whole;
                spoiled += run.outcome.spoiled;
            }
            if interval_us == 0 {
                as_fast_as_they_go(streams, &runs, report);
            } else {
                at_a_pace(streams, &runs, report);
            }
            tell_who_was_busy(&stage, &runs, report);
        }
    }
    ensure!(whole > 0, "no stream came to its end");
    report.note("streams that were compared byte by byte", whole.to_string());
    report.bar(Bar::at_most("router-streams-spoiled", f64::from(u32::try_from(spoiled)?), 0.0));
    Ok(())
}

fn put(stage: &Stage, door: &Door, load: Load) -> anyhow::Result<Run> {
    let mut clients = {
        let _pinned = pin(stage.cores.clients)?;
        Helper::start(&Role::StreamLoad(load))?
    };
    let pids = [Some(stage.worker.pid()), door.pid(), Some(clients.pid())];
    let busy = || -> anyhow::Result<Vec<f64>> {
        pids.iter().map(|pid| pid.map_or(Ok(0.0), busy_s)).collect()
    };
    ensure!(clients.listen()? == BEGUN, "clients that do not begin");
    let (begun, before) = (Instant::now(), busy()?);
    ensure!(clients.listen()? == OVER, "clients that do not end");
    let (seconds, after) = (begun.elapsed().as_secs_f64(), busy()?);
    let outcome = serde_json::from_str(&clients.listen()?)?;
    let busy = [0, 1, 2].map(|who| (after[who] - before[who]) / seconds);
    Ok(Run { outcome, seconds, busy })
}

impl Run {
    fn events_per_s(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "millions")]
        let events = self.outcome.events as f64;
        events / self.seconds
    }

    /// Time that the proxy needs for an event.
    fn proxy_us(&self) -> f64 {
        self.busy[1] / self.events_per_s() * 1e6
    }
}

/// The middle of a figure.
fn middle(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
    percentile::median(&mut runs.iter().map(figure).collect::<Vec<_>>())
}

/// The middle of what one figure is to the other of the same round.
fn middle_of_pairs(runs: [&[Run]; 2], figure: impl Fn(&Run, &Run) -> f64) -> f64 {
    let pairs = runs[0].iter().zip(runs[1]);
    percentile::median(&mut pairs.map(|(ours, theirs)| figure(ours, theirs)).collect::<Vec<_>>())
}

fn as_fast_as_they_go(streams: u32, runs: &[Vec<Run>; 3], report: &mut Report) {
    let [direct, nginx, router] = runs;
    let rate = |runs: &[Run]| format!("{:.0}/s", middle(runs, Run::events_per_s));
    let by_events = |ours: &Run, theirs: &Run| ours.events_per_s() / theirs.events_per_s();
    let ratio = middle_of_pairs([router, nginx], by_events);
    report.note(format!("events of {streams} streams, direct"), rate(direct));
    let what = format!("events of {streams} streams (nginx)");
    report.compare(what, rate(router), rate(nginx), ratio);
    let [ours, theirs] = [router, nginx].map(|runs| middle(runs, Run::proxy_us));
    report.compare(
        format!("time on processors for one of {streams} streams' events (nginx)"),
        format!("{ours:.1} us"),
        format!("{theirs:.1} us"),
        ours / theirs,
    );
    let is_full = [router, nginx].iter().all(|runs| middle(runs, |run| run.busy[1]) >= FULL);
    let by_time = |ours: &Run, theirs: &Run| theirs.proxy_us() / ours.proxy_us();
    let ratio = if is_full { ratio } else { middle_of_pairs([router, nginx], by_time) };
    report.bar(Bar::at_least(format!("router-streams-{streams}-vs-nginx"), ratio, VERSUS_NGINX));
}

fn at_a_pace(streams: u32, runs: &[Vec<Run>; 3], report: &mut Report) {
    let [direct, nginx, router] = runs;
    let delays = |runs: &[Run]| {
        let of = |which: usize| middle(runs, |run| run.outcome.delay_us[which] / 1e3);
        format!("{:.2} / {:.2} ms", of(0), of(1))
    };
    let rate = middle(direct, Run::events_per_s);
    let what = format!("{rate:.0} events/s of {streams} streams, under way, direct, p50 / p99");
    report.note(what, delays(direct));
    let cost = middle_of_pairs([router, nginx], |ours, theirs| ours.proxy_us() / theirs.proxy_us());
    report.compare("the same (nginx), and time on processors", delays(router), delays(nginx), cost);
    let added = |door: &[Run]| {
        middle_of_pairs([door, direct], |ours, theirs| {
            (ours.outcome.stretch_us - theirs.outcome.stretch_us) / 1e3
        })
    };
    let (ours, theirs) = (added(router), added(nginx));
    report.compare(
        format!("added between events of {streams} streams, p99 (nginx)"),
        format!("{ours:.2} ms"),
        format!("{theirs:.2} ms"),
        ours / theirs,
    );
    let id = format!("router-streams-{streams}-added-inter-token-p99-ms");
    report.bar(Bar::at_most(id, ours, ADDED_MS));
}

fn tell_who_was_busy(stage: &Stage, runs: &[Vec<Run>; 3], report: &mut Report) {
    for (door, runs) in stage.doors.iter().zip(runs) {
        let [worker, proxy, clients] = [0, 1, 2].map(|who| middle(runs, |run| run.busy[who] * 1e2));
        report.note(
            format!("  {}: worker, proxy, clients busy", door.name),
            format!("{worker:.0} %, {proxy:.0} %, {clients:.0} %"),
        );
    }
}
