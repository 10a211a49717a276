//! A host: memory and disks that its workers share, and the links on the way to them.

use super::feed::HostFeed;
use super::lru::Lru;
use super::request::BLOCK_TOKENS;
use super::truth::{BYTES_PER_TOKEN, HostTruth, L2_BLOCKS_PER_WORKER, L3_BLOCKS_PER_WORKER};

/// Bytes of a block.
pub const BLOCK_BYTES: f64 = BYTES_PER_TOKEN * BLOCK_TOKENS as f64;
const LATENCY_SECONDS: f64 = 0.000_5;

/// A link that serves one load after the other.
#[derive(Clone, Copy, Debug)]
struct Link {
    bytes_per_second: f64,
    free_at: f64,
}

impl Link {
    const fn new(bytes_per_second: f64) -> Self {
        Self { bytes_per_second, free_at: 0.0 }
    }

    /// When so many bytes have moved that are asked for now.
    fn end(&self, blocks: usize, now: f64) -> f64 {
        if blocks == 0 {
            return now;
        }
        self.free_at.max(now) + blocks as f64 * BLOCK_BYTES / self.bytes_per_second
    }
}

/// A host.
#[derive(Debug)]
pub struct Host {
    l2: Lru,
    l3: Lru,
    l2_blocks: usize,
    l3_blocks: usize,
    memory: Link,
    disk: Link,
}

/// What is to be loaded for a prompt: blocks out of memory and off the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loadable {
    /// Out of memory.
    pub l2: usize,
    /// Off the disk.
    pub l3: usize,
}

impl Loadable {
    /// Both.
    #[must_use]
    pub const fn blocks(&self) -> usize {
        self.l2 + self.l3
    }
}

impl Host {
    /// A host with so many workers.
    #[must_use]
    pub fn new(truth: &HostTruth, workers: usize) -> Self {
        Self {
            l2: Lru::default(),
            l3: Lru::default(),
            l2_blocks: workers * L2_BLOCKS_PER_WORKER,
            l3_blocks: workers * L3_BLOCKS_PER_WORKER,
            memory: Link::new(truth.memory),
            disk: Link::new(truth.disk),
        }
    }

    /// What it has of these blocks, from the first one on.
    #[must_use]
    pub fn loadable(&self, blocks: &[u64]) -> Loadable {
        let mut found = Loadable::default();
        for block in blocks {
            if self.l2.contains(*block) {
                found.l2 += 1;
            } else if self.l3.contains(*block) {
                found.l3 += 1;
            } else {
                break;
            }
        }
        found
    }

    /// When a load would be done that is asked for now. Blocks off the disk pass through memory while they come.
    #[must_use]
    pub fn loaded_at(&self, loadable: Loadable, now: f64) -> f64 {
        if loadable.blocks() == 0 {
            return now;
        }
        let disk = self.disk.end(loadable.l3, now);
        LATENCY_SECONDS + self.memory.end(loadable.blocks(), now).max(disk)
    }

    /// Loads; the time when that is done. What is loaded is used now, and in memory from now on.
    pub fn load(
        &mut self,
        blocks: &[u64],
        loadable: Loadable,
        now: f64,
        feed: &mut HostFeed,
    ) -> f64 {
        let done = self.loaded_at(loadable, now);
        self.memory.free_at = self.memory.end(loadable.blocks(), now);
        if loadable.l3 > 0 {
            self.disk.free_at = self.disk.end(loadable.l3, now);
        }
        self.store(&blocks[..loadable.blocks()], feed);
        done
    }

    /// Blocks come into memory, or are used again; others go to the disk for them, and from there nowhere.
    pub fn store(&mut self, blocks: &[u64], feed: &mut HostFeed) {
        // The last ones first, so that a prompt's end is evicted before its beginning.
        for block in blocks.iter().rev() {
            if self.l2.touch(*block) {
                feed.stored_in_memory(*block);
            }
        }
        while self.l2.len() > self.l2_blocks {
            let Some(block) = self.l2.evict() else { break };
            if self.l3.touch(block) {
                feed.stored_on_disk(block);
            }
            feed.removed_from_memory(block);
        }
        while self.l3.len() > self.l3_blocks {
            let Some(block) = self.l3.evict() else { break };
            feed.removed_from_disk(block);
        }
    }
}
