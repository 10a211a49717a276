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
use crate::devices::{self, claim::ClaimFault};
use crate::listen::{Claim, ClaimError};
use crate::succession::{Succession, holders, watchdog};
use crate::touch;

/// What a drain leaves for writes that stall: the last part of the deadline.
const FORCED: Duration = Duration::from_secs(1);

/// Why the daemon did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The socket is somebody else's, or can't be made.
    #[error(transparent)]
    Claim(#[from] ClaimError),
    /// A directory of the disk tier is somebody else's.
    #[error(transparent)]
    Directory(#[from] ClaimFault),
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
    disks: Vec<devices::Threads>,
}

impl Running {
    /// Claims the sockets, creates the arena and starts every thread. The engine socket is open when
    /// this returns; the arena warms up behind it.
    ///
    /// # Errors
    /// [`StartError`]; nothing is left behind then.
    pub fn start(settings: Settings, succession: Succession) -> Result<Self, StartError> {
        let claim = Claim::new(&settings.socket, settings.socket_mode, settings.socket_group)?;
        let claims = devices::claim(&settings.disk.paths)?;
        let daemon = Arc::new(Daemon::prepare(settings, succession)?);
        let system = |step| move |source| StartError::System { step, source };
        let admin =
            Admin::start(Arc::clone(&daemon)).map_err(system("starting the admin server"))?;
        let (brain, stop) = (&daemon.brain, &daemon.stop);
        let mut threads = touch::start(&daemon).map_err(system("starting a touch thread"))?;
        threads.push(clock::start(&daemon).map_err(system("starting the clock"))?);
        threads.push(
            daemon
                .reaper
                .start(Arc::clone(brain), Arc::clone(stop))
                .map_err(system("starting the reaper"))?,
        );
        threads.extend(watchdog::start(&daemon).map_err(system("starting the watchdog"))?);
        holders::look_after(&daemon);
        let acceptor = Acceptor::start(Arc::clone(&daemon), claim)
            .map_err(system("starting the accept thread"))?;
        daemon.status.accepting.store(true, Ordering::Relaxed);
        daemon.origin.serves(&daemon.brain);
        daemon.manager.ready("serving");
        // Looking at devices may take a while: engines need not wait for it.
        let disks = match devices::start(&daemon, claims) {
            Ok(disks) => disks,
            Err(error) => {
                acceptor.stop();
                return Err(system("starting a thread of the disk tier")(error));
            }
        };
        Ok(Self { daemon, acceptor, admin, threads, disks })
    }

    /// The shared parts.
    #[must_use]
    pub fn daemon(&self) -> &Arc<Daemon> {
        &self.daemon
    }

    /// Ends the daemon: stop accepting, let requests in flight finish, close what does not, let the
    /// disk tier write and sync what is waiting, join every thread. Takes at most the drain
    /// deadline, and a moment more if a device does not answer.
    pub fn drain(self) {
        let Self { daemon, acceptor, admin, threads, disks } = self;
        let deadline = Instant::now() + daemon.settings.drain_deadline;
        daemon.status.draining.store(true, Ordering::Relaxed);
        daemon.manager.stopping();
        acceptor.stop();
        // What is not loaded by now would come too late.
        daemon.brain.parkers.end_loads();
        // A session thread finishes the frames that have arrived, then reads the end of the stream.
        daemon.registry.shut_down(Shutdown::Read);
        daemon.staging.close();
        let_sessions_leave(&daemon, deadline);
        let disks = finish_disks(&daemon, disks, deadline);
        daemon.stop.raise();
        daemon.reaper.wake();
        daemon.registry.join_finished();
        for thread in threads {
            let name = thread.thread().name().unwrap_or_default().to_owned();
            if thread.join().is_err() {
                tracing::error!(thread = name, "a thread panicked");
            }
        }
        devices::join(disks, deadline);
        admin.stop();
    }
}

fn let_sessions_leave(daemon: &Daemon, deadline: Instant) {
    let patience = deadline.saturating_duration_since(Instant::now()).saturating_sub(FORCED);
    if !daemon.registry.wait_empty(patience) {
        let left = daemon.registry.len();
        tracing::warn!(left, "closing sessions that did not finish before the drain deadline");
        daemon.registry.shut_down(Shutdown::Both);
        daemon.brain.parkers.end_all();
        daemon.registry.wait_empty(deadline.saturating_duration_since(Instant::now()));
    }
    daemon.brain.parkers.end_all();
}

/// Nobody asks any more: what only memory holds goes to disk if that is wanted, and what is being
/// written gets there. The threads that end by themselves now.
fn finish_disks(
    daemon: &Daemon,
    disks: Vec<devices::Threads>,
    deadline: Instant,
) -> Vec<JoinHandle<()>> {
    if daemon.settings.disk.drain_on_stop && !daemon.devices.is_empty() {
        let patience = deadline.saturating_duration_since(Instant::now());
        daemon.drain.begin(daemon, patience.saturating_sub(FORCED));
        let progress = daemon.drain.wait(deadline);
        if progress.left_blocks > 0 {
            let (left, bytes) = (progress.left_blocks, progress.left_bytes);
            tracing::warn!(left, bytes, "blocks that only memory held are lost: no time left");
        }
    }
    devices::finish(disks, deadline)
}
