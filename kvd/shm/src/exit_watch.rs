//! Tells when processes are gone: many process descriptors, one waiting thread.
//!
//! A process descriptor becomes readable when the last thread of its process has exited, and each
//! thread lets go of its memory before that. So after a report, nothing that the process itself ran
//! can store to the arena any more. A child that it forked without `exec` may: it has inherited the
//! mapping, and is not watched.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::errno::Errno;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::eventfd::{EfdFlags, EventFd};

/// The token that no process may have.
const WAKE: u64 = u64::MAX;

/// Exits reported by one call of [`ExitWatch::wait`]; more come with the next.
const REPORTS_MAX: usize = 64;

/// A set of processes whose exit is awaited. All methods may be called from any thread; one thread
/// waits.
#[derive(Debug)]
pub struct ExitWatch {
    epoll: Epoll,
    alarm: EventFd,
    watched: Mutex<BTreeMap<u64, OwnedFd>>,
}

impl ExitWatch {
    /// An empty set.
    ///
    /// # Errors
    /// If the process or the system is out of descriptors.
    pub fn new() -> io::Result<Self> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let alarm = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
        epoll.add(&alarm, EpollEvent::new(EpollFlags::EPOLLIN, WAKE))?;
        Ok(Self { epoll, alarm, watched: Mutex::default() })
    }

    /// Adds a process. If it is gone already, it is reported all the same.
    ///
    /// # Errors
    /// If the descriptor cannot be waited for, or the user has too many such waits.
    ///
    /// # Panics
    /// If the token is in use or `u64::MAX`.
    pub fn watch(&self, pidfd: OwnedFd, token: u64) -> io::Result<()> {
        assert!(token != WAKE, "token {token} is reserved");
        let mut watched = self.lock();
        assert!(!watched.contains_key(&token), "token {token} is watched already");
        // Both under the lock, so that a report cannot overtake the entry it is about.
        self.epoll.add(&pidfd, EpollEvent::new(EpollFlags::EPOLLIN, token))?;
        watched.insert(token, pidfd);
        Ok(())
    }

    /// Removes a process and closes its descriptor. Whether it was still there: if not, its exit
    /// has been reported.
    pub fn unwatch(&self, token: u64) -> bool {
        self.forget(token)
    }

    /// Whether the exit is still awaited.
    #[must_use]
    pub fn is_watched(&self, token: u64) -> bool {
        self.lock().contains_key(&token)
    }

    /// How many processes are watched.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.lock().len()
    }

    /// Looks at all whose exit is awaited: their tokens and descriptors. None comes or goes meanwhile.
    pub fn with_watched<R>(&self, look: impl FnOnce(&BTreeMap<u64, OwnedFd>) -> R) -> R {
        look(&self.lock())
    }

    /// Waits until a process exits, [`Self::wake`] is called, or the time is over; for ever without
    /// a time. Each exit is reported once and ends the watch.
    ///
    /// # Errors
    /// If the kernel refuses to wait; that is a bug or a lack of memory.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<u64>> {
        let timeout = match timeout {
            None => EpollTimeout::NONE,
            // Rounded up, so that a short wait is not a busy loop; a month is as good as for ever.
            Some(time) => {
                let millis = time.as_nanos().div_ceil(1_000_000);
                EpollTimeout::try_from(millis).unwrap_or(EpollTimeout::MAX)
            }
        };
        let mut events = [EpollEvent::empty(); REPORTS_MAX];
        let count = match self.epoll.wait(&mut events, timeout) {
            Ok(count) => count,
            Err(Errno::EINTR) => 0,
            Err(errno) => return Err(errno.into()),
        };
        let mut exited = Vec::new();
        for event in &events[..count] {
            match event.data() {
                WAKE => self.silence()?,
                token if self.forget(token) => exited.push(token),
                // Unwatched between the kernel's report and now.
                _stale => {}
            }
        }
        Ok(exited)
    }

    /// Makes the current or the next [`Self::wait`] return.
    ///
    /// # Errors
    /// Never in practice: only if the kernel refuses to count to one.
    pub fn wake(&self) -> io::Result<()> {
        match self.alarm.write(1) {
            // A full counter rings just as well.
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn silence(&self) -> io::Result<()> {
        match self.alarm.read() {
            Ok(_) | Err(Errno::EAGAIN) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Ends one watch. The entry is removed from the kernel's set by hand: closing our descriptor
    /// would not do it if the peer passed us a duplicate of one that it still holds.
    fn forget(&self, token: u64) -> bool {
        let mut watched = self.lock();
        let Some(pidfd) = watched.remove(&token) else {
            return false;
        };
        let removed = self.epoll.delete(&pidfd);
        debug_assert!(removed.is_ok(), "a watched descriptor was not in the set: {removed:?}");
        true
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, OwnedFd>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
