//! Who owns a directory of the disk tier. A lock on a file in our own sub-directory, held while the
//! daemon lives and dropped by the kernel with the process, keeps a second daemon out.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use kvd_store::tablespace::geometry::{DIRECTORY, LOCK_NAME};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Our sub-directory of one directory, and the right to use it.
#[derive(Debug)]
pub struct Claim {
    folder: PathBuf,
    handle: File,
    lock: Flock<File>,
}

/// Why a directory is not ours.
#[derive(Debug, thiserror::Error)]
pub enum ClaimFault {
    /// Another daemon uses it. Two daemons on one directory is a mistake in somebody's set-up, so
    /// the start is refused.
    #[error(
        "{} is used by {holder}: stop that daemon, or give this one another --long-path",
        path.display()
    )]
    Held {
        /// The directory as configured.
        path: PathBuf,
        /// Who says to hold it.
        holder: String,
    },
    /// It cannot be used; the daemon can do without it.
    #[error("{step} {}: {source}", path.display())]
    Unusable {
        /// What was being done.
        step: &'static str,
        /// To what.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Claim {
    /// Claims our sub-directory of `directory`, making both if they are missing.
    ///
    /// # Errors
    /// [`ClaimFault`].
    pub fn new(directory: &Path) -> Result<Self, ClaimFault> {
        let unusable = |step, path: &Path| {
            let path = path.to_path_buf();
            move |source| ClaimFault::Unusable { step, path, source }
        };
        fs::create_dir_all(directory).map_err(unusable("creating the directory", directory))?;
        let folder = directory.join(DIRECTORY);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(unusable("creating the directory", &folder))?,
        }
        let kind = fs::symlink_metadata(&folder).map_err(unusable("looking at", &folder))?;
        if !kind.is_dir() {
            let source = io::Error::from(io::ErrorKind::NotADirectory);
            return Err(unusable("using", &folder)(source));
        }
        let path = folder.join(LOCK_NAME);
        let file = open_lock(&path).map_err(unusable("opening the lock", &path))?;
        let mut lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((mut file, Errno::EWOULDBLOCK)) => {
                let holder = holder(&mut file);
                return Err(ClaimFault::Held { path: directory.to_path_buf(), holder });
            }
            Err((_, errno)) => return Err(unusable("locking", &path)(errno.into())),
        };
        sign(&mut lock).map_err(unusable("signing the lock", &path))?;
        let handle = File::open(&folder).map_err(unusable("opening", &folder))?;
        Ok(Self { folder, handle, lock })
    }

    /// The sub-directory, for whoever holds the claim.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The sub-directory itself, wherever it has been moved to.
    #[must_use]
    pub fn handle(&self) -> &File {
        &self.handle
    }

    /// Opens a file in the sub-directory, wherever that has been moved to, making it if it is missing; past
    /// the page cache if `direct`.
    ///
    /// # Errors
    /// As `openat(2)`; `NotFound` once the sub-directory has been removed.
    pub fn open_or_make(&self, name: &str, direct: bool) -> io::Result<File> {
        let mut flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        flags.set(OFlag::O_DIRECT, direct);
        let mode = Mode::from_bits_truncate(0o600);
        Ok(openat(&self.handle, name, flags, mode)?.into())
    }

    /// Removes a file from the sub-directory, wherever that has been moved to.
    ///
    /// # Errors
    /// As `unlinkat(2)`.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.handle, name, UnlinkatFlags::NoRemoveDir)?)
    }

    /// Whether what stands under the path is still what was claimed. False once it was removed, moved
    /// away or replaced: whoever starts next does not find what is written here.
    ///
    /// # Errors
    /// The system does not say.
    pub fn is_in_place(&self) -> io::Result<bool> {
        let own = self.lock.metadata()?;
        match fs::symlink_metadata(self.folder.join(LOCK_NAME)) {
            Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Whether an error says that there is nothing under a path.
pub(super) fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlag::O_NOFOLLOW.bits())
        .open(path)
}

fn sign(lock: &mut File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "infera-kvd, process {}", std::process::id())
}

/// Longest text of a holder that is read.
const HOLDER_BYTES_MAX: u64 = 200;

fn holder(lock: &mut File) -> String {
    let mut text = String::new();
    match lock.take(HOLDER_BYTES_MAX).read_to_string(&mut text) {
        Ok(_) if !text.trim().is_empty() => text.trim().to_owned(),
        Ok(_) | Err(_) => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_has_one_owner_who_is_named() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a/b");
        let claim = Claim::new(&directory).unwrap();
        let refused = Claim::new(&directory).unwrap_err();
        assert!(matches!(refused, ClaimFault::Held { .. }), "{refused}");
        let own = format!("process {}", std::process::id());
        assert!(refused.to_string().contains(&own), "{refused}");
        drop(claim);
        Claim::new(&directory).unwrap();
    }

    #[test]
    fn a_claim_knows_when_its_path_leads_elsewhere() {
        let parent = tempfile::tempdir().unwrap();
        let directory = parent.path().join("a");
        let claim = Claim::new(&directory).unwrap();
        assert!(claim.is_in_place().unwrap());
        let aside = parent.path().join("aside");
        fs::rename(&directory, &aside).unwrap();
        assert!(!claim.is_in_place().unwrap(), "moved");
        let other = Claim::new(&directory).unwrap();
        assert!(!claim.is_in_place().unwrap() && other.is_in_place().unwrap(), "replaced");
        claim.open_or_make("note", false).unwrap();
        assert!(fs::exists(aside.join(DIRECTORY).join("note")).unwrap(), "into what was claimed");
        fs::remove_dir_all(&aside).unwrap();
        assert_eq!(claim.open_or_make("note", false).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!claim.is_in_place().unwrap(), "removed");
    }

    #[test]
    fn what_is_in_the_way_is_left_alone() {
        let parent = tempfile::tempdir().unwrap();
        let in_the_way = parent.path().join(DIRECTORY);
        fs::write(&in_the_way, "mine").unwrap();
        let refused = Claim::new(parent.path()).unwrap_err();
        assert!(matches!(refused, ClaimFault::Unusable { .. }), "{refused}");
        assert_eq!(fs::read_to_string(&in_the_way).unwrap(), "mine");
    }

    #[test]
    fn a_lock_that_is_a_link_is_not_followed() {
        let parent = tempfile::tempdir().unwrap();
        let target = parent.path().join("target");
        fs::write(&target, "mine").unwrap();
        fs::create_dir(parent.path().join(DIRECTORY)).unwrap();
        let lock = parent.path().join(DIRECTORY).join(LOCK_NAME);
        std::os::unix::fs::symlink(&target, lock).unwrap();
        Claim::new(parent.path()).unwrap_err();
        assert_eq!(fs::read_to_string(&target).unwrap(), "mine");
    }
}
