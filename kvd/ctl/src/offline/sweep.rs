//! Reads blocks from their containers, in the order of the device and many pieces at once, and compares checksums.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use kvd_disk::{AlignedBuffer, Completion, Disk, Fault, FileId, Memory, Operation};
use kvd_shm::checksum::Checksum;

/// Most bytes of one read. Larger ones are no faster.
const PIECE_BYTES: u64 = 1 << 20;

/// Unit of places and lengths on a device.
const UNIT_BYTES: u64 = 4096;

/// How long the device may be silent before it is asked again; nothing is given up then.
const PATIENCE: Duration = Duration::from_secs(10);

/// A block to look at.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Where it begins on the device.
    pub(crate) start: u64,
    pub(crate) len_bytes: u64,
    pub(crate) checksum: u64,
    pub(crate) key: Box<[u8]>,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Good,
    /// The bytes have this checksum.
    Corrupt(u64),
    Unreadable(Fault),
}

/// One read.
#[derive(Clone, Copy, Debug)]
struct Piece {
    block: usize,
    container: u32,
    offset: u64,
    /// Bytes of the block in it; what is read is a whole number of units.
    len_bytes: u64,
    is_last: bool,
}

/// Looks at every block and tells `judge`. Container n of the device is file n of the disk.
///
/// # Errors
/// The disk itself broke, or `judge` has enough.
pub(crate) fn sweep(
    disk: &mut dyn Disk,
    container_bytes: u64,
    blocks: &[Wanted],
    mut judge: impl FnMut(&Wanted, Verdict) -> Result<()>,
) -> Result<()> {
    for block in blocks.iter().filter(|block| block.len_bytes == 0) {
        judge(block, Hand::default().verdict(block))?;
    }
    let mut pieces = blocks
        .iter()
        .enumerate()
        .flat_map(|(index, block)| pieces(container_bytes, index, block))
        .peekable();
    // Begun and not yet judged, in order; those that landed early count too, so that memory stays bounded.
    let mut begun: VecDeque<Piece> = VecDeque::new();
    let mut landed: BTreeMap<u64, Completion> = BTreeMap::new();
    let (mut done, mut hand, mut pool) = (Vec::new(), Hand::default(), Pool::default());
    let mut next_due = 0;
    loop {
        while begun.len() < disk.depth()
            && let Some(piece) = pieces.next()
        {
            let token = next_due + begun.len() as u64;
            let taken = disk.submit(piece.read(token, &mut pool));
            taken.map_err(|_operation| anyhow!("a disk took less than its depth"))?;
            begun.push_back(piece);
        }
        if begun.is_empty() {
            return Ok(());
        }
        if !landed.contains_key(&next_due) {
            disk.wait(PATIENCE, &mut done).context("waiting for the device")?;
            landed.extend(done.drain(..).map(|completion| (completion.token, completion)));
        }
        while let Some(completion) = landed.remove(&next_due)
            && let Some(piece) = begun.pop_front()
        {
            next_due += 1;
            hand.take(&piece, completion, &mut pool);
            let block = &blocks[piece.block];
            if piece.is_last {
                judge(block, std::mem::take(&mut hand).verdict(block))?;
            }
        }
    }
}

/// The reads that a block takes: none crosses the end of a container.
fn pieces(
    container_bytes: u64,
    block: usize,
    wanted: &Wanted,
) -> impl Iterator<Item = Piece> + use<> {
    let (mut at, end) = (wanted.start, wanted.start + wanted.len_bytes);
    std::iter::from_fn(move || {
        let offset = at % container_bytes;
        let len_bytes = (end - at).min(PIECE_BYTES).min(container_bytes - offset);
        let container = u32::try_from(at / container_bytes).ok()?;
        at += len_bytes;
        let piece = Piece { block, container, offset, len_bytes, is_last: at == end };
        (len_bytes > 0).then_some(piece)
    })
}

impl Piece {
    fn read(&self, token: u64, pool: &mut Pool) -> Operation {
        let buffer = pool.buffer(in_memory(self.len_bytes.next_multiple_of(UNIT_BYTES)));
        Operation::read(token, FileId(self.container), self.offset, Memory::Owned(buffer))
    }
}

/// The block at hand: its pieces come in order.
#[derive(Debug, Default)]
struct Hand {
    checksum: Checksum,
    fault: Option<Fault>,
}

impl Hand {
    fn take(&mut self, piece: &Piece, completion: Completion, pool: &mut Pool) {
        let Some(Memory::Owned(buffer)) = completion.memory else { return };
        match completion.result {
            Ok(()) => self.checksum.update(&buffer[..in_memory(piece.len_bytes)]),
            Err(fault) => self.fault = self.fault.or(Some(fault)),
        }
        pool.give_back(buffer);
    }

    fn verdict(mut self, block: &Wanted) -> Verdict {
        self.checksum.update(&block.key);
        match (self.fault, self.checksum.value()) {
            (Some(fault), _) => Verdict::Unreadable(fault),
            (None, found) if found == block.checksum => Verdict::Good,
            (None, found) => Verdict::Corrupt(found),
        }
    }
}

