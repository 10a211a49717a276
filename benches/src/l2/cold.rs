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

/// The first batches of a round do not count: what the way before has left in the caches, changed
/// lines above all, is paid for by them.
const SETTLING: usize = 2;

/// Two arenas with as many blocks, and buffers that both are copied into or from.
#[derive(Debug)]
pub struct Stage {
    /// A client of the daemon.
    pub client: Client,
    /// The floor's arena.
    pub own: PrivateArena,
    /// Room for a batch in this process's own memory.
    pub buffer: Buffer,
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
            buffer: Buffer::new(BATCH * BLOCK_BYTES),
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

/// Memory that begins on a page, as the pinned buffers of engines do. Where a buffer begins matters to some ways to copy:
/// blocks begin on a page, and a destination that is shifted against its source by a part of a cache line costs
/// `rep movsb` a fifth.
#[derive(Clone, Debug)]
pub struct Buffer {
    bytes: Vec<u8>,
    begin: usize,
}

const PAGE_BYTES: usize = 4096;

impl Buffer {
    fn new(len: usize) -> Self {
        let bytes = vec![1; len + PAGE_BYTES];
        let begin = bytes.as_ptr().addr().wrapping_neg() % PAGE_BYTES;
        Self { bytes, begin }
    }

    /// The places of a batch's blocks, to copy into.
    pub fn blocks_mut(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.bytes[self.begin..].chunks_exact_mut(BLOCK_BYTES)
    }

    /// One of these places, to copy from.
    #[must_use]
    pub fn block(&self, index: usize) -> &[u8] {
        &self.bytes[self.begin + index * BLOCK_BYTES..][..BLOCK_BYTES]
    }
}

/// Seconds that ours and each way of the floor took for a batch.
#[derive(Clone, Debug)]
pub struct Batches {
    ours: Vec<f64>,
    floor: Vec<Vec<f64>>,
}

impl Batches {
    /// Measures rounds over all blocks: in each, ours and then one way of the floor after the other
    /// copies every batch. `copy` is told the way, none for ours.
    ///
    /// # Errors
    /// The first of a copy.
    pub fn measure(
        stage: &mut Stage,
        rounds: usize,
        mut copy: impl FnMut(&mut Stage, Option<Way>, &[usize]) -> anyhow::Result<f64>,
    ) -> anyhow::Result<Self> {
        let ways = stage.ways.clone();
        let mut measured = Self { ours: Vec::new(), floor: vec![Vec::new(); ways.len()] };
        for round in 0..rounds {
            let batches = Stage::batches(round);
            let sides = std::iter::once((None, &mut measured.ours))
                .chain(ways.iter().copied().map(Some).zip(&mut measured.floor));
            for (way, side) in sides {
                for (index, batch) in batches.iter().enumerate() {
                    let seconds = copy(stage, way, batch)?;
                    if index >= SETTLING {
                        side.push(seconds);
                    }
                }
            }
        }
        Ok(measured)
    }

    /// Median over all batches of our speed divided by that of the way that is fastest by its
    /// median.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let pairs = self.ours.iter().zip(self.fastest());
        percentile::median(&mut pairs.map(|(ours, floor)| floor / ours).collect::<Vec<_>>())
    }

    /// Our speed and the floor's, each way for itself, for people.
    #[must_use]
    pub fn texts(&self, ways: &[Way]) -> [String; 2] {
        let bytes = (BATCH * BLOCK_BYTES) as f64;
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
        let (ours, floor) = (vec![2.0; 3], vec![vec![1.0; 3], vec![3.0; 3]]);
        let batches = Batches { ours, floor };
        assert!((batches.ratio() - 0.5).abs() < 1e-9);
    }

    #[test]
    fn every_block_is_in_one_batch() {
        let mut blocks: Vec<usize> = Stage::batches(3).concat();
        blocks.sort_unstable();
        assert_eq!(blocks, (0..BLOCKS).collect::<Vec<_>>());
    }
}
