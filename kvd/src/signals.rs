//! SIGTERM and SIGINT: the first drains, the second exits at once.

use std::io;
use std::thread::Builder;

use nix::sys::signal::{SigSet, Signal};

/// The signals that end the daemon, blocked in every thread and heard where we wait for them.
#[derive(Debug, Clone, Copy)]
pub struct Signals {
    set: SigSet,
}

impl Signals {
    /// Blocks the signals in this thread and in all that it starts later.
    ///
    /// # Errors
    /// As `pthread_sigmask(3)`.
    pub fn block() -> io::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGINT);
        set.thread_block()?;
        Ok(Self { set })
    }

    /// Waits for the first one; its name.
    #[must_use]
    pub fn wait(self) -> &'static str {
        loop {
            if let Ok(signal) = self.set.wait() {
                return signal.as_str();
            }
        }
    }

    /// From now on a signal ends the process with `code`, whatever it is doing.
    ///
    /// The thread is the one that is never joined: it waits for a signal that may not come.
    pub fn exit_on_next(self, code: u8) {
        let started = Builder::new().name("kvd-signals".into()).spawn(move || {
            let signal = self.wait();
            tracing::warn!(signal, "second signal: exiting without waiting");
            #[expect(clippy::disallowed_methods, reason = "asked for by the operator")]
            std::process::exit(i32::from(code));
        });
        if let Err(error) = started {
            tracing::warn!(%error, "a second signal will not be heard");
        }
    }
}
