//! Who owns the socket path: a live socket is never stolen, a stale one is replaced.
//!
//! Ownership is a lock on `<socket>.lock`, held while the daemon lives; the kernel drops it with
//! the process. A daemon of another make knows no such lock, so the path is also tried with a
//! connection. The socket appears under its final name only once its mode and group are right.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::socket::{Backlog, getsockopt, listen, sockopt};
use nix::sys::stat::{Mode, umask};
use nix::unistd::{Gid, chown};

/// Why a socket path could not be claimed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// Another daemon serves the path.
    #[error(
        "{} is served by {holder}: stop that daemon, take over from it at its own --takeover-socket, or give this one its own --socket",
        path.display()
    )]
    Held {
        /// The socket path.
        path: PathBuf,
        /// Who holds it, as far as the kernel tells.
        holder: String,
    },
    /// The path exists and is no socket.
    #[error("{} exists and is not a socket: choose another path, or remove what is there", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The system refused a step.
    #[error("{step} {}: {source}{}", path.display(), what_to_do(source))]
    System {
        /// What was being done.
        step: &'static str,
        /// The path it was done to.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

fn what_to_do(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "; choose another path, or start as a user who may write there"
        }
        _ => "",
    }
}

/// A listening socket whose path belongs to this process.
#[derive(Debug)]
pub struct Claim {
    listener: UnixListener,
    path: PathBuf,
    inode: u64,
    lock: File,
    /// Whether what stands under the path goes with this value.
    is_ours: AtomicBool,
}

/// Why a claim of another process is not taken over.
#[derive(Debug, thiserror::Error)]
pub enum InheritFault {
    /// It is something else.
    #[error("what was handed over for {} is no socket that listens", path.display())]
    NoListener {
        /// The path.
        path: PathBuf,
    },
    /// It does not belong to the path.
    #[error("what was handed over for {} is not the lock of that path: both daemons need the same sockets", path.display())]
    NoLock {
        /// The path.
        path: PathBuf,
    },
    /// The system refused a step.
    #[error("taking over {}: {source}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl Claim {
    /// Claims `path` and listens there. `mode` is the socket's permission bits; `group` its group.
    ///
    /// # Errors
    /// [`ClaimError`]: the path is held, is no socket, or the system refuses. Nothing but
    /// the lock's file is left behind then.
    pub fn new(path: &Path, mode: u32, group: Option<u32>) -> Result<Self, ClaimError> {
        let failed = |step, path: &Path| {
            let path = path.to_path_buf();
            move |source| ClaimError::System { step, path, source }
        };
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(failed("creating the folder", parent))?;
        }
        // Before the lock, which would leave its file beside whatever is there.
        refuse_other_kinds(path)?;
        let lock = lock(path)?;
        clear_stale(path)?;
        // Bound under another name first: no client can connect before mode and group are set.
        let early = with_suffix(path, &format!(".{}.new", std::process::id()));
        remove_if_there(&early).map_err(failed("removing", &early))?;
        let before = umask(Mode::from_bits_truncate(0o177));
        let bound = UnixListener::bind(&early);
        umask(before);
        let listener = bound.map_err(failed("binding", &early))?;
        let finish = || {
            if let Some(group) = group {
                chown(&early, None, Some(Gid::from_raw(group)))?;
            }
            fs::set_permissions(&early, fs::Permissions::from_mode(mode))?;
            let inode = fs::symlink_metadata(&early)?.ino();
            fs::rename(&early, path)?;
            listener.set_nonblocking(true)?;
            Ok(inode)
        };
        match finish() {
            Ok(inode) => Ok(Self {
                listener,
                path: path.to_path_buf(),
                inode,
                lock,
                is_ours: AtomicBool::new(true),
            }),
            Err(source) => {
                drop(remove_if_there(&early));
                Err(failed("preparing the socket", path)(source))
            }
        }
    }

    /// Takes over a claim of `path` that another process has and passes: its listener, its lock, and the number of what it
    /// has put under the path. Both have it until the other one ends, or until [`Claim::is_handed_over`] there; until
    /// [`Claim::sign`] the path stays the other one's, whatever becomes of this value.
    ///
    /// # Errors
    /// [`InheritFault`]: they are not what they should be.
    pub fn inherit(
        path: &Path,
        listener: OwnedFd,
        lock: OwnedFd,
        inode: u64,
    ) -> Result<Self, InheritFault> {
        let path = path.to_path_buf();
        let listens = getsockopt(&listener, sockopt::AcceptConn).unwrap_or(false);
        let listener = UnixListener::from(listener);
        if !listens || listener.local_addr().is_err() {
            return Err(InheritFault::NoListener { path });
        }
        let lock = File::from(lock);
        let is_of_path = fs::symlink_metadata(with_suffix(&path, ".lock"))
            .and_then(|found| Ok((found.dev(), found.ino(), lock.metadata()?)))
            .is_ok_and(|(dev, ino, held)| (dev, ino) == (held.dev(), held.ino()));
        // Whoever shares the open file has the lock already; it is refused only if somebody else has it.
        if !is_of_path || lock.try_lock().is_err() {
            return Err(InheritFault::NoLock { path });
        }
        if let Err(source) = listener.set_nonblocking(true) {
            return Err(InheritFault::System { path, source });
        }
        Ok(Self { listener, path, inode, lock, is_ours: AtomicBool::new(false) })
    }

    /// From now on this process is the one that peers see at the path, and that the next one names.
    ///
    /// # Errors
    /// As `listen(2)`, or the lock could not be written.
    pub fn sign(&self) -> io::Result<()> {
        self.is_ours.store(true, Ordering::Relaxed);
        // Peers learn from the kernel who called this last.
        listen(&self.listener, Backlog::MAXCONN)?;
        sign(&self.lock)
    }

    /// Listener and lock, to be passed to a successor, and the number of what stands under the path.
    #[must_use]
    pub fn parts(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>, u64) {
        (self.listener.as_fd(), self.lock.as_fd(), self.inode)
    }

    /// The path is a successor's: it stays when this value goes.
    pub fn is_handed_over(&self) {
        self.is_ours.store(false, Ordering::Relaxed);
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection, if one waits.
    ///
    /// # Errors
    /// As `accept(2)`; `WouldBlock` when none waits.
    pub fn accept(&self) -> io::Result<UnixStream> {
        let (stream, _) = self.listener.accept()?;
        // Accepted sockets do not inherit the listener's non-blocking mode on Linux.
        Ok(stream)
    }
}

