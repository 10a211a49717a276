//! Bar: puts of 64 × 4 MiB until they are on the device, and cold gets of the same, against foyer in a process of its own
//! and LMCache's `raw_block`. A peer that is not there leaves its bars without a number, and so short.

use anyhow::Context as _;
use tempfile::TempDir;

use super::blocks::{self, Bytes};
use super::pace::Pace;
use super::tier::{self, Tier};
use crate::bar::Bar;
use crate::peer::{Kind, Peer};
use crate::report::Report;
use crate::suite::Effort;

const LEN_BYTES: usize = 4 << 20;
const BLOCKS: u64 = 64;
const ARENA: &str = "1G";
/// Ahead of it.
const BOUND: f64 = 1.0;

/// A peer, if it is there, its folder, and what it and we reached.
#[derive(Debug)]
struct Rival {
    kind: Kind,
    peer: Option<Peer>,
    puts: Pace,
    gets: Pace,
    _folder: TempDir,
}

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let rounds = effort.of(effort.pairs(), 5) as u64;
    // As much again stays free, so that nobody has to make room.
    let capacity_bytes = 2 * rounds * BLOCKS * LEN_BYTES as u64;
    let mut rivals = Kind::ALL
        .into_iter()
        .map(|kind| Rival::start(kind, capacity_bytes))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let region = capacity_bytes.to_string();
    let tier = Tier::beside_fio(ARENA, &region)?;
    puts(&tier, &mut rivals, rounds)?;
    gets(&tier, &mut rivals, rounds)?;
    for rival in &rivals {
        rival.report(report);
    }
    Ok(())
}

fn puts(tier: &Tier, rivals: &mut [Rival], rounds: u64) -> anyhow::Result<()> {
    let daemon = tier.start()?;
    let client = daemon.client("kvd-bench");
    let sources = blocks::sources(LEN_BYTES);
    // Ours begins with files that are written, as theirs do.
    let lap = 2 * rounds * BLOCKS;
    blocks::fill(&daemon, &client, lap..2 * lap, LEN_BYTES, Bytes::Given(&sources))?;
    client.clear(kvd_client::ClearScope::Everything)?;
    tier::until(&daemon, "room on the device", |figures| figures.get("disk_entries") == 0)?;
    for round in 0..rounds {
        let first = round * BLOCKS;
        let numbers = first..first + BLOCKS;
        let ours = blocks::spill(&daemon, &client, numbers, LEN_BYTES, Bytes::Given(&sources))?;
        for rival in rivals.iter_mut() {
            if let Some(peer) = &mut rival.peer {
                let theirs =
                    peer.put(first, BLOCKS).with_context(|| rival.kind.as_str().to_owned())?;
                rival.puts.add(speed(ours), speed(theirs));
            }
        }
    }
    daemon.stop()
}

fn gets(tier: &Tier, rivals: &mut [Rival], rounds: u64) -> anyhow::Result<()> {
    let daemon = tier.start()?;
    let client = daemon.client("kvd-bench");
    client.attach().context("attaching")?;
    for peer in rivals.iter_mut().filter_map(|rival| rival.peer.as_mut()) {
        peer.reopen()?;
    }
    for round in 0..rounds {
        let first = round * BLOCKS;
        let (ours, views) = blocks::fetch(&client, first..first + BLOCKS)?;
        drop(views);
        for rival in rivals.iter_mut() {
            if let Some(peer) = &mut rival.peer {
                let theirs =
                    peer.get(first, BLOCKS).with_context(|| rival.kind.as_str().to_owned())?;
                rival.gets.add(speed(ours), speed(theirs));
            }
        }
    }
    daemon.stop()
}

fn speed(seconds: f64) -> f64 {
    (BLOCKS * LEN_BYTES as u64) as f64 / seconds
}

impl Rival {
    fn start(kind: Kind, capacity_bytes: u64) -> anyhow::Result<Self> {
        let folder = tier::folder(kind.as_str())?;
        let peer = Peer::start(kind, folder.path(), capacity_bytes, LEN_BYTES)?;
        Ok(Self { kind, peer, puts: Pace::default(), gets: Pace::default(), _folder: folder })
    }

    fn report(&self, report: &mut Report) {
        let name = self.kind.as_str();
        if self.peer.is_none() {
            report.note(format!("{name} is not there"), "nothing to compare with");
        }
        for (what, pace) in [("put", &self.puts), ("get", &self.gets)] {
            if self.peer.is_some() {
                let [ours, theirs] = pace.texts();
                report.compare(
                    format!("{what}, 64 × 4 MiB, against {name}"),
                    ours,
                    theirs,
                    pace.ratio(),
                );
            }
            // With pages of 2 MiB it is another configuration than the one its users have.
            if self.kind != Kind::RawBlockHuge {
                report.bar(Bar::at_least(format!("l3.peers.{name}.{what}"), pace.ratio(), BOUND));
            }
        }
    }
}
