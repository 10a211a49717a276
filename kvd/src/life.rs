//! The order in which a daemon starts and ends.

use std::io;
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::accept::Acceptor;
use crate::admin::Admin;
use crate::clock;
use crate::config::Settings;
use crate::daemon::{Daemon, PrepareError};
use crate::listen::{Claim, ClaimError};
use crate::touch;

/// What a drain leaves for writes that stall: the last part of the deadline.
const FORCED: Duration = Duration::from_secs(1);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket is somebody else's, or can't be made.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// The arena or what belongs to it could not be made.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A thread or descriptor could not be made.
    #[error("{step}: {source}")]
    System {
        /// What was being done.
        step: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// A running daemon; [`Running::drain`] ends it.
#[derive(Debug)]
pub struct Running {
    daemon: Arc<Daemon>,
    acceptor: Acceptor,
    admin: Admin,
    threads: Vec<JoinHandle<()>>,
}

impl Running {
    /// Claims the sockets, creates the arena and starts every thread. The engine socket is open when
    /// this returns; the arena warms up behind it.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then.
    pub fn start(settings: Settings) -> Result<Self, StartError> {
        let claim = Claim::new(&settings.socket, settings.socket_mode, settings.socket_group)?;
        let daemon = Arc::new(Daemon::prepare(settings)?);
        let system = |step| move |source| StartError::System { step, source };
        let admin =
            Admin::start(Arc::clone(&daemon)).map_err(system("starting the admin server"))?;
        let (brain, stop) = (&daemon.brain, &daemon.stop);
        let mut threads = touch::start(&daemon).map_err(system("starting a touch thread"))?;
        threads.push(
            clock::start(Arc::clone(brain), Arc::clone(stop))
                .map_err(system("starting the clock"))?,
        );
        threads.push(
            daemon
                .reaper
                .start(Arc::clone(brain), Arc::clone(stop))
                .map_err(system("starting the reaper"))?,
        );
        let acceptor = Acceptor::start(Arc::clone(&daemon), claim)
            .map_err(system("starting the accept thread"))?;
        daemon.status.accepting.store(true, Ordering::Relaxed);
        Ok(Self { daemon, acceptor, admin, threads })
    }

    /// The shared parts.
    #[must_use]
    pub fn daemon(&self) -> &Arc<Daemon> {
        &self.daemon
    }

    /// Ends the daemon: stop accepting, let requests in flight finish, close what does not, join
    /// every thread. Takes at most the drain deadline.
    pub fn drain(self) {
        let daemon = &self.daemon;
        let deadline = Instant::now() + daemon.settings.drain_deadline;
        daemon.status.draining.store(true, Ordering::Relaxed);
        self.acceptor.stop();
        // A session thread finishes the frames that have arrived, then reads the end of the stream.
        daemon.registry.shut_down(Shutdown::Read);
        daemon.staging.close();
        let patience = deadline.saturating_duration_since(Instant::now()).saturating_sub(FORCED);
        if !daemon.registry.wait_empty(patience) {
            let left = daemon.registry.len();
            tracing::warn!(left, "closing sessions that did not finish before the drain deadline");
            daemon.registry.shut_down(Shutdown::Both);
            daemon.registry.wait_empty(deadline.saturating_duration_since(Instant::now()));
        }
        daemon.stop.raise();
        daemon.reaper.wake();
        daemon.registry.join_finished();
        for thread in self.threads {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                tracing::error!(thread = name, "a thread panicked");
            }
        }
        self.admin.stop();
    }
}
