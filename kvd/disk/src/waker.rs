//! How other threads interrupt the owner of a disk in its wait: a word that says whether it sleeps
//! ([`crate::sleep_word`]) and a descriptor that rings. Wakes cost no system call while the owner
//! works, and one a sleep at most.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::sleep_word::SleepWord;

/// Interrupts the wait of the disk that it came from. Cheap to clone, usable from any thread, also
/// after the disk is gone (then without effect).
#[derive(Clone, Debug)]
pub struct Waker {
    bell: Arc<Bell>,
}

impl Waker {
    /// Makes the current wait of the disk return, or else its next one.
    pub fn wake(&self) {
        self.bell.wake();
    }
}

/// The owner's side.
#[derive(Debug)]
pub(crate) struct Bell {
    word: SleepWord,
    event: EventFd,
}

impl Bell {
    /// # Errors
    /// If the process is out of descriptors.
    pub(crate) fn new() -> io::Result<Arc<Self>> {
        // Not non-blocking: the ring's read of it must wait, and nobody else reads an empty one.
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC)?;
        Ok(Arc::new(Self { word: SleepWord::default(), event }))
    }

    pub(crate) fn waker(self: &Arc<Self>) -> Waker {
        Waker { bell: Arc::clone(self) }
    }

    pub(crate) fn wake(&self) {
        if self.word.notify() {
            let rung = self.ring();
            debug_assert!(rung.is_ok(), "a counter that cannot take one more: {rung:?}");
        }
    }

    /// As [`SleepWord::fall_asleep`].
    pub(crate) fn fall_asleep(&self) -> bool {
        self.word.fall_asleep()
    }

    /// As [`SleepWord::get_up`].
    pub(crate) fn get_up(&self) -> bool {
        self.word.get_up()
    }

    /// Waits for a wake, at most so long. The waker may have decided to ring but not rung yet when
    /// the time ends: then a later wait returns at once, which is allowed.
    pub(crate) fn sleep(&self, timeout: Duration) -> io::Result<()> {
        if !self.fall_asleep() {
            return Ok(());
        }
        let millis = timeout.as_nanos().div_ceil(1_000_000);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let mut polled = [PollFd::new(self.event.as_fd(), PollFlags::POLLIN)];
        let slept = match poll(&mut polled, timeout) {
            Ok(0) | Err(Errno::EINTR) => Ok(()),
            Ok(_) => self.event.read().map(drop).map_err(io::Error::from),
            Err(errno) => Err(errno.into()),
        };
        self.get_up();
        slept
    }

    /// Rings even if the owner is awake, to end a read of the descriptor.
    pub(crate) fn ring(&self) -> io::Result<()> {
        self.event.write(1).map(drop).map_err(io::Error::from)
    }

    /// The descriptor that rings, for the kernel to read eight bytes from.
    pub(crate) fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn rings(bell: &Bell) -> bool {
        let mut polled = [PollFd::new(bell.event.as_fd(), PollFlags::POLLIN)];
        poll(&mut polled, PollTimeout::ZERO).unwrap() == 1
    }

    #[test]
    fn a_wake_of_an_awake_owner_rings_nothing_and_counts_once() {
        let bell = Bell::new().unwrap();
        for _ in 0..5 {
            bell.waker().wake();
        }
        assert!(!rings(&bell), "no system call");
        assert!(!bell.fall_asleep(), "it counts");
        assert!(bell.fall_asleep(), "once");
        assert!(!bell.get_up());
    }

    #[test]
    fn wakes_of_a_sleeper_ring_once() {
        let bell = Bell::new().unwrap();
        assert!(bell.fall_asleep());
        for _ in 0..5 {
            bell.waker().wake();
        }
        assert_eq!(bell.event.read().unwrap(), 1);
        assert!(bell.get_up());
        assert!(!bell.get_up(), "used up");
    }

    #[test]
    fn no_wake_is_lost_between_two_threads() {
        let bell = Bell::new().unwrap();
        let sent = Arc::new(AtomicU32::new(0));
        let (waker, counter) = (bell.waker(), Arc::clone(&sent));
        let (acknowledge, acknowledged) = std::sync::mpsc::channel();
        let ringer = std::thread::Builder::new().spawn(move || {
            for round in 1..=20_000_u32 {
                counter.store(round, Ordering::Relaxed);
                waker.wake();
                acknowledged.recv().unwrap();
            }
        });
        let mut seen = 0;
        while seen < 20_000 {
            bell.sleep(Duration::from_secs(60)).unwrap();
            let now = sent.load(Ordering::Relaxed);
            if now > seen {
                seen = now;
                acknowledge.send(()).unwrap();
            }
        }
        ringer.unwrap().join().unwrap();
    }
}
