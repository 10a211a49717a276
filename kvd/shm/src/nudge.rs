//! Gets a thread of this process out of a system call that waits, so that it looks up.
//!
//! A signal whose handler does nothing makes the call end with `EINTR`. A thread that is just about to wait has heard it too
//! early, so whoever wants to be heard nudges again and again until the thread has answered.

#![expect(unsafe_code, reason = "a signal handler, and a signal to one thread")]

use std::io;
use std::os::unix::thread::JoinHandleExt as _;
use std::thread::JoinHandle;

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

/// Ours alone: the daemon is told nothing by it.
const SIGNAL: Signal = Signal::SIGUSR1;

/// From now on this process can be nudged. Before that a nudge would end it.
///
/// # Errors
/// As `sigaction(2)`.
pub fn listen() -> io::Result<()> {
    // Without SA_RESTART: calls that wait are to end.
    let handler = SigHandler::Handler(ignore);
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler does nothing, which is safe in a signal.
    unsafe { sigaction(SIGNAL, &action) }?;
    Ok(())
}

extern "C" fn ignore(_signal: libc::c_int) {}

/// Ends the system call in which the thread waits, if it does. A thread that has ended hears nothing.
///
/// # Errors
/// As `pthread_kill(3)`.
pub fn nudge(thread: &JoinHandle<()>) -> io::Result<()> {
    let number = SIGNAL as libc::c_int;
    // SAFETY: the thread has not been joined, for its handle is borrowed, so its number is valid.
    match unsafe { libc::pthread_kill(thread.as_pthread_t(), number) } {
        0 | libc::ESRCH => Ok(()),
        errno => Err(Errno::from_raw(errno).into()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;
    use std::thread::Builder;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_thread_that_waits_for_bytes_looks_up_and_can_go_on() {
        listen().unwrap();
        let (mut near, far) = UnixStream::pair().unwrap();
        let thread = Builder::new().spawn(move || {
            let mut byte = [0];
            let first = near.read(&mut byte).unwrap_err();
            assert_eq!(first.kind(), io::ErrorKind::Interrupted);
        });
        let thread = thread.unwrap();
        let until = Instant::now() + Duration::from_secs(60);
        while !thread.is_finished() {
            assert!(Instant::now() < until);
            nudge(&thread).unwrap();
            std::thread::park_timeout(Duration::from_millis(1));
        }
        nudge(&thread).unwrap();
        thread.join().unwrap();
        drop(far);
    }
}