/// Buffers that were used: fresh memory costs as much as the checksum.
#[derive(Debug, Default)]
struct Pool(Vec<AlignedBuffer>);

impl Pool {
    const BUFFERS_MAX: usize = 64;

    fn buffer(&mut self, len: usize) -> AlignedBuffer {
        match self.0.iter().position(|buffer| buffer.len() == len) {
            Some(index) => self.0.swap_remove(index),
            None => AlignedBuffer::zeroed(len),
        }
    }

    fn give_back(&mut self, buffer: AlignedBuffer) {
        if self.0.len() == Self::BUFFERS_MAX {
            self.0.remove(0);
        }
        self.0.push(buffer);
    }
}

/// Bytes of one piece.
fn in_memory(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use kvd_disk::Action;
    use kvd_disk::sim::{SimConfig, SimControl, SimDisk};
    use kvd_shm::checksum::of_block;

    use super::*;

    const CONTAINER_BYTES: u64 = 3 << 20;

    /// A device of three containers with a block at each of these places, of these lengths.
    fn device(blocks: &[(u64, u64)]) -> (SimDisk, SimControl, Vec<Wanted>) {
        let bytes: Vec<u8> = (0..3 * CONTAINER_BYTES)
            .map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0])
            .collect();
        let (mut disk, control) = SimDisk::new(SimConfig::from_seed(7)).expect("descriptors");
        for (number, container) in (0..).zip(bytes.chunks(in_memory(CONTAINER_BYTES))) {
            control.make(FileId(number), container.to_vec());
            disk.attach_made(FileId(number));
        }
        let wanted = (0_u8..).zip(blocks).map(|(key, &(start, len_bytes))| Wanted {
            start,
            len_bytes,
            checksum: of_block(&bytes[in_memory(start)..in_memory(start + len_bytes)], &[key]),
            key: [key].into(),
        });
        (disk, control, wanted.collect())
    }

    fn verdicts(disk: &mut SimDisk, blocks: &[Wanted]) -> BTreeMap<u8, Verdict> {
        let mut verdicts = BTreeMap::new();
        sweep(disk, CONTAINER_BYTES, blocks, |block, verdict| {
            assert!(verdicts.insert(block.key[0], verdict).is_none(), "judged twice");
            Ok(())
        })
        .expect("a working disk");
        verdicts
    }

    /// Small, of several pieces, over the end of a container, over a whole one, empty, up to the very end.
    const BLOCKS: [(u64, u64); 6] = [
        (0, 5),
        (4096, (2 << 20) + 1),
        ((3 << 20) - 4096, 8192),
        (4 << 20, 3 << 20),
        (4096, 0),
        ((9 << 20) - 8192, 8192),
    ];

    #[test]
    fn blocks_that_are_whole_are_good() {
        let (mut disk, _control, blocks) = device(&BLOCKS);
        let verdicts = verdicts(&mut disk, &blocks);
        assert_eq!(verdicts.len(), BLOCKS.len());
        assert!(verdicts.values().all(|verdict| *verdict == Verdict::Good), "{verdicts:?}");
        assert_eq!(disk.in_flight(), 0);
    }

    #[test]
    fn one_wrong_byte_and_one_bad_sector_are_two_bad_blocks() {
        let (mut disk, control, mut blocks) = device(&BLOCKS);
        blocks[1].checksum ^= 1;
        // In the middle of the fourth block: 4 MiB and a half into it.
        control.break_range(FileId(2), Action::Read, 512..1024, 5);
        let verdicts = verdicts(&mut disk, &blocks);
        assert!(matches!(verdicts[&1], Verdict::Corrupt(_)));
        assert_eq!(verdicts[&3], Verdict::Unreadable(Fault::Errno(5)));
        let good = verdicts.values().filter(|verdict| **verdict == Verdict::Good).count();
        assert_eq!(good, BLOCKS.len() - 2);
    }

    #[test]
    fn a_container_that_is_short_or_missing_is_unreadable() {
        let (mut disk, control, mut blocks) = device(&BLOCKS);
        control.resize(FileId(2), (3 << 20) - 4096);
        blocks.push(Wanted { start: 9 << 20, ..blocks[0].clone() });
        blocks[6].key = [6].into();
        let verdicts = verdicts(&mut disk, &blocks);
        assert!(matches!(verdicts[&5], Verdict::Unreadable(Fault::EndOfFile { .. })));
        assert_eq!(verdicts[&6], Verdict::Unreadable(Fault::NotAttached { file: FileId(3) }));
        assert_eq!(verdicts[&3], Verdict::Good);
    }

    #[test]
    fn whoever_has_enough_ends_it() {
        let (mut disk, _control, blocks) = device(&BLOCKS);
        let enough = sweep(&mut disk, CONTAINER_BYTES, &blocks, |_, _| anyhow::bail!("enough"));
        assert_eq!(enough.expect_err("enough").to_string(), "enough");
    }
}
