//! The files of a device that is full, without filling one: for measurements of a restart, which cannot wait for millions
//! of blocks to be written. Journals and snapshots are those that a daemon would have written, by the same code.

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use super::{NewEntry, Settings, Tablespace, WallTime};
use crate::disk::Half;
use crate::rows::RowId;

/// Entries between two looks at what must be written.
const ENTRIES_A_TURN: u64 = 1024;

/// Which file a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageFile {
    /// A journal.
    Journal(Half),
    /// A snapshot.
    Snapshot(Half),
}

/// A piece of one of the files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePiece {
    /// The file.
    pub file: ImageFile,
    /// Where in it.
    pub offset: u64,
    /// What: whole blocks.
    pub bytes: Vec<u8>,
}

/// A block of which there is nothing but what is remembered of it.
#[derive(Clone, Copy, Debug)]
pub struct ImageEntry<'a> {
    /// The namespace of its key.
    pub namespace: Namespace<'a>,
    /// Its key.
    pub key: &'a [u8],
    /// Bytes that it would have.
    pub len_bytes: u32,
    /// Their checksum.
    pub checksum: u64,
    /// Its class.
    pub class: Retention,
}

/// A device that grows in memory.
#[derive(Debug)]
pub struct Image {
    tablespace: Tablespace,
}

impl Image {
    /// An empty device.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self { tablespace: Tablespace::new(settings) }
    }

    /// Adds a block; whether there was room without evicting another one. What has to be written
    /// meanwhile is given to `write`, pieces of the same file in order.
    ///
    /// # Panics
    /// If there is a block with this key.
    pub fn add(&mut self, entry: ImageEntry<'_>, write: &mut dyn FnMut(ImagePiece)) -> bool {
        let ImageEntry { namespace, key, len_bytes, checksum, class } = entry;
        let generation = self.tablespace.generation() + 1;
        let Ok(extent) = self.tablespace.take_room(len_bytes, class) else {
            return false;
        };
        let before = self.tablespace.figures().entries;
        let added = self.tablespace.insert(NewEntry {
            extent,
            namespace,
            key,
            len_bytes,
            checksum,
            class,
            expires_at: WallTime::NEVER,
            generation,
            lineage: None,
            host: RowId::NONE,
        });
        if generation.is_multiple_of(ENTRIES_A_TURN) {
            self.write_due(write);
        }
        added.is_ok() && self.tablespace.figures().entries > before
    }

    /// Writes the rest: a snapshot of everything, and the empty journal that continues it.
    pub fn finish(mut self, write: &mut dyn FnMut(ImagePiece)) {
        self.tablespace.ask_snapshot();
        loop {
            self.write_due(write);
            if self.tablespace.is_settled() && !self.tablespace.has_records() {
                return;
            }
        }
    }

    fn write_due(&mut self, write: &mut dyn FnMut(ImagePiece)) {
        while let Some(batch) = self.tablespace.next_batch(true) {
            let sequence = batch.sequence;
            let file = ImageFile::Journal(batch.half);
            if !batch.bytes.is_empty() {
                write(ImagePiece { file, offset: batch.offset, bytes: batch.bytes });
            }
            self.tablespace.batch_written(sequence, true);
            self.tablespace.synced(sequence);
        }
        loop {
            if let Some(piece) = self.tablespace.next_snapshot() {
                let file = ImageFile::Snapshot(piece.half);
                write(ImagePiece { file, offset: piece.offset, bytes: piece.bytes });
                self.tablespace.snapshot_written(true);
            } else if !self.tablespace.has_snapshot_work() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tablespace::SEGMENTS_OFFSET;
    use crate::tablespace::recovery::Recovery;

    const NAMESPACE: Namespace<'_> = Namespace { model: "m", compat_key: "c" };

    fn settings() -> Settings {
        Settings {
            tag: 7,
            journal_bytes: 1 << 20,
            snapshot_bytes_max: 64 << 20,
            space_bytes: 1 << 30,
            expected_bytes: 1 << 30,
            hash_seed: 1,
            now: WallTime(0),
        }
    }

    /// Writes a piece to the file in memory that it belongs to.
    fn put(files: &mut [Vec<u8>; 4], piece: ImagePiece) {
        let file = &mut files[match piece.file {
            ImageFile::Journal(Half::A) => 0,
            ImageFile::Journal(Half::B) => 1,
            ImageFile::Snapshot(Half::A) => 2,
            ImageFile::Snapshot(Half::B) => 3,
        }];
        let begin = usize::try_from(piece.offset).unwrap();
        file.resize(file.len().max(begin + piece.bytes.len()), 0);
        file[begin..][..piece.bytes.len()].copy_from_slice(&piece.bytes);
    }

    #[test]
    fn everything_that_was_added_is_recovered() {
        let mut files: [Vec<u8>; 4] = Default::default();
        let mut image = Image::new(settings());
        for number in 0..50_000_u64 {
            let key = number.to_le_bytes();
            let (namespace, class) = (NAMESPACE, Retention::Long);
            let entry =
                ImageEntry { namespace, key: &key, len_bytes: 4096, checksum: number, class };
            assert!(image.add(entry, &mut |piece| put(&mut files, piece)));
        }
        image.finish(&mut |piece| put(&mut files, piece));

        let mut recovery = Recovery::new(settings());
        let [journal_a, journal_b, a, b] = &files;
        let whole = |bytes: u64| usize::try_from(bytes).unwrap();
        let heads = [a, b].map(|file| &file[..file.len().min(whole(SEGMENTS_OFFSET))]);
        let (half, head) = recovery.choose_snapshot(heads[0], heads[1]).unwrap();
        let segments = whole(SEGMENTS_OFFSET)..whole(head.end_offset);
        recovery.feed_snapshot(&if half == Half::A { a } else { b }[segments]);
        for half in recovery.journal_order() {
            recovery.begin_journal(half);
            recovery.feed_journal(if half == Half::A { journal_a } else { journal_b });
        }
        let (tablespace, report) = recovery.finish();
        assert!(!report.is_damaged(), "{report}");
        assert_eq!(tablespace.figures().entries, 50_000);
        let id = tablespace.find(NAMESPACE, &777_u64.to_le_bytes(), WallTime(0)).unwrap();
        assert_eq!(tablespace.entry(id).checksum(), 777);
    }
}
