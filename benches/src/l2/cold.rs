//! The stage for copies: blocks that no cache holds, in the daemon's arena and in one of this process's own.

use kvd_client::Client;

use super::{Effort, read, write};
use crate::daemon::Daemon;
use crate::floor::copy::{PrivateArena, Way};
use crate::keys;
use crate::machine;
use crate::percentile;
use crate::report::Report;

/// Bytes of a block.
pub const BLOCK_BYTES: usize = 4 << 20;
/// Blocks in one call.
pub const BATCH: usize = 16;
/// Blocks in each arena: many times what any cache holds.
const BLOCKS: usize = 160;

/// Two arenas with as many blocks, and buffers that both are copied into or from.
#[derive(Debug)]
pub struct Stage {
    /// A client of the daemon.
    pub client: Client,
    /// The floor's arena.
    pub own: PrivateArena,
    /// A buffer for a batch; warm.
    pub buffer: Vec<u8>,
    /// The ways of the floor.
    pub ways: Vec<Way>,
    daemon: Daemon,
}

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut stage = Stage::set()?;
    report.note(
        "pages of 2 MiB: daemon's arena",
        format!("{:.0} %", 100.0 * machine::huge_share(stage.daemon.pid())),
    );
    report.note("pages of the floor's arena", stage.own.page_kind());
    read::run(effort, &mut stage, report)?;
    write::run(effort, &mut stage, report)
}

impl Stage {
    fn set() -> anyhow::Result<Self> {
        let daemon = Daemon::start(&["--max-bytes", "1G"])?;
        let client = daemon.client("kvd-bench");
        keys::store(&client, 0..BLOCKS as u64, BLOCK_BYTES)?;
        let own = PrivateArena::new((BLOCKS * BLOCK_BYTES) as u64)?;
        Ok(Self {
            client,
            own,
            buffer: vec![1; BATCH * BLOCK_BYTES],
            ways: PrivateArena::ways(),
            daemon,
        })
    }

    /// All blocks in another order each round, in batches.
    #[must_use]
    pub fn batches(round: usize) -> Vec<Vec<usize>> {
        keys::shuffled(BLOCKS, round as u64).chunks_exact(BATCH).map(<[usize]>::to_vec).collect()
    }

    /// Where a block is in the floor's arena.
    #[must_use]
    pub const fn place(block: usize) -> u64 {
        (block * BLOCK_BYTES) as u64
    }
}

/// Seconds that ours and each way of the floor took for the same bytes, round by round.
#[derive(Clone, Debug)]
pub struct Rounds {
    ours: Vec<f64>,
    floor: Vec<Vec<f64>>,
}

impl Rounds {
    /// No round yet, of a floor with so many ways.
    #[must_use]
    pub fn new(ways: usize) -> Self {
        Self { ours: Vec::new(), floor: vec![Vec::new(); ways] }
    }

    /// Adds one round.
    pub fn add(&mut self, ours: f64, floor: &[f64]) {
        self.ours.push(ours);
        for (way, seconds) in self.floor.iter_mut().zip(floor) {
            way.push(*seconds);
        }
    }

    /// Median over all rounds of our speed divided by that of the way that was fastest in most.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let pairs = self.ours.iter().zip(self.fastest());
        percentile::median(&mut pairs.map(|(ours, floor)| floor / ours).collect::<Vec<_>>())
    }

    /// Our speed and the floor's, each way for itself, for people.
    #[must_use]
    pub fn texts(&self, ways: &[Way]) -> [String; 2] {
        let bytes = (BLOCKS / BATCH * BATCH * BLOCK_BYTES) as f64;
        let speed = |seconds: &Vec<f64>| bytes / percentile::median(&mut seconds.clone()) / 1e9;
        let named = self.floor.iter().zip(ways);
        let named = named.map(|(seconds, way)| format!("{way} {:.1}", speed(seconds)));
        let floor = named.collect::<Vec<_>>().join(", ");
        [format!("{:.1} GB/s", speed(&self.ours)), format!("{floor} GB/s")]
    }

    fn fastest(&self) -> &[f64] {
        let middle = |way: &&Vec<f64>| percentile::median(&mut (*way).clone());
        let fastest = self.floor.iter().min_by(|one, other| middle(one).total_cmp(&middle(other)));
        fastest.map_or(&[], Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_is_the_fastest_way() {
        let mut rounds = Rounds::new(2);
        for _ in 0..3 {
            rounds.add(2.0, &[1.0, 3.0]);
        }
        assert!((rounds.ratio() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn every_block_is_in_one_batch() {
        let mut blocks: Vec<usize> = Stage::batches(3).concat();
        blocks.sort_unstable();
        assert_eq!(blocks, (0..BLOCKS).collect::<Vec<_>>());
    }
}
