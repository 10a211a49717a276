//! Who owns a directory of the disk tier. A lock on a file in our own sub-directory, held while the
//! daemon lives and dropped by the kernel with the process, keeps a second daemon out.

use std::fs::{self, DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
};
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
    /// Something else stands where it, or our sub-directory of it, should be.
    #[error(transparent)]
    InTheWay(#[from] Obstacle),
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

/// What stands where a directory should be.
#[derive(Debug, thiserror::Error)]
#[error("{} is {found}, not a directory: {remedy}", path.display())]
pub struct Obstacle {
    /// The directory, our sub-directory, or a folder above.
    pub path: PathBuf,
    /// What is there.
    pub found: &'static str,
    /// The way out.
    pub remedy: &'static str,
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
        fs::create_dir_all(directory).map_err(|source| {
            match Obstacle::on_the_way_to(directory) {
                Some(obstacle) => obstacle.into(),
                None => unusable("creating the directory", directory)(source),
            }
        })?;
        let folder = directory.join(DIRECTORY);
        match DirBuilder::new().mode(0o700).create(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => made.map_err(unusable("creating the directory", &folder))?,
        }
        let kind = fs::symlink_metadata(&folder).map_err(unusable("looking at", &folder))?;
        if !kind.is_dir() {
            let remedy = "move it away, or give another --long-path";
            return Err(Obstacle { path: folder, found: named(&kind), remedy }.into());
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

impl Obstacle {
    /// What keeps a directory from being made, if it is something that is no directory.
    #[must_use]
    pub fn on_the_way_to(directory: &Path) -> Option<Self> {
        // A link that leads nowhere is in the way by itself.
        let look = |path| fs::metadata(path).or_else(|_nowhere| fs::symlink_metadata(path));
        let mut there = directory.ancestors().filter_map(|path| Some((path, look(path).ok()?)));
        let (path, kind) = there.next().filter(|(_, kind)| !kind.is_dir())?;
        let remedy = if kind.file_type().is_block_device() {
            "give --long-path a directory of the file system on it"
        } else {
            "give --long-path a directory, or move this out of its way"
        };
        Some(Self { path: path.to_path_buf(), found: named(&kind), remedy })
    }
}

fn named(kind: &Metadata) -> &'static str {
    let kind = kind.file_type();
    if kind.is_file() {
        "a file"
    } else if kind.is_symlink() {
        "a link"
    } else if kind.is_block_device() {
        "a device"
    } else {
        "something else"
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
        assert!(
            refused.to_string().contains("infera-kvd is a file, not a directory: move it away")
        );
        for path in [in_the_way.clone(), in_the_way.join("below")] {
            let refused = Claim::new(&path).unwrap_err().to_string();
            let named = format!("{} is a file, not a directory: give", in_the_way.display());
            assert!(refused.starts_with(&named), "{refused}");
        }
        assert_eq!(fs::read_to_string(&in_the_way).unwrap(), "mine");
        let link = parent.path().join("link");
        std::os::unix::fs::symlink("/nonexistent/folder", &link).unwrap();
        let refused = Claim::new(&link).unwrap_err().to_string();
        assert!(refused.contains("link is a link, not a directory"), "{refused}");
        let refused = Claim::new(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(refused.contains("is something else, not a directory"), "{refused}");
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
