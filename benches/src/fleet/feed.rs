//! What publishers say, and when it arrives: later.

use std::collections::VecDeque;

use super::request::Chain;
use super::truth::EVENTS_LATE_SECONDS;

/// Something that a worker says.
#[derive(Clone, Debug)]
pub enum WorkerSays {
    /// Blocks of a chain, from one to before another, are on the device.
    Stored {
        /// The chain.
        chain: Chain,
        /// The first block.
        from: usize,
        /// Behind the last one.
        to: usize,
    },
    /// Blocks are gone.
    Removed(Vec<u64>),
}

/// Something that a host says of a block.
#[derive(Clone, Copy, Debug)]
pub struct HostSays {
    /// The block.
    pub block: u64,
    /// In memory, or on disk.
    pub is_in_memory: bool,
    /// There, or gone.
    pub is_stored: bool,
}

/// What hosts say while something happens.
#[derive(Debug, Default)]
pub struct HostFeed {
    said: Vec<HostSays>,
}

impl HostFeed {
    /// A block is in memory.
    pub fn stored_in_memory(&mut self, block: u64) {
        self.said.push(HostSays { block, is_in_memory: true, is_stored: true });
    }

    /// A block is gone from memory.
    pub fn removed_from_memory(&mut self, block: u64) {
        self.said.push(HostSays { block, is_in_memory: true, is_stored: false });
    }

    /// A block is on disk.
    pub fn stored_on_disk(&mut self, block: u64) {
        self.said.push(HostSays { block, is_in_memory: false, is_stored: true });
    }

    /// A block is gone from disk.
    pub fn removed_from_disk(&mut self, block: u64) {
        self.said.push(HostSays { block, is_in_memory: false, is_stored: false });
    }
}

/// One publisher's message.
#[derive(Debug)]
pub enum Message {
    /// A worker's.
    Worker(usize, WorkerSays),
    /// A host's.
    Host(usize, Vec<HostSays>),
}

/// Messages under way, in the order in which they arrive.
#[derive(Debug, Default)]
pub struct Feed {
    /// Nobody listens: nothing is kept.
    is_deaf: bool,
    under_way: VecDeque<(f64, Message)>,
}

impl Feed {
    /// A feed, with or without a listener.
    #[must_use]
    pub fn new(is_heard: bool) -> Self {
        Self { is_deaf: !is_heard, under_way: VecDeque::new() }
    }

    /// A worker says something now.
    pub fn worker(&mut self, worker: usize, says: WorkerSays, now: f64) {
        if !self.is_deaf {
            self.under_way.push_back((now + EVENTS_LATE_SECONDS, Message::Worker(worker, says)));
        }
    }

    /// A host says now what it has to say.
    pub fn host(&mut self, host: usize, feed: &mut HostFeed, now: f64) {
        let said = std::mem::take(&mut feed.said);
        if !self.is_deaf && !said.is_empty() {
            self.under_way.push_back((now + EVENTS_LATE_SECONDS, Message::Host(host, said)));
        }
    }

    /// The next message that has arrived by now.
    pub fn next(&mut self, now: f64) -> Option<Message> {
        let (at, _) = self.under_way.front()?;
        (*at <= now).then(|| self.under_way.pop_front())?.map(|(_, message)| message)
    }
}