impl AsFd for Claim {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        // Only our own socket: somebody may have put another one in its place.
        if !*self.is_ours.get_mut() {
            return;
        }
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode);
        if ours {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Takes the lock beside the socket and writes our pid into it, for the next one to name.
fn lock(socket: &Path) -> Result<File, ClaimError> {
    let path = with_suffix(socket, ".lock");
    let system = |step| {
        let path = path.clone();
        move |source| ClaimError::System { step, path, source }
    };
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .map_err(system("opening the lock"))?;
    match file.try_lock() {
        Ok(()) => {
            sign(&file).map_err(system("writing the lock"))?;
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let holder = match file.read_to_string(&mut pid) {
                Ok(_) if !pid.trim().is_empty() => format!("the daemon with pid {}", pid.trim()),
                _ => "another daemon".to_owned(),
            };
            Err(ClaimError::Held { path: socket.to_path_buf(), holder })
        }
        Err(TryLockError::Error(error)) => Err(system("locking")(error)),
    }
}

fn sign(mut lock: &File) -> io::Result<()> {
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())
}

/// Whether a socket is at the path; an error if anything else is.
fn refuse_other_kinds(path: &Path) -> Result<bool, ClaimError> {
    let path = path.to_path_buf();
    match fs::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => Err(ClaimError::System { step: "looking at", path, source }),
        Ok(found) if found.file_type().is_socket() => Ok(true),
        Ok(_) => Err(ClaimError::NotASocket { path }),
    }
}

