//! Who is at the other end of a Unix socket, and a descriptor that tells when that process is gone.

#![expect(unsafe_code, reason = "pidfd_open and SO_PEERPIDFD, which nix does not wrap")]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use nix::errno::Errno;
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
    let pid = std::process::id();
    // SAFETY: takes two integers and touches no memory of ours.
    let result = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    let raw = Errno::result(result)?;
    let raw = RawFd::try_from(raw).map_err(|_out_of_range| Errno::EBADF)?;
    // SAFETY: the kernel opened `raw` for this call; nobody else knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
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
