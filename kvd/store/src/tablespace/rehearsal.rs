//! The files of a device with any number of blocks on it, without the blocks: for measuring what a
//! restart costs in time and memory.

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use super::format::BLOCK_BYTES;
use super::{NewEntry, Settings, Tablespace, WallTime};
use crate::disk::Half;
use crate::rows::RowId;

/// Which file a piece belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetadataFile {
    /// A journal.
    Journal(Half),
    /// A snapshot.
    Snapshot(Half),
}

/// Writes a snapshot, and the journal that continues it, of a device with so many blocks of one
/// granule each, with keys of 32 bytes in eight namespaces. Hands out whole blocks of 4096 bytes in
/// the order in which they are written: file, offset, bytes. Returns the tablespace.
///
/// # Panics
/// If the settings leave too little room for so many.
pub fn write_files(
    settings: Settings,
    entries: u32,
    mut sink: impl FnMut(MetadataFile, u64, &[u8]),
) -> Tablespace {
    let mut tablespace = Tablespace::new(settings);
    for number in 0..entries {
        insert(&mut tablespace, number);
        if number.is_multiple_of(1024) {
            write_all(&mut tablespace, &mut sink);
        }
    }
    tablespace.ask_snapshot();
    loop {
        write_all(&mut tablespace, &mut sink);
        if tablespace.is_settled() {
            return tablespace;
        }
    }
}

/// Writes what there is to write at the moment.
fn write_all(tablespace: &mut Tablespace, sink: &mut impl FnMut(MetadataFile, u64, &[u8])) {
    while let Some(write) = tablespace.next_batch(false) {
        sink(MetadataFile::Journal(write.half), write.offset, &write.bytes);
        tablespace.batch_written(write.sequence, true);
        if write.sync {
            tablespace.synced(write.sequence);
        }
    }
    while tablespace.has_snapshot_work() {
        if let Some(write) = tablespace.next_snapshot() {
            sink(MetadataFile::Snapshot(write.half), write.offset, &write.bytes);
            tablespace.snapshot_written(true);
        }
    }
}

fn insert(tablespace: &mut Tablespace, number: u32) {
    let class = if number.is_multiple_of(2) { Retention::Short } else { Retention::Long };
    let compat_key = ["tp1", "tp2", "tp3", "tp4", "tp5", "tp6", "tp7", "tp8"];
    let namespace =
        Namespace { model: "some/model-70b", compat_key: compat_key[number as usize % 8] };
    let mut key = [0x5a; 32];
    key[..4].copy_from_slice(&number.to_le_bytes());
    let Ok(extent) = tablespace.take_room(BLOCK_BYTES as u32, class) else {
        panic!("no room for block {number}");
    };
    let generation = tablespace.generation() + 1;
    let inserted = tablespace.insert(NewEntry {
        extent,
        namespace,
        key: &key,
        len_bytes: BLOCK_BYTES as u32,
        checksum: generation,
        class,
        expires_at: WallTime::NEVER,
        generation,
        lineage: None,
        host: RowId::NONE,
    });
    assert!(inserted.is_ok(), "block {number} cannot be remembered");
}

/// Settings that leave room for so many blocks.
#[must_use]
pub const fn settings_for(entries: u32) -> Settings {
    let space_bytes = entries as u64 * BLOCK_BYTES * 5 / 4 + (1 << 20);
    Settings {
        tag: 0x6b76_6469_6e66_6572,
        journal_bytes: 64 << 20,
        snapshot_bytes_max: entries as u64 * 128 + (1 << 20),
        space_bytes,
        expected_bytes: space_bytes,
        hash_seed: 0,
        now: WallTime(1),
    }
}
