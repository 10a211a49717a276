//! One block on its way between arena and device: its operations, its checksum, its end.
//!
//! A block that has whole pages of the arena moves without a copy. A small one lies anywhere and
//! goes through a buffer of its own, with zeros behind its end.
//!
//! The checksum of a read is taken once it has arrived, that of a write while it is under way: if
//! somebody scribbles over the block meanwhile, device and checksum differ, and the block is a miss
//! later; it is never wrong.

use std::sync::Arc;
use std::time::Instant;

use kvd_disk::{AlignedBuffer, Completion, Fault, FileId, Memory, Operation};
use kvd_shm::checksum::Checksum;
use kvd_shm::mapping::Mapping;
use kvd_store::{DiskDone, LoadFault, LoadId, SpillFault, SpillId, WHOLE_PAGES_FROM};

use super::pieces::{self, BLOCK_BYTES};

/// Bytes that are summed in one turn: some fifty microseconds, so that the device is never idle
/// meanwhile.
pub(super) const SUM_BYTES: usize = 1 << 20;

/// What the store asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Errand {
    Load { load: LoadId, checksum: u64 },
    Spill { spill: SpillId, checksum: Option<u64> },
}

/// Where a block is and what it is called.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) offset: u64,
    pub(super) arena_offset: u64,
    pub(super) len_bytes: u32,
    pub(super) key: Box<[u8]>,
}

#[derive(Debug)]
struct Part {
    file: FileId,
    at: usize,
    /// Bytes of the block in it, without padding.
    len: usize,
    /// The bytes, if they go through a buffer and are here now.
    buffer: Option<AlignedBuffer>,
}

#[derive(Debug)]
pub(super) struct Block {
    errand: Errand,
    place: Place,
    arena: Arc<Mapping>,
    parts: Vec<Part>,
    /// Operations that have not ended.
    left: usize,
    sum: Checksum,
    /// Bytes of the block that are summed.
    summed: usize,
    fault: Option<Fault>,
    began: Instant,
}

impl Block {
    /// Makes the operations of a block. `token` numbers them from 0.
    pub(super) fn new(
        errand: Errand,
        place: Place,
        arena: &Arc<Mapping>,
        container_bytes: u64,
        token: impl Fn(usize) -> u64,
    ) -> (Self, Vec<Operation>) {
        let len = place.len_bytes as usize;
        let mut block = Self {
            errand,
            arena: Arc::clone(arena),
            parts: Vec::new(),
            left: 0,
            sum: Checksum::new(),
            summed: 0,
            fault: None,
            began: Instant::now(),
            place,
        };
        let mut operations = Vec::new();
        for piece in pieces::pieces(block.place.offset, block.place.len_bytes, container_bytes) {
            let part = Part {
                file: piece.file,
                at: piece.at,
                len: piece.len.min(len - piece.at),
                buffer: None,
            };
            let token = token(block.parts.len());
            let memory = block.memory(&part, piece.len);
            operations.push(match errand {
                Errand::Load { .. } => Operation::read(token, piece.file, piece.offset, memory),
                Errand::Spill { .. } => Operation::write(token, piece.file, piece.offset, memory),
            });
            block.parts.push(part);
        }
        block.left = block.parts.len();
        (block, operations)
    }

    /// Whether the block lies so that the device can reach it without a copy. A small one may begin
    /// on a page by chance; the rest of its last page is somebody else's then.
    fn is_direct(&self) -> bool {
        let (begin, len_bytes) = (self.place.arena_offset, u64::from(self.place.len_bytes));
        let has_whole_pages =
            len_bytes >= WHOLE_PAGES_FROM || len_bytes.is_multiple_of(BLOCK_BYTES);
        begin.is_multiple_of(BLOCK_BYTES) && has_whole_pages
    }

    fn memory(&mut self, part: &Part, padded_len: usize) -> Memory {
        let offset = self.place.arena_offset + part.at as u64;
        if self.is_direct() {
            return Memory::Arena(self.arena.slice(offset, padded_len));
        }
        let mut buffer = AlignedBuffer::zeroed(padded_len);
        if matches!(self.errand, Errand::Spill { .. }) {
            self.arena.copy_out(offset, &mut buffer[..part.len]);
            // What is written is what is summed.
            self.sum.update(&buffer[..part.len]);
            self.summed += part.len;
        }
        Memory::Owned(buffer)
    }

