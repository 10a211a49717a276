//! Signals: those that ask for the end, and those that are the engine's business.

use std::io;

use nix::sys::signal::Signal as Number;
use nix::unistd::Pid;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::child;

/// What asks for the end: SIGTERM and SIGINT.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn listen() -> io::Result<Self> {
        let terminate = signal(SignalKind::terminate())?;
        Ok(Self { terminate, interrupt: signal(SignalKind::interrupt())? })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// What is passed on as it comes.
#[derive(Debug)]
pub(crate) struct Forwarded(Vec<(Signal, Number)>);

impl Forwarded {
    pub(crate) fn listen() -> io::Result<Self> {
        let kinds = [
            (SignalKind::hangup(), Number::SIGHUP),
            (SignalKind::quit(), Number::SIGQUIT),
            (SignalKind::user_defined1(), Number::SIGUSR1),
            (SignalKind::user_defined2(), Number::SIGUSR2),
        ];
        let heard = kinds.into_iter().map(|(kind, number)| Ok((signal(kind)?, number)));
        Ok(Self(heard.collect::<io::Result<_>>()?))
    }

    /// Passes on what comes, for ever.
    pub(crate) async fn to(mut self, pid: Pid) {
        loop {
            let next = std::future::poll_fn(|context| {
                let ready = self.0.iter_mut().find_map(|(signal, number)| {
                    signal.poll_recv(context).is_ready().then_some(*number)
                });
                ready.map_or(std::task::Poll::Pending, std::task::Poll::Ready)
            });
            child::send(pid, next.await);
        }
    }
}
