//! Bars: the daemon is killed at any moment of a random load, over and over, and started again on the same directory.
//! No byte that comes back is wrong, nothing comes back that was cleared, had ended or was never there; with strict
//! durability no acknowledged block is lost and no replaced one comes back.

pub mod history;
pub mod writer;

use std::time::Duration;

use anyhow::bail;

use self::history::Verdict;
use self::writer::{Tally, Writer};
use super::tier::{self, Tier};
use crate::bar::Bar;
use crate::content::Content;
use crate::daemon::Daemon;
use crate::patience;
use crate::report::Report;
use crate::suite::Effort;

const WRITERS: u64 = 3;
/// Longest time from the beginning of the load to the kill.
const LOAD_MS: u64 = 400;
/// One round in so many has no load: the daemon is killed while it starts.
const STARTS: u64 = 8;
const START_MS: u64 = 60;

/// What is varied.
struct Setting {
    name: &'static str,
    arena: &'static str,
    /// For strict so large that nothing has to be evicted: what is missing is lost.
    region: &'static str,
    keys: u64,
}

const SETTINGS: [Setting; 2] = [
    Setting { name: "relaxed", arena: "64M", region: "64M", keys: 400 },
    Setting { name: "strict", arena: "64M", region: "1G", keys: 150 },
];

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let rounds = effort.of(200, 20) as u64;
    for setting in SETTINGS {
        let (tally, acknowledged) = torment(&setting, rounds)?;
        let name = setting.name;
        report.note(
            format!("{rounds} kills, {name}"),
            format!("{acknowledged} blocks acknowledged, {} came back", tally.found),
        );
        let mut bars = vec![
            ("wrong", tally.wrong, Verdict::Wrong),
            ("phantoms", tally.phantoms, Verdict::Phantom),
        ];
        if name == "strict" {
            bars.extend([
                ("lost", tally.lost, Verdict::Lost),
                ("stale", tally.stale, Verdict::Stale),
            ]);
        } else {
            report.note("  replaced values that came back", tally.stale.to_string());
        }
        for (what, count, verdict) in bars {
            if let Some(example) = tally.examples.get(&verdict) {
                report.note(format!("  {what}"), example.clone());
            }
            report.bar(Bar::at_most(format!("l3.kill.{name}.{what}"), count as f64, 0.0));
        }
        // Without blocks that came back, nothing was shown.
        report.bar(Bar::at_least(format!("l3.kill.{name}.found"), tally.found as f64, 1.0));
    }
    Ok(())
}

fn torment(setting: &Setting, rounds: u64) -> anyhow::Result<(Tally, u64)> {
    let tier = Tier::new(&[
        "--max-bytes",
        setting.arena,
        "--long-bytes",
        setting.region,
        "--durability",
        setting.name,
    ])?;
    let random = Content::of(setting.name.as_bytes());
    let mut writers: Vec<Writer> =
        (0..WRITERS).map(|index| Writer::new(index, setting.keys, rounds)).collect();
    let mut tally = Tally::default();
    for round in 0..rounds {
        let drawn = random.word(usize::try_from(round)?);
        if round % STARTS == STARTS - 1 {
            let daemon = tier.launch()?;
            patience::pause(Duration::from_millis(drawn % START_MS));
            drop(daemon);
        }
        let daemon = tier.start()?;
        for writer in &mut writers {
            tally.add(writer.check(&daemon.socket())?);
        }
        load(daemon, &mut writers, Duration::from_millis(drawn % LOAD_MS))?;
    }
    let daemon = tier.start()?;
    for writer in &mut writers {
        tally.add(writer.check(&daemon.socket())?);
    }
    tier::until(&daemon, "the figures", |_| true)?;
    daemon.stop()?;
    Ok((tally, writers.iter().map(|writer| writer.acknowledged).sum()))
}

/// Lets the writers run for so long, then kills the daemon.
fn load(daemon: Daemon, writers: &mut [Writer], time: Duration) -> anyhow::Result<()> {
    let socket = daemon.socket();
    std::thread::scope(|scope| {
        let start = |writer| {
            let socket = &socket;
            scope.spawn(move || Writer::run(writer, socket))
        };
        let threads: Vec<_> = writers.iter_mut().map(start).collect();
        patience::pause(time);
        // Dropping it kills it.
        drop(daemon);
        for thread in threads {
            thread.join().unwrap_or_else(|_panic| bail!("a writer panicked"))?;
        }
        Ok(())
    })
}
