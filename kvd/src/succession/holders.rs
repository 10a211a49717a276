//! Who may still touch the arena that was taken over: processes that the daemon before had lent something to, and the
//! kernel, in which reads from disk may be under way that outlive the process that asked for them.

use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kvd_proto::ids::SessionId;
use kvd_shm::peer::{Identity, Traced, trace};
use kvd_store::{AdoptedSession, Effects, Holder, Input, Peer};

use crate::brain::Brain;
use crate::daemon::Daemon;

/// When the kernel has surely ended what a dead process had asked of a disk: drivers give up on a request within some
/// 30 s, and try it again a few times.
const KERNEL_PATIENCE: Duration = Duration::from_secs(300);

/// What the kernel may still write, until its time is over.
#[derive(Debug)]
pub struct Overhang {
    until: Instant,
    sessions: Mutex<Vec<SessionId>>,
}

impl Default for Overhang {
    fn default() -> Self {
        Self { until: Instant::now() + KERNEL_PATIENCE, sessions: Mutex::default() }
    }
}

impl Overhang {
    /// Ends it when its time has come. Costs nothing most of the time.
    pub fn tick(&self, brain: &Brain, effects: &mut Effects) {
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if !sessions.is_empty() && Instant::now() >= self.until {
            for session in sessions.drain(..) {
                brain.apply(Input::PeerGone { session }, effects);
            }
        }
    }

    fn add(&self, session: SessionId) {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner).push(session);
    }
}

/// Ends the rights of processes that are gone, watches those that live. Those of whom nobody can tell keep what they hold,
/// until an operator releases it.
pub fn look_after(daemon: &Daemon) {
    let mut effects = Effects::default();
    let mut unknowable = 0_u64;
    let mut processes = std::mem::take(
        &mut *daemon.origin.processes.lock().unwrap_or_else(PoisonError::into_inner),
    );
    for adopted in &daemon.origin.adopted.sessions {
        let session = adopted.session;
        if adopted.holder == Holder::Kernel {
            daemon.overhang.add(session);
            continue;
        }
        if adopted.open && adopted.peer == Peer::Unknowable {
            // As before: it matters once the connection closes.
            continue;
        }
        if !daemon.origin.knows_processes {
            // Its number may be another process's here.
            daemon.brain.apply(Input::ForgetProcess { session }, &mut effects);
        }
        let pid = adopted.process.and_then(|process| i32::try_from(process.pid).ok());
        let handed_over = processes.remove(&session).map(Traced::Lives);
        let traced = handed_over
            .map_or_else(|| whereabouts(adopted, daemon.origin.knows_processes), Ok)
            .and_then(|traced| match traced {
                Traced::Gone => {
                    daemon.brain.apply(Input::PeerGone { session }, &mut effects);
                    Ok(())
                }
                Traced::Lives(pidfd) => daemon.reaper.watch(session, pidfd),
                Traced::Unknowable(error) => Err(error),
            });
        let is_held = |session: SessionId| daemon.reaper.watched().is_watched(session.0);
        match (traced, pid) {
            (Ok(()), Some(pid)) if !adopted.open && is_held(session) => {
                daemon.lost.add(pid, session, is_held);
            }
            (Ok(()), _) => {}
            (Err(error), _) => {
                let bytes = adopted.held_bytes;
                tracing::debug!(%error, session = session.0, bytes, "nobody can tell when its process ends");
                unknowable += 1;
            }
        }
    }
    if unknowable > 0 {
        tracing::warn!(
            sessions = unknowable,
            "of sessions of the life before nobody can tell when their processes end: what they hold waits for an operator"
        );
    }
}

fn whereabouts(adopted: &AdoptedSession, knows_processes: bool) -> io::Result<Traced> {
    let process = adopted
        .process
        .filter(|_| knows_processes)
        .ok_or_else(|| io::Error::other("its process is not known here"))?;
    Ok(trace(Identity { pid: process.pid, started: process.started }))
}
