//! Any bytes as what a device holds.
//!
//! An input is what stands in the files without their padding: pieces that each begin with a magic
//! word. They are put where the daemon would look for them, once as they are and once with a length
//! and a checksum that fit, because nearly no changed byte gets past a checksum.

use crc_fast::CrcAlgorithm;
use kvd_store::Half;
use kvd_store::tablespace::journal::{JournalItem, JournalReader, half_of};
use kvd_store::tablespace::recovery::{Recovery, Report};
use kvd_store::tablespace::snapshot::SnapshotHead;
use kvd_store::tablespace::{SEGMENTS_OFFSET, Settings, Superblock, Tablespace, WallTime};

const BLOCK: usize = 4096;
/// Of the device in the corpus.
const TAG: u64 = 0x0123_4567_89ab_cdef;
const SPACE_BYTES: u64 = 1 << 20;
const JOURNAL_BYTES: usize = 256 << 10;

/// Larger ones are damage.
const NUMBER_END: u64 = 1 << 62;

const SUPERBLOCK: &[u8; 8] = b"IKVDSUPR";
const BATCH: &[u8; 8] = b"IKVDJRNL";
const HEAD: &[u8; 8] = b"IKVDSNAP";
const SEGMENT: &[u8; 8] = b"IKVDSEGM";

/// What is in the files of a device, in the order in which it is read.
#[derive(Debug, Default)]
struct Files {
    heads: [Vec<u8>; 2],
    segments: [Vec<u8>; 2],
    journals: [Vec<u8>; 2],
}

/// Journals and snapshots.
pub fn tablespace(input: &[u8]) {
    for is_sealed in [false, true] {
        let mut files = Files::of(input, is_sealed);
        let (whole, report) = files.recover(usize::MAX);
        whole.assert_consistent();
        let found = blocks(&whole);
        assert_eq!(found.len() as u64, report.entries);
        for (.., start, len_bytes) in &found {
            assert!(start + u64::from(*len_bytes) <= SPACE_BYTES);
        }
        let (pieces, same) = files.recover(BLOCK + 1);
        assert_eq!((blocks(&pieces), same), (found, report), "it depends on the steps of reading");
        files.journals.iter().for_each(|journal| say(journal));
        goes_on(&mut files, whole);
    }
}

/// A superblock: sizes that are taken for good make sense.
pub fn superblock(input: &[u8]) {
    for is_sealed in [false, true] {
        let mut copy = padded(input);
        if is_sealed && copy.starts_with(SUPERBLOCK) {
            seal(&mut copy, BLOCK);
        }
        if let Ok(superblock) = Superblock::decode(&copy) {
            assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
            assert!(superblock.container_bytes >= BLOCK as u64);
        }
    }
}

/// What the next life says behind these files holds for the one after it: nothing comes back, nothing new
/// comes up. (Two entries of one generation, which nobody writes, leave together.)
fn goes_on(files: &mut Files, mut tablespace: Tablespace) {
    let mut left = blocks(&tablespace);
    let Some((model, compat_key, key, ..)) = left.first().cloned() else {
        return;
    };
    let namespace = kvd_proto::block_key::Namespace { model: &model, compat_key: &compat_key };
    assert!(tablespace.drop_corrupt(namespace, &key));
    left.remove(0);
    while let Some(write) = tablespace.next_repair_write() {
        if [24, 32, 40, 48].iter().any(|&at| number_at(&write.bytes, at) >= NUMBER_END) {
            // What is there has used up all numbers.
            return;
        }
        let journal = &mut files.journals[index(write.half)];
        let at = usize::try_from(write.offset).expect("inside of the file");
        let end = at + write.bytes.len();
        assert!(end <= JOURNAL_BYTES, "beyond the journal");
        journal.resize(journal.len().max(end), 0);
        journal[at..end].copy_from_slice(&write.bytes);
        tablespace.repair_written(&write);
    }
    if !tablespace.needs_repair_writes() {
        let (again, _) = files.recover(usize::MAX);
        let came_up = blocks(&again).into_iter().find(|block| !left.contains(block));
        assert_eq!(came_up, None, "this was not there before, or had left");
    }
}

type Block = (String, String, Vec<u8>, u64, u64, u32);

