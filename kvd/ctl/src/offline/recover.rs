//! What is known of the blocks of a device: read as the daemon reads it when it starts, and the repair.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use kvd_store::Half;
use kvd_store::tablespace::recovery::{Recovery, Report};
use kvd_store::tablespace::{SEGMENTS_OFFSET, Settings, Tablespace, WallTime};

use super::folder::{Folder, read_pieces};

/// Reads snapshots and journals. `containers` is how many there are.
pub(crate) fn recover(folder: &Folder, containers: usize) -> Result<(Tablespace, Report)> {
    let superblock = folder.superblock;
    let space_bytes = containers as u64 * superblock.container_bytes;
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let mut recovery = Recovery::new(Settings {
        tag: superblock.tag(),
        journal_bytes: superblock.journal_bytes,
        // Whatever is on the device is looked at, however small its share has become.
        snapshot_bytes_max: u64::MAX,
        space_bytes,
        expected_bytes: space_bytes,
        hash_seed: 0,
        now: WallTime(u64::try_from(now_ms)?),
    });
    let [a, b] = [folder.snapshot(Half::A)?, folder.snapshot(Half::B)?];
    let heads = [beginning(a.as_ref(), SEGMENTS_OFFSET)?, beginning(b.as_ref(), SEGMENTS_OFFSET)?];
    if let Some((half, head)) = recovery.choose_snapshot(&heads[0], &heads[1])
        && let Some(file) = pick(half, &a, &b)
    {
        let len = head.end_offset - SEGMENTS_OFFSET;
        read_pieces(file, SEGMENTS_OFFSET, len, |piece| recovery.feed_snapshot(piece))?;
    }
    let [a, b] = [folder.journal(Half::A, false)?, folder.journal(Half::B, false)?];
    for half in recovery.journal_order() {
        if let Some(file) = pick(half, &a, &b) {
            recovery.begin_journal(half);
            read_pieces(file, 0, superblock.journal_bytes, |piece| recovery.feed_journal(piece))?;
        }
    }
    Ok(recovery.finish())
}

fn pick<'a>(half: Half, a: &'a Option<File>, b: &'a Option<File>) -> Option<&'a File> {
    match half {
        Half::A => a.as_ref(),
        Half::B => b.as_ref(),
    }
}

fn beginning(file: Option<&File>, len: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(file) = file {
        read_pieces(file, 0, len, |piece| bytes.extend_from_slice(piece))?;
    }
    Ok(bytes)
}

/// Writes down what was dropped from the tablespace.
pub(crate) fn write_repairs(folder: &Folder, tablespace: &mut Tablespace) -> Result<()> {
    while let Some(write) = tablespace.next_repair_write() {
        let file = folder.journal(write.half, true)?.context("the journal is missing")?;
        file.write_all_at(&write.bytes, write.offset).context("writing the journal")?;
        file.sync_all().context("syncing the journal")?;
        tablespace.repair_written(&write);
    }
    if tablespace.needs_repair_writes() {
        bail!(
            "the journal is full: start the daemon once, so that it begins another, and try again"
        );
    }
    Ok(())
}
