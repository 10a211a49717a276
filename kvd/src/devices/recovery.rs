//! Reading what a directory held: the chosen snapshot and both journals stream through the store's
//! recovery, which only sees bytes. What cannot be read is handed over as zeros.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;

use std::path::Path;

use kvd_store::Half;
use kvd_store::tablespace::geometry::{journal_name, snapshot_name};
use kvd_store::tablespace::recovery::{Recovery, Report};
use kvd_store::tablespace::{SEGMENTS_OFFSET, Settings, Tablespace};

use super::files;
use super::pieces::BLOCK_BYTES;

/// Bytes read at a time.
const STEP_BYTES: usize = 1 << 20;

/// Recovers the tablespace of a directory. Files that cannot even be opened count as empty.
///
/// # Errors
/// A file is there but cannot be opened.
pub fn recover(folder: &Path, settings: Settings) -> io::Result<(Tablespace, Report)> {
    let snapshots = pair(folder, snapshot_name)?;
    let journals = pair(folder, journal_name)?;
    let mut recovery = Recovery::new(settings);
    let [a, b] = snapshots.each_ref().map(|file| start(file.as_ref(), SEGMENTS_OFFSET));
    if let Some((half, head)) = recovery.choose_snapshot(&a, &b)
        && let Some(file) = &snapshots[index(half)]
    {
        stream(file, SEGMENTS_OFFSET, head.end_offset, |bytes| recovery.feed_snapshot(bytes));
    }
    for half in recovery.journal_order() {
        let Some(file) = &journals[index(half)] else {
            continue;
        };
        let len_bytes = file.metadata()?.len().min(settings.journal_bytes);
        recovery.begin_journal(half);
        stream(file, 0, len_bytes, |bytes| recovery.feed_journal(bytes));
    }
    Ok(recovery.finish())
}

const fn index(half: Half) -> usize {
    match half {
        Half::A => 0,
        Half::B => 1,
    }
}

fn pair(folder: &Path, name: fn(Half) -> &'static str) -> io::Result<[Option<File>; 2]> {
    let open = |half| match files::open(&folder.join(name(half)), false) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    };
    Ok([open(Half::A)?, open(Half::B)?])
}

/// The first bytes of a file, as far as it has any.
fn start(file: Option<&File>, most_bytes: u64) -> Vec<u8> {
    let mut all = Vec::new();
    if let Some(file) = file {
        let len_bytes = file.metadata().map_or(0, |found| found.len());
        stream(file, 0, most_bytes.min(len_bytes), |bytes| all.extend_from_slice(bytes));
    }
    all
}

/// Hands over a range of a file piece by piece. A block that cannot be read is handed over as zeros.
fn stream(file: &File, from: u64, to: u64, mut take: impl FnMut(&[u8])) {
    let mut buffer = vec![0; STEP_BYTES];
    let mut at = from;
    while at < to {
        let wanted = usize::try_from(to - at).unwrap_or(usize::MAX).min(STEP_BYTES);
        if file.read_exact_at(&mut buffer[..wanted], at).is_err() {
            read_block_by_block(file, &mut buffer[..wanted], at);
        }
        take(&buffer[..wanted]);
        at += wanted as u64;
    }
}

fn read_block_by_block(file: &File, buffer: &mut [u8], at: u64) {
    let block = usize::try_from(BLOCK_BYTES).unwrap_or(buffer.len());
    for (number, piece) in buffer.chunks_mut(block).enumerate() {
        if file.read_exact_at(piece, at + (number * block) as u64).is_err() {
            piece.fill(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use kvd_store::tablespace::WallTime;

    use super::*;

    fn settings() -> Settings {
        Settings {
            tag: 7,
            journal_bytes: 1 << 20,
            snapshot_bytes_max: 1 << 20,
            space_bytes: 1 << 20,
            expected_bytes: 1 << 20,
            hash_seed: 0,
            now: WallTime(0),
        }
    }

    #[test]
    fn nothing_and_garbage_recover_to_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let (_, report) = recover(folder.path(), settings()).unwrap();
        assert_eq!(report.entries, 0);
        for half in [Half::A, Half::B] {
            std::fs::write(folder.path().join(journal_name(half)), vec![0xA5; 70_000]).unwrap();
            std::fs::write(folder.path().join(snapshot_name(half)), vec![0x5A; 70_000]).unwrap();
        }
        let (tablespace, report) = recover(folder.path(), settings()).unwrap();
        assert_eq!((report.entries, tablespace.figures().entries), (0, 0));
    }

    #[test]
    fn what_is_beyond_the_end_of_a_file_is_zeros() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![1; 5_000]).unwrap();
        let mut all = Vec::new();
        stream(&File::open(&path).unwrap(), 0, 12_288, |bytes| all.extend_from_slice(bytes));
        assert_eq!(all.len(), 12_288);
        assert!(all[..4096].iter().all(|byte| *byte == 1));
        assert!(all[8192..].iter().all(|byte| *byte == 0));
    }
}