/// Removes a socket that nobody listens on; refuses a live one and anything else.
fn clear_stale(path: &Path) -> Result<(), ClaimError> {
    let system = |step| {
        let path = path.to_path_buf();
        move |source| ClaimError::System { step, path, source }
    };
    if !refuse_other_kinds(path)? {
        return Ok(());
    }
    match UnixStream::connect(path) {
        Ok(stream) => {
            let holder = kvd_shm::peer::credentials(&stream)
                .ok()
                .and_then(|peer| peer.pid)
                .map_or_else(|| "another process".to_owned(), |pid| format!("pid {pid}"));
            Err(ClaimError::Held { path: path.to_path_buf(), holder })
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            remove_if_there(path).map_err(system("removing the stale socket"))
        }
        Err(error) => Err(system("probing the existing socket")(error)),
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_socket_is_refused_and_its_holder_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvd.sock");
        let first = Claim::new(&path, 0o700, None).unwrap();
        let refused = Claim::new(&path, 0o700, None).unwrap_err();
        assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
        drop(first);
        assert!(!path.try_exists().unwrap(), "removed at the end");
        Claim::new(&path, 0o700, None).unwrap();
    }

    #[test]
    fn a_claim_is_handed_over_without_a_gap() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvd.sock");
        let first = Claim::new(&path, 0o700, None).unwrap();
        let (listener, lock, inode) = first.parts();
        let copy = |part: BorrowedFd<'_>| part.try_clone_to_owned().unwrap();
        let second = Claim::inherit(&path, copy(listener), copy(lock), inode).unwrap();
        let early = UnixStream::connect(&path).unwrap();
        first.is_handed_over();
        drop(first);
        second.sign().unwrap();
        second.accept().unwrap();
        drop(early);
        let refused = Claim::new(&path, 0o700, None).unwrap_err();
        assert!(matches!(refused, ClaimError::Held { .. }), "the lock is held on: {refused}");
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.try_exists().unwrap(), "removed at the end");
    }

    #[test]
    fn a_claim_that_is_not_taken_over_after_all_stays_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvd.sock");
        let first = Claim::new(&path, 0o700, None).unwrap();
        let (listener, lock, inode) = first.parts();
        let copy = |part: BorrowedFd<'_>| part.try_clone_to_owned().unwrap();
        drop(Claim::inherit(&path, copy(listener), copy(lock), inode).unwrap());
        UnixStream::connect(&path).unwrap();
        assert!(matches!(Claim::new(&path, 0o700, None), Err(ClaimError::Held { .. })));
    }

    #[test]
    fn what_is_no_claim_of_the_path_is_not_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        let (path, other) = (folder.path().join("kvd.sock"), folder.path().join("other.sock"));
        let (claim, foreign) =
            (Claim::new(&path, 0o700, None).unwrap(), Claim::new(&other, 0o700, None).unwrap());
        let copy = |part: BorrowedFd<'_>| part.try_clone_to_owned().unwrap();
        let (listener, lock, inode) = claim.parts();
        let no_lock = Claim::inherit(&path, copy(listener), copy(foreign.parts().1), inode);
        assert!(matches!(no_lock, Err(InheritFault::NoLock { .. })));
        let (connected, _peer) = UnixStream::pair().unwrap();
        let no_listener = Claim::inherit(&path, connected.into(), copy(lock), inode);
        assert!(matches!(no_listener, Err(InheritFault::NoListener { .. })));
        // Opened anew, the lock is not shared, and somebody else has it.
        let file = File::open(folder.path().join("kvd.sock.lock")).unwrap();
        let held = Claim::inherit(&path, copy(listener), file.into(), inode);
        assert!(matches!(held, Err(InheritFault::NoLock { .. })));
    }

    #[test]
    fn a_daemon_without_our_lock_is_noticed_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvd.sock");
        let _foreign = UnixListener::bind(&path).unwrap();
        assert!(matches!(Claim::new(&path, 0o700, None), Err(ClaimError::Held { .. })));
    }

    #[test]
    fn a_stale_socket_is_replaced_and_gets_the_mode() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/kvd.sock");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        let _claim = Claim::new(&path, 0o660, None).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        UnixStream::connect(&path).unwrap();
    }

    #[test]
    fn a_plain_file_is_never_removed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kvd.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(Claim::new(&path, 0o700, None), Err(ClaimError::NotASocket { .. })));
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "and nothing is put beside it");
    }
}
