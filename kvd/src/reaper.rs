//! Watches the processes behind the sessions. A closed socket is not a dead writer: what a session
//! held is free only once its process is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use kvd_proto::ids::SessionId;
use kvd_shm::exit_watch::ExitWatch;
use kvd_store::{Effects, Input};

use crate::brain::Brain;
use crate::stop::Stop;

/// Longest wait between looks at the stop flag; exits and [`Reaper::wake`] end it at once.
const PAUSE: Duration = Duration::from_secs(60);

/// The set of watched processes, shared by the sessions and the reaper thread.
#[derive(Debug)]
pub struct Reaper {
    watch: Arc<ExitWatch>,
}

impl Reaper {
    /// An empty watch.
    ///
    /// # Errors
    /// As `epoll_create1(2)` and `eventfd(2)`.
    pub fn new() -> io::Result<Self> {
        Ok(Self { watch: Arc::new(ExitWatch::new()?) })
    }

    /// The set itself: the brain ends watches that nobody needs any more.
    pub fn watched(&self) -> &Arc<ExitWatch> {
        &self.watch
    }

    /// Watches the process behind `pidfd` for `session`.
    ///
    /// # Errors
    /// As `epoll_ctl(2)`: too many are watched already, or no memory.
    pub fn watch(&self, session: SessionId, pidfd: OwnedFd) -> io::Result<()> {
        self.watch.watch(pidfd, session.0)
    }

    /// Ends the thread's present wait.
    pub fn wake(&self) {
        if let Err(error) = self.watch.wake() {
            tracing::error!(%error, "the reaper could not be woken");
        }
    }

    /// Starts the thread; it ends when `stop` is raised and [`Reaper::wake`] called.
    ///
    /// # Errors
    /// The thread could not be started.
    pub fn start(
        self: &Arc<Self>,
        brain: Arc<Brain>,
        stop: Arc<Stop>,
    ) -> io::Result<JoinHandle<()>> {
        let reaper = Arc::clone(self);
        Builder::new().name("kvd-reaper".into()).spawn(move || reaper.run(&brain, &stop))
    }

    fn run(&self, brain: &Brain, stop: &Stop) {
        let mut effects = Effects::default();
        while !stop.is_raised() {
            match self.watch.wait(Some(PAUSE)) {
                Ok(gone) => {
                    for token in gone {
                        let session = SessionId(token);
                        brain.apply(Input::PeerGone { session }, &mut effects);
                        tracing::debug!(session = token, "process of session has exited");
                    }
                }
                Err(error) => {
                    tracing::error!(%error, "waiting for process exits failed");
                    // Without the pause a lasting error would spin.
                    if stop.wait(Duration::from_secs(1)) {
                        return;
                    }
                }
            }
        }
    }
}
