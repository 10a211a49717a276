//! Who is at the other end of a Unix socket, and a descriptor that tells when that process is gone.

#![expect(unsafe_code, reason = "pidfd_open and SO_PEERPIDFD, which nix does not wrap")]

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt};

/// The peer as it was when it connected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PeerCredentials {
    /// Its process, as numbered here; `None` if it lives in a PID namespace that is not visible
    /// here.
    pub pid: Option<i32>,
    /// Its effective user.
    pub uid: u32,
    /// Its effective group.
    pub gid: u32,
}

/// Asks the kernel who connected (`SO_PEERCRED`).
///
/// # Errors
/// If the socket is not connected.
pub fn credentials(socket: &UnixStream) -> io::Result<PeerCredentials> {
    let found = getsockopt(socket, sockopt::PeerCredentials)?;
    let pid = Some(found.pid()).filter(|pid| *pid > 0);
    Ok(PeerCredentials { pid, uid: found.uid(), gid: found.gid() })
}

/// Why the kernel gave no descriptor of the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NoPidfd {
    /// The peer's process is gone already.
    #[error("the peer's process has exited")]
    Exited,
    /// The kernel is too old (before 6.5) or a filter forbids the question.
    #[error("the kernel gives no descriptor of the peer's process")]
    Unavailable(#[source] Errno),
}

/// A descriptor of the process that connected (`SO_PEERPIDFD`), close-on-exec. Needs no PID that is
/// visible here, so it works across PID namespaces.
///
/// # Errors
/// If the process is gone, or if the kernel does not give such descriptors.
pub fn pidfd(socket: &UnixStream) -> Result<OwnedFd, NoPidfd> {
    let mut raw: RawFd = -1;
    let mut len: libc::socklen_t = 4;
    // SAFETY: the kernel writes at most `len` bytes to `raw`, which has four.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PEERPIDFD,
            (&raw mut raw).cast(),
            &raw mut len,
        )
    };
    match Errno::result(result) {
        // SAFETY: the kernel opened `raw` for this call; nobody else knows it.
        Ok(_zero) => Ok(unsafe { OwnedFd::from_raw_fd(raw) }),
        // 6.5 to 6.8 answer EINVAL for a process that was reaped, later ones ESRCH.
        Err(Errno::ESRCH | Errno::EINVAL) => Err(NoPidfd::Exited),
        Err(errno) => Err(NoPidfd::Unavailable(errno)),
    }
}

/// `SO_PEERPIDFD` of `asm-generic/socket.h`: not yet among libc's constants.
const SO_PEERPIDFD: libc::c_int = 77;

/// A descriptor of this process, close-on-exec, to pass to a daemon whose kernel cannot make one
/// from the socket.
///
/// # Errors
/// If the kernel is too old (before 5.3) or a filter forbids it.
pub fn own_pidfd() -> io::Result<OwnedFd> {
    Ok(pidfd_open(std::process::id())?)
}

fn pidfd_open(pid: u32) -> Result<OwnedFd, Errno> {
    // SAFETY: takes two integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let raw = Errno::result(result)?;
    let raw = RawFd::try_from(raw).map_err(|_out_of_range| Errno::EBADF)?;
    // SAFETY: the kernel opened `raw` for this call; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// A process by its number and by when it started, in ticks of the clock since the host did: no other process of this
/// PID namespace, before or after, has both.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Identity {
    /// Its number here.
    pub pid: u32,
    /// When it started.
    pub started: u64,
}

/// What became of a process that was known by its [`Identity`].
#[derive(Debug)]
pub enum Traced {
    /// It has exited.
    Gone,
    /// It lives; the descriptor tells when it does not any more.
    Lives(OwnedFd),
    /// Nobody can tell.
    Unknowable(io::Error),
}

/// How a successor of this process can find the process behind `pidfd`, which the kernel calls `pid`. `None` if it has
/// exited, or if when it started is not to be seen here.
#[must_use]
pub fn identity(pid: i32, pidfd: BorrowedFd<'_>) -> Option<Identity> {
    let pid = u32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    let started = started(pid).ok()?;
    // Asked afterwards: until it exits, nobody else can have its number.
    has_exited(pidfd).is_ok_and(|exited| !exited).then_some(Identity { pid, started })
}

/// Looks for a process that an earlier process of this PID namespace knew.
#[must_use]
pub fn trace(identity: Identity) -> Traced {
    let pidfd = match pidfd_open(identity.pid) {
        Ok(pidfd) => pidfd,
        // Nobody has the number, or a thread of another process (`EINVAL`, `ENOENT` on newer kernels).
        Err(Errno::ESRCH | Errno::EINVAL | Errno::ENOENT) => return Traced::Gone,
        Err(errno) => return Traced::Unknowable(errno.into()),
    };
    match started(identity.pid) {
        Ok(started) if started == identity.started => Traced::Lives(pidfd),
        Ok(_another) => Traced::Gone,
        // Exited since, or hidden from us: only the descriptor can tell.
        Err(error) => match has_exited(pidfd.as_fd()) {
            Ok(true) => Traced::Gone,
            Ok(false) | Err(_) => Traced::Unknowable(error),
        },
    }
}

/// Which PID namespace the numbers of this process belong to. A number comes again once its namespace, and so every
/// process in it, is gone.
///
/// # Errors
/// If `/proc` does not tell.
pub fn pid_namespace() -> io::Result<u64> {
    Ok(fs::metadata("/proc/self/ns/pid")?.ino())
}

