//! The socket at which a successor finds the running daemon.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;

use kvd_shm::peer::PeerCredentials;
use nix::unistd::geteuid;

use super::line::Line;
use crate::listen::{Claim, ClaimError};

/// Permissions of the socket: whoever takes over gets everything.
const MODE: u32 = 0o600;

/// The socket of a daemon that may be succeeded.
#[derive(Debug)]
pub struct Door {
    claim: Claim,
}

impl Door {
    /// Opens it at `path`.
    ///
    /// # Errors
    /// [`ClaimError`].
    pub fn open(path: &Path) -> Result<Self, ClaimError> {
        Ok(Self { claim: Claim::new(path, MODE, None)? })
    }

    /// Goes on with the one of the daemon before.
    #[must_use]
    pub fn inherited(claim: Claim) -> Self {
        Self { claim }
    }

    /// Its place in the file system.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Somebody who waits, if it may take over.
    ///
    /// # Errors
    /// As `accept(2)`, or `PermissionDenied` if it is another user.
    pub fn accept(&self) -> io::Result<Line> {
        let line = Line::new(self.claim.accept()?);
        if is_trusted(&line.peer()?) {
            Ok(line)
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.claim.as_fd()
    }
}

/// Whoever is at the other end could do anything to this process anyway.
pub fn is_trusted(peer: &PeerCredentials) -> bool {
    peer.uid == 0 || peer.uid == geteuid().as_raw()
}

/// The daemon that can be succeeded at `path`, if there is one.
///
/// # Errors
/// There is something that cannot be reached.
pub fn find(path: &Path) -> io::Result<Option<Line>> {
    match UnixStream::connect(path) {
        Ok(stream) => Ok(Some(Line::new(stream))),
        Err(error) => match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => Ok(None),
            _ => Err(error),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_door_is_found_while_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("takeover.sock");
        assert!(find(&path).unwrap().is_none());
        let door = Door::open(&path).unwrap();
        let _successor = find(&path).unwrap().unwrap();
        door.accept().unwrap();
        assert_eq!(door.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(door);
        assert!(find(&path).unwrap().is_none());
    }

    #[test]
    fn other_users_may_not_take_over() {
        let of = |uid| PeerCredentials { pid: Some(1), uid, gid: 0 };
        assert!(is_trusted(&of(0)) && is_trusted(&of(geteuid().as_raw())));
        assert!(!is_trusted(&of(geteuid().as_raw() + 1)));
    }
}
