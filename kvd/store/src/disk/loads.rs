//! Reads that are wanted or under way: one per block, however many wait for it.

use std::collections::{BTreeMap, VecDeque};

use kvd_proto::ids::SessionId;
use kvd_proto::retention::Retention;

use super::device::Below;
use super::work::LoadId;
use crate::rows::RowId;
use crate::space::ExtentId;
use crate::time::Timestamp;

/// One read from a device into the arena.
#[derive(Debug)]
pub(crate) struct Load {
    pub(crate) below: Below,
    /// Place on the device, pinned until the read is over.
    pub(crate) range: ExtentId,
    /// Place in the arena, nobody else's until the read is over.
    pub(crate) extent: ExtentId,
    pub(crate) len_bytes: u32,
    pub(crate) class: Retention,
    pub(crate) step: Step,
    /// Once it is taken: where the ledger says that the kernel writes there.
    pub(crate) read_slot: u32,
    /// Somebody waits; in the order in which they came, each once.
    pub(crate) waiters: Vec<SessionId>,
    /// It was reported present: promised until then.
    pub(crate) promised_until: Option<Timestamp>,
    /// Only a hint, which is stale then.
    pub(crate) hinted_until: Option<Timestamp>,
}

/// How far a load is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To be taken.
    Waiting,
    /// The device reads.
    Taken,
    /// The device reads, but nobody is interested any more: the block is gone.
    Void,
}

/// All loads of all devices.
#[derive(Debug, Default)]
pub(crate) struct Loads {
    all: BTreeMap<LoadId, Load>,
    by_block: BTreeMap<Below, LoadId>,
    latest: u64,
    /// Payload bytes of all: rows to be.
    pub(crate) payload_bytes: u64,
    /// Bytes of their extents.
    pub(crate) extent_bytes: u64,
}

impl Loads {
    pub(crate) fn insert(&mut self, load: Load, extent_bytes: u64) -> LoadId {
        self.latest += 1;
        let id = LoadId(self.latest);
        self.payload_bytes += u64::from(load.len_bytes);
        self.extent_bytes += extent_bytes;
        let before = self.by_block.insert(load.below, id);
        assert!(before.is_none(), "a block is loaded twice at once");
        self.all.insert(id, load);
        id
    }

    pub(crate) fn remove(&mut self, id: LoadId, extent_bytes: u64) -> Load {
        let Some(load) = self.all.remove(&id) else {
            panic!("{id:?} ended before");
        };
        self.payload_bytes -= u64::from(load.len_bytes);
        self.extent_bytes -= extent_bytes;
        if load.step != Step::Void {
            self.by_block.remove(&load.below);
        }
        load
    }

    /// The block of a load that is under way is gone: its number may go to another.
    pub(crate) fn void(&mut self, id: LoadId) {
        let Some(load) = self.all.get_mut(&id) else {
            panic!("{id:?} ended before");
        };
        assert_eq!(load.step, Step::Taken);
        load.step = Step::Void;
        self.by_block.remove(&load.below);
    }

    /// The load of a block.
    pub(crate) fn of(&self, below: Below) -> Option<LoadId> {
        self.by_block.get(&below).copied()
    }

    pub(crate) fn get(&self, id: LoadId) -> Option<&Load> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: LoadId) -> Option<&mut Load> {
        self.all.get_mut(&id)
    }

    /// Rows to be.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (LoadId, &Load)> {
        self.all.iter().map(|(&id, load)| (id, load))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (LoadId, &mut Load)> {
        self.all.iter_mut().map(|(&id, load)| (id, load))
    }
}

/// Loaded rows that are pinned until those who waited have fetched them.
#[derive(Debug, Default)]
pub(crate) struct Landings {
    pub(crate) rows: BTreeMap<RowId, Landing>,
    /// Bytes of their extents.
    pub(crate) bytes: u64,
    /// When they end, in the order of time; some are over already.
    pub(crate) ends: VecDeque<(Timestamp, RowId)>,
}

#[derive(Debug)]
pub(crate) struct Landing {
    /// Who has not fetched it yet.
    pub(crate) waiters: Vec<SessionId>,
    /// It is kept until then at most.
    pub(crate) until: Timestamp,
}
