//! The service manager's protocol (`sd_notify(3)`): messages to a datagram socket, some with a descriptor attached.
//!
//! A manager that does not listen must not stop the daemon: each message has a deadline, and a failure is a log line.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kvd_shm::descriptor::send_with_descriptor;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

/// How long one message may wait for room in the manager's queue.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long the manager may take to have dealt with everything that was said before.
const BARRIER_PATIENCE_MS: u16 = 5_000;

/// Whoever started this process and wants to hear from it; or nobody, to whom nothing is said.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<OsString>,
    keeps_descriptors: bool,
    is_failing: AtomicBool,
}

impl Manager {
    /// The manager that `NOTIFY_SOCKET` names.
    #[must_use]
    pub fn of_process() -> Self {
        let socket = std::env::var_os("NOTIFY_SOCKET").filter(|path| !path.is_empty());
        // Set by systemd 254 and later: how many descriptors the unit may store. Older ones don't say.
        let room = std::env::var("FDSTORE").ok();
        let keeps_descriptors = socket.is_some() && room.is_none_or(|room| room.trim() != "0");
        Self { socket, keeps_descriptors, is_failing: AtomicBool::new(false) }
    }

    /// The manager that listens at `socket`, and keeps descriptors.
    #[must_use]
    pub fn at(socket: impl Into<OsString>) -> Self {
        Self { socket: Some(socket.into()), keeps_descriptors: true, ..Self::default() }
    }

    /// Whether there is one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// From now on the daemon is another process.
    pub fn succeeded_by(&self, process: u32) {
        self.tell(&format!("MAINPID={process}"), None);
    }

    /// Whether it may keep descriptors for the next life. It does not say whether it really does.
    #[must_use]
    pub fn keeps_descriptors(&self) -> bool {
        self.keeps_descriptors
    }

    /// Engines can connect.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"), None);
    }

    /// What the daemon is doing, in a line for people.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={status}"), None);
    }

    /// The daemon comes to its end.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=draining", None);
    }

    /// The daemon lives.
    pub fn alive(&self) {
        self.tell("WATCHDOG=1", None);
    }

    /// Asks it to keep a descriptor for the next life. There is nothing to be polled in it.
    pub fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) {
        self.tell(&format!("FDSTORE=1\nFDNAME={name}\nFDPOLL=0"), Some(descriptor));
    }

    /// Asks it to close all descriptors of this name.
    pub fn forget(&self, name: &str) {
        self.tell(&format!("FDSTOREREMOVE=1\nFDNAME={name}"), None);
    }

    /// Waits until it has dealt with everything that was said before.
    pub fn barrier(&self) {
        let outcome = io::pipe().and_then(|(read, write)| {
            // It closes its copy of the writing end when the message's turn comes.
            self.tell("BARRIER=1", Some(write.as_fd()));
            drop(write);
            let mut waits = [PollFd::new(read.as_fd(), PollFlags::empty())];
            Ok(poll(&mut waits, PollTimeout::from(BARRIER_PATIENCE_MS))?)
        });
        match outcome {
            Ok(0) => tracing::warn!("the service manager has not answered within 5 s"),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the service manager could not be waited for"),
        }
    }

    fn tell(&self, message: &str, descriptor: Option<BorrowedFd<'_>>) {
        let Some(socket) = &self.socket else { return };
        let sent = address(socket.as_bytes()).and_then(|address| {
            let socket = UnixDatagram::unbound()?;
            socket.connect_addr(&address)?;
            socket.set_write_timeout(Some(PATIENCE))?;
            match descriptor {
                None => socket.send(message.as_bytes()),
                Some(descriptor) => {
                    send_with_descriptor(socket.as_fd(), message.as_bytes(), descriptor)
                }
            }
        });
        // Said once, until it works again.
        match sent {
            Ok(_) => self.is_failing.store(false, Ordering::Relaxed),
            Err(error) if !self.is_failing.swap(true, Ordering::Relaxed) => {
                let what = message.lines().next().unwrap_or_default();
                tracing::warn!(%error, what, "the service manager could not be told");
            }
            Err(_) => {}
        }
    }
}

/// A path, or behind an `@` a name that no file has.
fn address(socket: &[u8]) -> io::Result<SocketAddr> {
    match socket.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(socket)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(listener: &UnixDatagram) -> String {
        let mut buffer = [0; 200];
        let len = listener.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..len].to_vec()).unwrap()
    }

    #[test]
    fn every_message_is_one_datagram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        let manager = Manager::at(&path);
        manager.ready("serving");
        assert_eq!(heard(&listener), "READY=1\nSTATUS=serving");
        manager.keep("a", listener.as_fd());
        assert_eq!(heard(&listener), "FDSTORE=1\nFDNAME=a\nFDPOLL=0");
        manager.succeeded_by(4711);
        assert_eq!(heard(&listener), "MAINPID=4711");
        manager.forget("a");
        assert_eq!(heard(&listener), "FDSTOREREMOVE=1\nFDNAME=a");
    }

    #[test]
    fn abstract_names_are_understood() {
        let name = format!("kvd-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        Manager::at(format!("@{name}")).alive();
        assert_eq!(heard(&listener), "WATCHDOG=1");
    }

    #[test]
    fn a_manager_that_does_not_listen_stops_nobody() {
        Manager::default().ready("to nobody");
        Manager::at("/nowhere/notify").ready("to nobody");
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let _deaf = UnixDatagram::bind(&path).unwrap();
        let manager = Manager::at(&path);
        // The queue of a socket that nobody reads is full at some time; then each message takes its patience.
        let began = std::time::Instant::now();
        while began.elapsed() < PATIENCE {
            manager.alive();
        }
        assert!(manager.is_failing.load(Ordering::Relaxed));
    }
}