fn has_exited(pidfd: BorrowedFd<'_>) -> Result<bool, Errno> {
    let mut waits = [PollFd::new(pidfd, PollFlags::POLLIN)];
    Ok(poll(&mut waits, PollTimeout::ZERO)? > 0)
}

/// Field 22 of `/proc/PID/stat`.
fn started(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    started_of(&stat).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
}

fn started_of(stat: &str) -> Option<u64> {
    // The name, second field, may hold anything; the third field follows the last bracket.
    let (_, rest) = stat.rsplit_once(')')?;
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

/// Why a descriptor that a peer passed is not taken for a descriptor of that peer.
#[derive(Debug, thiserror::Error)]
pub enum NotThePeer {
    /// It is no process descriptor at all.
    #[error("the descriptor does not stand for a process")]
    NotAPidfd,
    /// It names a process that is gone; nothing says that this was the peer.
    #[error("the descriptor's process has exited")]
    Exited,
    /// The peer or the process is in a PID namespace that is not visible here.
    #[error("the peer's process has no number here")]
    Invisible,
    /// It names another process.
    #[error("the descriptor stands for process {found}, the peer is process {peer}")]
    Another {
        /// The process that the descriptor stands for.
        found: i32,
        /// The process that connected.
        peer: i32,
    },
    /// The question could not be asked.
    #[error("asking what the descriptor stands for")]
    Unreadable(#[source] io::Error),
}

/// Checks that a descriptor which a peer passed stands for the process that connected.
///
/// # Errors
/// If it does not, or if that cannot be told.
pub fn verify_pidfd(descriptor: BorrowedFd<'_>, peer: &PeerCredentials) -> Result<(), NotThePeer> {
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    let found = process_of(&fs::read_to_string(path).map_err(NotThePeer::Unreadable)?)?;
    match peer.pid {
        None => Err(NotThePeer::Invisible),
        Some(peer) if peer == found => Ok(()),
        Some(peer) => Err(NotThePeer::Another { found, peer }),
    }
}

/// Whether a descriptor stands for a process, of whatever state.
#[must_use]
pub fn is_pidfd(descriptor: BorrowedFd<'_>) -> bool {
    let path = format!("/proc/self/fdinfo/{}", descriptor.as_raw_fd());
    fs::read_to_string(path)
        .is_ok_and(|fdinfo| !matches!(process_of(&fdinfo), Err(NotThePeer::NotAPidfd)))
}

/// Reads the `Pid:` line that a process descriptor, and no other, has in `fdinfo`.
fn process_of(fdinfo: &str) -> Result<i32, NotThePeer> {
    let number = fdinfo.lines().find_map(|line| line.strip_prefix("Pid:"));
    match number.and_then(|number| number.trim().parse().ok()) {
        None => Err(NotThePeer::NotAPidfd),
        Some(-1) => Err(NotThePeer::Exited),
        Some(0) => Err(NotThePeer::Invisible),
        Some(pid) => Ok(pid),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn when_a_process_started_stands_behind_any_name() {
        let stat = "7 (a) b ) c) S 1 7 7 0 -1 4 5 6 7 8 9 10 11 12 20 0 1 0 4711 1 2 3\n";
        assert_eq!(started_of(stat), Some(4711));
        assert_eq!(started_of("7 (a) S 1"), None);
        assert_eq!(started_of(""), None);
    }

    #[test]
    fn a_process_is_found_again_while_it_lives_and_no_other_is_taken_for_it() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pidfd = pidfd_open(child.id()).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let known = identity(pid, pidfd.as_fd()).unwrap();
        assert!(matches!(trace(known), Traced::Lives(_)));
        let another = Identity { started: known.started + 1, ..known };
        assert!(matches!(trace(another), Traced::Gone));
        child.kill().unwrap();
        while !has_exited(pidfd.as_fd()).unwrap() {}
        // It waits to be reaped: its number is its own still, but it runs nothing.
        assert_eq!(identity(pid, pidfd.as_fd()), None);
        match trace(known) {
            Traced::Lives(pidfd) => assert!(has_exited(pidfd.as_fd()).unwrap()),
            other => panic!("{other:?}"),
        }
        child.wait().unwrap();
        assert!(matches!(trace(known), Traced::Gone));
        assert!(identity(0, pidfd.as_fd()).is_none() && identity(-1, pidfd.as_fd()).is_none());
    }

    #[test]
    fn a_thread_is_no_process() {
        let of_this_thread = || {
            let path = fs::read_link("/proc/thread-self").unwrap();
            let pid = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
            trace(Identity { pid, started: started(pid).unwrap() })
        };
        let traced = std::thread::scope(|scope| scope.spawn(of_this_thread).join().unwrap());
        assert!(matches!(traced, Traced::Gone));
    }

    #[test]
    fn fdinfo_of_every_kind() {
        let of = |text: &str| process_of(text);
        assert!(matches!(of("pos:\t0\nflags:\t02\nPid:\t42\nNSpid:\t42\n"), Ok(42)));
        assert!(matches!(of("pos:\t0\nPid:\t-1\nNSpid:\t-1\n"), Err(NotThePeer::Exited)));
        assert!(matches!(of("Pid:\t0\nNSpid:\t0\n"), Err(NotThePeer::Invisible)));
        assert!(matches!(of("pos:\t0\nflags:\t02\nmnt_id:\t9\n"), Err(NotThePeer::NotAPidfd)));
        assert!(matches!(of("NSpid:\t7\n"), Err(NotThePeer::NotAPidfd)));
        assert!(matches!(of("Pid:\tseven\n"), Err(NotThePeer::NotAPidfd)));
    }
}
