//! A device that no daemon uses: what is on it, and the one repair that there is.

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use super::journal::Reason;
use super::{Tablespace, WallTime};
use crate::disk::Half;

/// A block, as the device knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The namespace of its key.
    pub namespace: Namespace<'a>,
    /// Its key.
    pub key: &'a [u8],
    /// Byte offset on the device.
    pub start: u64,
    /// Its bytes.
    pub len_bytes: u32,
    /// CRC-64/NVME over them, then the key.
    pub checksum: u64,
    /// Its class.
    pub class: Retention,
}

/// A write that makes a repair last. After it, its file is to be synced, in any case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepairWrite {
    /// The journal.
    pub half: Half,
    /// Where in it.
    pub offset: u64,
    /// What: whole blocks, perhaps none.
    pub bytes: Vec<u8>,
    sequence: u64,
}

impl Tablespace {
    /// All blocks, in no order that means anything.
    pub fn blocks(&self) -> impl Iterator<Item = Block<'_>> {
        self.entries_from(0).map(|(id, entry)| Block {
            namespace: self.namespace_of(id),
            key: entry.key(),
            start: self.range(id).0,
            len_bytes: entry.len_bytes(),
            checksum: entry.checksum(),
            class: entry.class(),
        })
    }

    /// Forgets a block whose bytes are not those that were stored; whether there was one.
    pub fn drop_corrupt(&mut self, namespace: Namespace<'_>, key: &[u8]) -> bool {
        let found = self.find(namespace, key, WallTime(0));
        found.map(|id| self.remove(id, Reason::Corrupt)).is_some()
    }

    /// What must be written for that to last: ask until there is nothing more. None with
    /// [`Self::needs_repair_writes`] still true: the journal is full, and only a daemon starts another.
    pub fn next_repair_write(&mut self) -> Option<RepairWrite> {
        if !self.has_records() {
            return None;
        }
        let batch = self.next_batch(true)?;
        let (half, offset, sequence) = (batch.half, batch.offset, batch.sequence);
        Some(RepairWrite { half, offset, bytes: batch.bytes, sequence })
    }

    /// It was written, and synced.
    ///
    /// # Panics
    /// If it is not the latest that was asked for.
    pub fn repair_written(&mut self, written: &RepairWrite) {
        self.batch_written(written.sequence, true);
        self.synced(written.sequence);
    }

    /// Whether something was forgotten that the device does not know of.
    #[must_use]
    pub fn needs_repair_writes(&self) -> bool {
        self.has_records()
    }
}
