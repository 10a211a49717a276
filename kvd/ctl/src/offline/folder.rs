//! The files of one device, found by the directory that the daemon calls a --long-path.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use kvd_store::Half;
use kvd_store::tablespace::geometry::{
    DIRECTORY, LOCK_NAME, SUPERBLOCK_NAME, container_name, journal_name, snapshot_name,
};
use kvd_store::tablespace::{BLOCK_BYTES, Superblock};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag};

/// Bytes read at once where order matters more than speed.
const PIECE_BYTES: usize = 1 << 20;
/// Longest text of a lock's holder that is shown.
const HOLDER_BYTES_MAX: u64 = 200;

/// A device's folder and what it says of itself.
#[derive(Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    pub(crate) superblock: Superblock,
}

/// What is no plain file is no reason to follow it or to wait for it.
const CAREFUL: OFlag = OFlag::O_NOFOLLOW.union(OFlag::O_NONBLOCK);

/// The right to use a device, until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    _held: Flock<File>,
}

impl Folder {
    /// Finds the device in `directory`, which may also be its own folder, and reads its superblock.
    pub(crate) fn open(directory: &Path) -> Result<Self> {
        let inside = directory.join(DIRECTORY);
        let path = if is_device(&inside)? {
            inside
        } else if is_device(directory)? {
            directory.to_path_buf()
        } else {
            bail!("{} holds no device of the disk tier", directory.display());
        };
        let mut bytes = Vec::new();
        let superblock = path.join(SUPERBLOCK_NAME);
        read_pieces(&open(&superblock, 0)?, 0, u64::MAX, |piece| bytes.extend_from_slice(piece))?;
        let superblock = Superblock::decode(&bytes)
            .with_context(|| format!("{}: nothing was touched", superblock.display()))?;
        Ok(Self { path, superblock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps daemons out.
    ///
    /// # Errors
    /// If a daemon, or another kvdctl, uses the device.
    pub(crate) fn lock(&self) -> Result<Lock> {
        let path = self.path.join(LOCK_NAME);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let lock = options.custom_flags(CAREFUL.bits()).open(&path);
        let lock = lock.with_context(|| path.display().to_string())?;
        match Flock::lock(lock, FlockArg::LockExclusiveNonblock) {
            Ok(held) => Ok(Lock { _held: held }),
            Err((lock, Errno::EWOULDBLOCK)) => {
                let mut holder = String::new();
                let _unreadable = lock.take(HOLDER_BYTES_MAX).read_to_string(&mut holder);
                let holder = Some(holder.trim()).filter(|text| !text.is_empty());
                let holder = holder.unwrap_or("another process");
                Err(anyhow!("{} is in use by {holder}: stop it first", self.path.display()))
            }
            Err((_, errno)) => Err(errno).with_context(|| path.display().to_string()),
        }
    }

    /// A journal file, for writing too if asked; none if it is not there.
    pub(crate) fn journal(&self, half: Half, writes: bool) -> Result<Option<File>> {
        self.file(journal_name(half), writes)
    }

    /// A snapshot file; none if it is not there.
    pub(crate) fn snapshot(&self, half: Half) -> Result<Option<File>> {
        self.file(snapshot_name(half), false)
    }

    /// Puts journals and snapshots on stable storage as they are read: what a killed daemon left in the page cache could
    /// get lost after a repair has built on it.
    pub(crate) fn settle(&self) -> Result<()> {
        for half in [Half::A, Half::B] {
            for file in [self.journal(half, false)?, self.snapshot(half)?].into_iter().flatten() {
                file.sync_all().with_context(|| format!("syncing {}", self.path.display()))?;
            }
        }
        Ok(())
    }

    fn file(&self, name: &str, writes: bool) -> Result<Option<File>> {
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.read(true).write(writes).custom_flags(CAREFUL.bits());
        match options.open(&path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Opens the containers for reading, past the page cache if that works. A missing one in
    /// between is none: its blocks are unreadable.
    pub(crate) fn containers(&self) -> Result<Vec<Option<File>>> {
        let mut containers = Vec::new();
        for number in 0..self.containers_end()? {
            let path = self.path.join(container_name(number));
            let direct = open(&path, kvd_disk::DIRECT);
            let refused = |error: &io::Error| error.kind() == ErrorKind::InvalidInput;
            let opened = if direct.as_ref().is_err_and(refused) { open(&path, 0) } else { direct };
            containers.push(match opened {
                Ok(file) => Some(file),
                Err(error) if error.kind() == ErrorKind::NotFound => None,
                Err(error) => return Err(error).with_context(|| path.display().to_string()),
            });
        }
        Ok(containers)
    }

    /// One more than the largest number of a container.
    fn containers_end(&self) -> Result<u32> {
        let mut end = 0;
        let entries = std::fs::read_dir(&self.path);
        for entry in entries.with_context(|| self.path.display().to_string())? {
            let name = entry?.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_prefix("container-")?.parse().ok());
            if let Some(number) = number.filter(|number| name == *container_name(*number)) {
                end = end.max(number.saturating_add(1));
            }
        }
        Ok(end)
    }
}

fn is_device(folder: &Path) -> Result<bool> {
    let superblock = folder.join(SUPERBLOCK_NAME);
    superblock.try_exists().with_context(|| superblock.display().to_string())
}

fn open(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(CAREFUL.bits() | flags).open(path)
}

/// Hands the bytes of a file from `at` on to `each`, `len` at most, in order; what the device cannot read as zeros. How
/// many bytes those are.
pub(crate) fn read_pieces(
    file: &File,
    at: u64,
    len: u64,
    mut each: impl FnMut(&[u8]),
) -> io::Result<u64> {
    let mut piece = vec![0; PIECE_BYTES];
    let (mut at, mut left, mut unreadable) = (at, len, 0);
    let mut step = PIECE_BYTES;
    while left > 0 {
        let wanted = step.min(usize::try_from(left).unwrap_or(PIECE_BYTES));
        let got = match file.read_at(&mut piece[..wanted], at) {
            Ok(0) => break,
            Ok(got) => got,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if !is_bad_sector(&error) => return Err(error),
            // Block by block, so that no more is lost than must be.
            Err(_) if step > BLOCK => {
                step = BLOCK;
                continue;
            }
            Err(_) => {
                piece[..wanted].fill(0);
                unreadable += wanted as u64;
                wanted
            }
        };
        each(&piece[..got]);
        at += got as u64;
        left -= got as u64;
        if at.is_multiple_of(PIECE_BYTES as u64) {
            step = PIECE_BYTES;
        }
    }
    Ok(unreadable)
}

#[expect(clippy::cast_possible_truncation, reason = "4096")]
const BLOCK: usize = BLOCK_BYTES as usize;

fn is_bad_sector(error: &io::Error) -> bool {
    let codes = [Errno::EIO, Errno::EREMOTEIO, Errno::ENODATA, Errno::EBADMSG];
    codes.iter().any(|code| error.raw_os_error() == Some(*code as i32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(folder: &Path) -> Superblock {
        let superblock = Superblock {
            set_id: [1; 16],
            device_id: [2; 16],
            container_bytes: 1 << 20,
            journal_bytes: 1 << 20,
            created_ms: 7,
        };
        std::fs::create_dir(folder).expect("a folder");
        std::fs::write(folder.join(SUPERBLOCK_NAME), superblock.encode()).expect("written");
        superblock
    }

    #[test]
    fn a_device_is_found_by_either_name_and_held_once() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join(DIRECTORY);
        let superblock = device(&folder);
        for name in [parent.path(), &folder] {
            let found = Folder::open(name).expect("a device");
            assert_eq!((found.path(), found.superblock), (folder.as_path(), superblock));
        }
        let found = Folder::open(parent.path()).expect("a device");
        let held = found.lock().expect("free");
        let refused = found.lock().expect_err("held").to_string();
        assert!(refused.contains("in use by another process"), "{refused}");
        drop(held);
        found.lock().expect("free again");
    }

    #[test]
    fn what_is_no_device_is_left_alone() {
        let parent = tempfile::tempdir().expect("a folder");
        assert!(Folder::open(parent.path()).is_err());
        assert_eq!(std::fs::read_dir(parent.path()).expect("a folder").count(), 0);
        device(&parent.path().join(DIRECTORY));
        let superblock = parent.path().join(DIRECTORY).join(SUPERBLOCK_NAME);
        std::fs::write(superblock, [0; 8192]).expect("written");
        let refused = Folder::open(parent.path()).expect_err("damaged");
        assert!(format!("{refused:#}").contains("neither copy"), "{refused:#}");
    }

    #[test]
    fn containers_are_counted_by_their_names() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join(DIRECTORY);
        device(&folder);
        for name in ["container-00000", "container-00002", "container-9", "container-x", "other"] {
            std::fs::write(folder.join(name), [7; 4096]).expect("written");
        }
        let containers = Folder::open(&folder).expect("a device").containers().expect("opened");
        let there: Vec<bool> = containers.iter().map(Option::is_some).collect();
        assert_eq!(there, [true, false, true]);
    }

    #[test]
    fn pieces_come_in_order_up_to_the_end() {
        let folder = tempfile::tempdir().expect("a folder");
        let bytes: Vec<u8> = (0..=255).cycle().take((2 << 20) + 77).collect();
        std::fs::write(folder.path().join("file"), &bytes).expect("written");
        let file = File::open(folder.path().join("file")).expect("opened");
        for (at, len) in [(0, u64::MAX), (5, 1 << 20), (5, 3), ((2 << 20) + 70, 100), (9 << 20, 1)]
        {
            let mut read = Vec::new();
            let unreadable = read_pieces(&file, at, len, |piece| read.extend_from_slice(piece));
            assert_eq!(unreadable.expect("read"), 0);
            let from = usize::try_from(at).expect("small").min(bytes.len());
            let end = bytes.len().min(from.saturating_add(usize::try_from(len).expect("64 bits")));
            assert!(read == bytes[from..end], "{at} {len}");
        }
    }
}
