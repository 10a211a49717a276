//! The files of a directory: opened, made, given their size. Nothing is ever opened through a link, and
//! a file that is there keeps its bytes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, OFlag, fallocate};

/// Opens a file for reading and writing, past the page cache if `direct`.
///
/// # Errors
/// As `open(2)`; `InvalidInput` where direct I/O is refused.
pub fn open(path: &Path, direct: bool) -> io::Result<File> {
    options(direct).open(path)
}

/// As [`open`], and makes the file if it is missing.
///
/// # Errors
/// As [`open`].
pub fn open_or_make(path: &Path, direct: bool) -> io::Result<File> {
    options(direct).create(true).truncate(false).mode(0o600).open(path)
}

fn options(direct: bool) -> OpenOptions {
    let mut flags = OFlag::O_NOFOLLOW;
    if direct {
        flags |= OFlag::O_DIRECT;
    }
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(flags.bits());
    options
}

/// How a file got its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sized {
    /// Every byte has its place on the device.
    Allocated,
    /// The file system cannot reserve places; bytes get theirs when they are written.
    Sparse,
}

/// Gives a file at least `bytes`, all of them with a place on the device if the file system can do
/// that. What is in the file stays.
///
/// # Errors
/// As `fallocate(2)`; out of space, some may have been added.
pub fn reserve(file: &File, bytes: u64) -> io::Result<Sized> {
    let len = i64::try_from(bytes).map_err(io::Error::other)?;
    match fallocate(file, FallocateFlags::empty(), 0, len) {
        Ok(()) => Ok(Sized::Allocated),
        Err(Errno::EOPNOTSUPP | Errno::ENOSYS) => {
            if file.metadata()?.len() < bytes {
                file.set_len(bytes)?;
            }
            Ok(Sized::Sparse)
        }
        Err(errno) => Err(errno.into()),
    }
}

/// Fills `bytes` from the beginning; what the file does not have stays as it is.
///
/// # Errors
/// As `read(2)`.
pub fn fill(file: &mut File, bytes: &mut [u8]) -> io::Result<()> {
    let mut at = 0;
    while at < bytes.len() {
        match file.read(&mut bytes[at..])? {
            0 => break,
            got => at += got,
        }
    }
    Ok(())
}

/// Whether an error says that the file system is full.
#[must_use]
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn a_file_keeps_its_bytes_and_gets_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "bytes").unwrap();
        let file = open_or_make(&path, false).unwrap();
        reserve(&file, 1 << 20).unwrap();
        let found = file.metadata().unwrap();
        assert_eq!(found.len(), 1 << 20);
        assert!(found.blocks() * 512 >= 1 << 20, "{} blocks", found.blocks());
        assert!(std::fs::read(&path).unwrap().starts_with(b"bytes\0"));
        reserve(&file, 1 << 10).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 1 << 20, "never smaller");
    }

    #[test]
    fn links_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        std::fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        open_or_make(&link, false).unwrap_err();
    }
}
