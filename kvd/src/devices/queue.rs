//! Which operation goes to the device next. Records are few and everybody waits for them; somebody
//! may wait for a read; nobody waits for a block to be written.

use std::collections::VecDeque;

use kvd_disk::{Disk, Operation};

/// Of the operations in flight, this part may be writes of blocks while reads wait too.
const WRITES_BESIDE_READS: usize = 4;
/// Bytes of blocks being written at once: enough to keep any device busy. One block more may be.
pub(super) const WRITE_BYTES: u64 = 32 << 20;
/// The same while somebody reads, so that reads find short queues.
pub(super) const WRITE_BYTES_BESIDE_READS: u64 = 8 << 20;

/// Operations that wait to be submitted, and how many of each kind are in flight.
#[derive(Debug, Default)]
pub(super) struct Queue {
    records: VecDeque<Operation>,
    reads: VecDeque<Operation>,
    writes: VecDeque<Operation>,
    reads_out: usize,
    writes_out: usize,
    write_bytes_out: u64,
}

/// What an operation is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lane {
    Record,
    Read,
    Write,
}

impl Queue {
    pub(super) fn push(&mut self, lane: Lane, operations: impl IntoIterator<Item = Operation>) {
        match lane {
            Lane::Record => self.records.extend(operations),
            Lane::Read => self.reads.extend(operations),
            Lane::Write => self.writes.extend(operations),
        }
    }

    /// Notes that a read of a block ended.
    pub(super) fn read_ended(&mut self) {
        self.reads_out -= 1;
    }

    /// Notes that a write of so many bytes of a block ended.
    pub(super) fn write_ended(&mut self, bytes: u64) {
        self.writes_out -= 1;
        self.write_bytes_out -= bytes;
    }

    /// Whether reads wait or are under way.
    pub(super) fn has_reads(&self) -> bool {
        self.reads_out > 0 || !self.reads.is_empty()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty() && self.reads.is_empty() && self.writes.is_empty()
    }

    /// Operations that wait to be read.
    pub(super) fn reads_waiting(&self) -> usize {
        self.reads.len()
    }

    /// Hands over as much as the disk takes.
    pub(super) fn submit(&mut self, disk: &mut dyn Disk) {
        loop {
            let (writes_max, write_bytes_max) = if self.has_reads() {
                ((disk.depth() / WRITES_BESIDE_READS).max(1), WRITE_BYTES_BESIDE_READS)
            } else {
                (disk.depth(), WRITE_BYTES)
            };
            let (lane, operation) = if let Some(operation) = self.records.pop_front() {
                (Lane::Record, operation)
            } else if let Some(operation) = self.reads.pop_front() {
                (Lane::Read, operation)
            } else if self.writes_out < writes_max
                && self.write_bytes_out < write_bytes_max
                && let Some(operation) = self.writes.pop_front()
            {
                (Lane::Write, operation)
            } else {
                return;
            };
            let bytes = operation.memory().map_or(0, |memory| memory.len() as u64);
            if let Err(operation) = disk.submit(operation) {
                match lane {
                    Lane::Record => self.records.push_front(operation),
                    Lane::Read => self.reads.push_front(operation),
                    Lane::Write => self.writes.push_front(operation),
                }
                return;
            }
            match lane {
                Lane::Record => {}
                Lane::Read => self.reads_out += 1,
                Lane::Write => {
                    self.writes_out += 1;
                    self.write_bytes_out += bytes;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kvd_disk::sim::{SimConfig, SimDisk};
    use kvd_disk::{AlignedBuffer, FileId, Memory};

    use super::*;

    const FILE: FileId = FileId(0);
    const BLOCK_BYTES: usize = 16 << 20;

    /// A disk of depth 16 on which nothing ends.
    fn disk() -> SimDisk {
        let config = SimConfig { depth: 16, ..SimConfig::from_seed(1) };
        let (mut disk, control) = SimDisk::new(config).unwrap();
        control.resize(FILE, 64 << 20);
        disk.attach_made(FILE);
        disk
    }

    fn write(token: u64, bytes: usize) -> Operation {
        let memory = Memory::Owned(AlignedBuffer::zeroed(bytes));
        Operation::write(token, FILE, token * bytes as u64, memory)
    }

    fn read(token: u64) -> Operation {
        Operation::read(token, FILE, 0, Memory::Owned(AlignedBuffer::zeroed(4096)))
    }

    #[test]
    fn so_many_bytes_are_written_at_once_and_the_rest_waits() {
        let (mut queue, mut disk) = (Queue::default(), disk());
        queue.push(Lane::Write, (0..4).map(|token| write(token, BLOCK_BYTES)));
        queue.submit(&mut disk);
        assert_eq!(disk.in_flight() as u64 * BLOCK_BYTES as u64, WRITE_BYTES);
        queue.write_ended(BLOCK_BYTES as u64);
        queue.submit(&mut disk);
        assert_eq!(disk.in_flight(), 3);
    }

    #[test]
    fn fewer_are_while_somebody_reads() {
        let (mut queue, mut disk) = (Queue::default(), disk());
        queue.push(Lane::Write, (0..2).map(|token| write(token, BLOCK_BYTES)));
        queue.push(Lane::Read, [read(9)]);
        queue.submit(&mut disk);
        assert_eq!(disk.in_flight(), 2, "the read, and one write over the bound");
        queue.read_ended();
        queue.submit(&mut disk);
        assert_eq!(disk.in_flight(), 3);
        assert!(queue.is_empty());
    }

    #[test]
    fn small_writes_leave_places_for_reads() {
        let (mut queue, mut disk) = (Queue::default(), disk());
        queue.push(Lane::Write, (0..16).map(|token| write(token, 4096)));
        queue.push(Lane::Read, [read(99)]);
        queue.submit(&mut disk);
        assert_eq!(disk.in_flight(), 1 + 16 / WRITES_BESIDE_READS);
    }
}
