//! What a directory can do, measured once in the background: the speed of the first bytes that growth
//! writes anyway, and of reading a container. Nothing is written for it, and at most 64 MiB are read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use kvd_disk::AlignedBuffer;

/// Most bytes that are read.
const READ_BYTES: u64 = 64 << 20;
/// Bytes of one read.
const STEP_BYTES: usize = 1 << 20;
/// The check gives up after this time: what it knows by then is enough.
const PATIENCE: Duration = Duration::from_secs(2);

/// Bytes and the time that they took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Measured {
    /// Bytes moved.
    pub bytes: u64,
    /// In this time.
    pub took: Duration,
}

impl Measured {
    /// Adds more of the same.
    pub fn add(&mut self, bytes: u64, took: Duration) {
        self.bytes += bytes;
        self.took += took;
    }

    /// Bytes in a second; 0 if nothing was moved.
    #[must_use]
    pub fn bytes_per_second(&self) -> u64 {
        let took_us = self.took.as_micros().max(1);
        u64::try_from(u128::from(self.bytes) * 1_000_000 / took_us).unwrap_or(u64::MAX)
    }
}

/// Reads the beginning of a container.
///
/// # Errors
/// As `pread(2)`.
pub fn read(container: &File) -> io::Result<Measured> {
    let mut buffer = AlignedBuffer::zeroed(STEP_BYTES);
    let mut measured = Measured::default();
    while measured.bytes < READ_BYTES && measured.took < PATIENCE {
        let began = Instant::now();
        let got = container.read_at(&mut buffer, measured.bytes)?;
        if got == 0 {
            break;
        }
        measured.add(got as u64, began.elapsed());
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_container_is_read_to_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("container");
        std::fs::write(&path, vec![1; (2 << 20) + 5]).unwrap();
        let measured = read(&File::open(&path).unwrap()).unwrap();
        assert_eq!(measured.bytes, (2 << 20) + 5);
        assert!(measured.bytes_per_second() > 0);
        assert_eq!(Measured::default().bytes_per_second(), 0);
    }
}