    pub(super) fn is_load(&self) -> bool {
        matches!(self.errand, Errand::Load { .. })
    }

    /// Bytes that the store counts for it.
    pub(super) fn bytes(&self) -> u64 {
        self.place.len_bytes.into()
    }

    /// Bytes that the device moves for it.
    pub(super) fn padded_bytes(&self) -> u64 {
        self.bytes().next_multiple_of(BLOCK_BYTES)
    }

    /// The container of one of its operations.
    pub(super) fn file(&self, number: usize) -> FileId {
        self.parts[number].file
    }

    /// Bytes that one of its operations moves.
    pub(super) fn part_bytes(&self, number: usize) -> u64 {
        (self.parts[number].len as u64).next_multiple_of(BLOCK_BYTES)
    }

    /// Takes the end of one of its operations; true if it was the last and its bytes are to be
    /// summed now.
    pub(super) fn ended(&mut self, number: usize, completion: Completion) -> bool {
        self.left -= 1;
        if let Err(fault) = completion.result {
            self.fault.get_or_insert(fault);
        }
        if let Some(Memory::Owned(buffer)) = completion.memory {
            self.parts[number].buffer = Some(buffer);
        }
        self.left == 0 && self.is_load() && !self.is_over()
    }

    /// Sums some more of it; true when there is nothing left to sum.
    pub(super) fn sum_more(&mut self) -> bool {
        let len = self.place.len_bytes as usize;
        if self.fault.is_some() || self.summed == len {
            return true;
        }
        if self.is_direct() {
            let step = (len - self.summed).min(SUM_BYTES);
            self.arena.sum(self.place.arena_offset + self.summed as u64, step, &mut self.sum);
            self.summed += step;
        } else {
            self.land();
        }
        self.summed == len
    }

    /// Sums what was read through buffers, and brings it into the arena. What is written through
    /// buffers was summed when they were filled.
    fn land(&mut self) {
        for part in &self.parts {
            if let Some(buffer) = &part.buffer {
                // Only what was summed gets into the arena; if it is wrong, nobody sees it.
                self.sum.update(&buffer[..part.len]);
                let offset = self.place.arena_offset + part.at as u64;
                self.arena.copy_in(offset, &buffer[..part.len]);
                self.summed += part.len;
            }
        }
    }

    /// Whether all has ended and the checksum is known.
    pub(super) fn is_over(&self) -> bool {
        let is_summed = self.fault.is_some() || self.summed == self.place.len_bytes as usize;
        self.left == 0 && is_summed
    }

    /// What to tell the store, and the fault behind it if there was one.
    pub(super) fn outcome(mut self) -> (DiskDone, Option<Fault>) {
        self.sum.update(&self.place.key);
        let found = self.sum.value();
        let took_us = u32::try_from(self.began.elapsed().as_micros()).unwrap_or(u32::MAX);
        let done = match self.errand {
            Errand::Load { load, checksum } => {
                let result = match self.fault {
                    // The file is too short: what was there is gone.
                    Some(Fault::EndOfFile { .. }) => Err(LoadFault::Corrupt),
                    Some(_) => Err(LoadFault::Io),
                    None if found != checksum => Err(LoadFault::Corrupt),
                    None => Ok(()),
                };
                DiskDone::Loaded { load, result, took_us }
            }
            Errand::Spill { spill, checksum } => {
                let result = match self.fault {
                    Some(fault) if fault.is_no_space() => Err(SpillFault::NoSpace),
                    Some(_) => Err(SpillFault::Io),
                    None if checksum.is_some_and(|wanted| wanted != found) => {
                        Err(SpillFault::Mismatch)
                    }
                    None => Ok(found),
                };
                DiskDone::Spilled { spill, result, took_us }
            }
        };
        (done, self.fault)
    }
}