fn blocks(tablespace: &Tablespace) -> Vec<Block> {
    let owned = |block: kvd_store::tablespace::offline::Block<'_>| {
        let (model, compat_key) = (block.namespace.model.into(), block.namespace.compat_key.into());
        (model, compat_key, block.key.into(), block.checksum, block.start, block.len_bytes)
    };
    tablespace.blocks().map(owned).collect()
}

/// As `kvdctl dump-journal` does.
fn say(journal: &[u8]) {
    let mut reader = JournalReader::new(TAG);
    reader.feed(journal);
    reader.end();
    while let Some(item) = reader.next_item() {
        if let JournalItem::Batch(batch) = item {
            let records = batch.records().flatten().map(|record| record.to_string().len());
            assert!(batch.header.to_string().len() + records.sum::<usize>() > 0);
        }
    }
}

impl Files {
    fn of(input: &[u8], is_sealed: bool) -> Self {
        let mut files = Self::default();
        let mut starts: Vec<usize> = (0..input.len().saturating_sub(7))
            .filter(|&at| [BATCH, HEAD, SEGMENT].iter().any(|word| input[at..].starts_with(*word)))
            .collect();
        starts.push(input.len());
        for piece in starts.windows(2).map(|ends| &input[ends[0]..ends[1]]) {
            files.add(piece, is_sealed);
        }
        files
    }

    fn add(&mut self, piece: &[u8], is_sealed: bool) {
        let mut file = padded(piece);
        let len = u32::try_from(piece.len()).expect("a short input");
        if is_sealed {
            file[16..24].copy_from_slice(&TAG.to_le_bytes());
        }
        let half = index(half_of(number_at(&file, 24)));
        if piece.starts_with(HEAD) {
            if is_sealed {
                seal(&mut file, BLOCK);
            }
            file.truncate(BLOCK);
            self.heads[half] = file.repeat(2);
        } else if piece.starts_with(SEGMENT) {
            if is_sealed {
                file[40..44].copy_from_slice(&len.saturating_sub(64).to_le_bytes());
                seal(&mut file, piece.len().max(64));
            }
            self.segments[half].append(&mut file);
        } else if self.journals[half].len() + file.len() <= JOURNAL_BYTES {
            if is_sealed {
                file[56..60].copy_from_slice(&len.saturating_sub(72).to_le_bytes());
                seal(&mut file, piece.len().max(72));
            }
            self.journals[half].append(&mut file);
        }
    }

    /// What a daemon does at its start, `step` bytes at a time.
    fn recover(&self, step: usize) -> (Tablespace, Report) {
        let mut recovery = Recovery::new(Settings {
            tag: TAG,
            journal_bytes: JOURNAL_BYTES as u64,
            snapshot_bytes_max: 1 << 20,
            space_bytes: SPACE_BYTES,
            expected_bytes: SPACE_BYTES,
            hash_seed: 7,
            now: WallTime(1_000),
        });
        let chosen = recovery.choose_snapshot(&self.heads[0], &self.heads[1]);
        if let Some((half, SnapshotHead { end_offset, .. })) = chosen {
            let bytes = &self.segments[index(half)];
            let end = usize::try_from(end_offset - SEGMENTS_OFFSET).unwrap_or(usize::MAX);
            let bytes = &bytes[..end.min(bytes.len())];
            bytes.chunks(step).for_each(|part| recovery.feed_snapshot(part));
        }
        for half in recovery.journal_order() {
            recovery.begin_journal(half);
            self.journals[index(half)].chunks(step).for_each(|part| recovery.feed_journal(part));
        }
        recovery.finish()
    }
}

const fn index(half: Half) -> usize {
    match half {
        Half::A => 0,
        Half::B => 1,
    }
}

fn number_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn padded(piece: &[u8]) -> Vec<u8> {
    let mut file = piece.to_vec();
    file.resize(piece.len().next_multiple_of(BLOCK).max(BLOCK), 0);
    file
}

fn seal(file: &mut [u8], end: usize) {
    let checksum = crc_fast::checksum(CrcAlgorithm::Crc64Nvme, &file[16..end]);
    file[8..16].copy_from_slice(&checksum.to_le_bytes());
}
