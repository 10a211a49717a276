//! SIGTERM and SIGINT: the first drains, the second exits at once. SIGHUP, under a service manager: the program that is
//! installed now takes over.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread::Builder;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// The signals that the daemon obeys, blocked in every thread and heard where we wait for them.
#[derive(Debug)]
pub struct Signals {
    /// Those that end it.
    ends: SigSet,
    heard: SignalFd,
}

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// The end; the signal's name.
    End(&'static str),
    /// A successor.
    Reload,
}

impl Signals {
    /// Blocks the signals in this thread and in all that it starts later: those that end the daemon, and SIGHUP if it
    /// `reloads`. Otherwise SIGHUP means what it always does, the end of the terminal.
    ///
    /// # Errors
    /// As `pthread_sigmask(3)` and `signalfd(2)`.
    pub fn block(reloads: bool) -> io::Result<Self> {
        let mut ends = SigSet::empty();
        ends.add(Signal::SIGTERM);
        ends.add(Signal::SIGINT);
        let mut all = ends;
        if reloads {
            all.add(Signal::SIGHUP);
        }
        all.thread_block()?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        Ok(Self { ends, heard: SignalFd::with_flags(&all, flags)? })
    }

    /// The next one that came, if one did. The descriptor of this value is readable then.
    ///
    /// # Errors
    /// As `read(2)`.
    pub fn take(&self) -> io::Result<Option<Heard>> {
        let Some(heard) = self.heard.read_signal()? else {
            return Ok(None);
        };
        let signal =
            i32::try_from(heard.ssi_signo).ok().and_then(|number| Signal::try_from(number).ok());
        Ok(match signal {
            Some(Signal::SIGHUP) => Some(Heard::Reload),
            Some(signal) => Some(Heard::End(signal.as_str())),
            None => None,
        })
    }

    /// From now on a signal ends the process with `code`, whatever it is doing.
    ///
    /// The thread is the one that is never joined: it waits for a signal that may not come.
    pub fn exit_on_next(self, code: u8) {
        let started = Builder::new().name("kvd-signals".into()).spawn(move || {
            let signal = loop {
                if let Ok(signal) = self.ends.wait() {
                    break signal.as_str();
                }
            };
            tracing::warn!(signal, "second signal: exiting without waiting");
            #[expect(clippy::disallowed_methods, reason = "asked for by the operator")]
            std::process::exit(i32::from(code));
        });
        if let Err(error) = started {
            tracing::warn!(%error, "a second signal will not be heard");
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.heard.as_fd()
    }
}
