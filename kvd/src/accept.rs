//! The accept thread: lets peers in, gives each a session thread, joins the threads that ended.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use kvd_proto::ids::SessionId;
use kvd_shm::peer::{self, NoPidfd, PeerCredentials};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::daemon::Daemon;
use crate::listen::Claim;
use crate::registry::Facts;
use crate::session::Session;
use crate::succession::handover::note::SessionNote;

/// Stack of a session thread. Frames, keys and values live on the heap or in the arena.
const STACK_BYTES: usize = 256 << 10;
/// Pause after `accept` failed for want of descriptors or memory.
const BREATH: Duration = Duration::from_millis(100);
/// How often threads that ended are joined when nobody connects.
const JOIN_PAUSE_MS: u16 = 1_000;

/// The running accept thread.
#[derive(Debug)]
pub struct Acceptor {
    thread: JoinHandle<()>,
    wake: Arc<EventFd>,
    claim: Arc<Claim>,
    gate: Arc<Mutex<Gate>>,
}

/// What every admission needs; nobody is admitted while somebody else has it.
#[derive(Debug)]
pub struct Gate {
    /// The next session's id. Ids of the life before are not used again: some of its sessions may still hold something.
    pub next_session: u64,
    is_over: bool,
}

impl Gate {
    /// Nobody is admitted any more: connections that wait are a successor's.
    pub fn close(&mut self) {
        self.is_over = true;
    }
}

impl Acceptor {
    /// Starts accepting on `claim`, with ids from `next_session` on.
    ///
    /// # Errors
    /// The wake-up descriptor or the thread could not be made.
    pub fn start(daemon: Arc<Daemon>, claim: Claim, next_session: u64) -> io::Result<Self> {
        let flags = EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK;
        let wake = Arc::new(EventFd::from_value_and_flags(0, flags)?);
        let gate = Gate { next_session: next_session.max(1), is_over: false };
        let (claim, gate) = (Arc::new(claim), Arc::new(Mutex::new(gate)));
        let of_thread = (Arc::clone(&claim), Arc::clone(&gate), Arc::clone(&wake));
        let thread = Builder::new().name("kvd-accept".into()).spawn(move || {
            let (claim, gate, wake) = of_thread;
            run(&daemon, &claim, &gate, &wake);
        })?;
        Ok(Self { thread, wake, claim, gate })
    }

    /// The socket.
    #[must_use]
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Admits nobody as long as the guard lives. Connections wait in the kernel meanwhile.
    pub fn hold(&self) -> MutexGuard<'_, Gate> {
        lock(&self.gate)
    }

    /// Stops accepting, removes the socket from the file system (but for one that is handed over) and joins the thread.
    pub fn stop(self) {
        lock(&self.gate).close();
        if let Err(error) = self.wake.write(1) {
            tracing::error!(%error, "the accept thread could not be woken");
            return;
        }
        if self.thread.join().is_err() {
            tracing::error!("the accept thread panicked");
        }
    }
}

fn lock(gate: &Mutex<Gate>) -> MutexGuard<'_, Gate> {
    gate.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(daemon: &Arc<Daemon>, claim: &Claim, gate: &Mutex<Gate>, wake: &EventFd) {
    loop {
        daemon.accept_pulse.beat();
        let mut waits = [
            PollFd::new(claim.as_fd(), PollFlags::POLLIN),
            PollFd::new(wake.as_fd(), PollFlags::POLLIN),
        ];
        if let Err(error) = poll(&mut waits, PollTimeout::from(JOIN_PAUSE_MS))
            && error != nix::Error::EINTR
        {
            tracing::error!(%error, "waiting for connections failed");
            return;
        }
        daemon.registry.join_finished();
        let mut gate = lock(gate);
        if gate.is_over {
            return;
        }
        admit_all(daemon, claim, &mut gate);
    }
}

/// Admits everybody who waits.
fn admit_all(daemon: &Arc<Daemon>, claim: &Claim, gate: &mut Gate) {
    loop {
        daemon.accept_pulse.beat();
        match claim.accept() {
            Ok(stream) => {
                let id = SessionId(gate.next_session);
                gate.next_session += 1;
                if let Err(error) = admit(daemon, id, stream) {
                    tracing::warn!(%error, "a connection could not be served");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(error) => {
                tracing::warn!(%error, "accepting failed; trying again");
                daemon.stop.wait(BREATH);
                return;
            }
        }
    }
}

/// Checks a new connection and starts its thread. A refused one is simply closed.
fn admit(daemon: &Arc<Daemon>, id: SessionId, stream: UnixStream) -> io::Result<()> {
    let credentials = peer::credentials(&stream)?;
    let Some((counter, reason)) = objection(daemon, &credentials) else {
        let facts = Facts::new(id, credentials);
        start_session(daemon, facts, stream, Ok)?;
        daemon.meters.connections_accepted.fetch_add(1, Ordering::Relaxed);
        return Ok(());
    };
    counter.fetch_add(1, Ordering::Relaxed);
    if let Some(left_out) = daemon.closings.allows() {
        let PeerCredentials { pid, uid, .. } = credentials;
        tracing::warn!(pid, uid, left_out, "connection refused: {reason}");
    }
    Ok(())
}

/// Why a peer is not served, and where that is counted.
fn objection<'a>(
    daemon: &'a Daemon,
    peer: &PeerCredentials,
) -> Option<(&'a AtomicU64, &'static str)> {
    let (settings, meters) = (&daemon.settings, &daemon.meters);
    if !settings.allow_uids.is_empty() && !settings.allow_uids.contains(&peer.uid) {
        return Some((&meters.connections_refused_uid, "uid is not on the allow-list"));
    }
    let sessions_max = usize::try_from(settings.limits.sessions_max).unwrap_or(usize::MAX);
    if daemon.registry.len() >= sessions_max {
        let reason = "as many sessions as --sessions-max allows";
        return Some((&meters.connections_refused_full, reason));
    }
    let is_held = |session: SessionId| daemon.reaper.watched().is_watched(session.0);
    if peer.pid.is_some_and(|pid| daemon.lost.are_too_many(pid, is_held)) {
        let reason = "its process closed too many sessions without giving back what they hold";
        return Some((&meters.connections_refused_lost, reason));
    }
    None
}

/// A descriptor of the peer's process, if the kernel gives one; else the peer may pass its own.
fn process_of(daemon: &Daemon, stream: &UnixStream) -> Option<OwnedFd> {
    match peer::pidfd(stream) {
        Ok(pidfd) => Some(pidfd),
        Err(NoPidfd::Exited) => None,
        Err(NoPidfd::Unavailable(errno)) => {
            daemon.status.note(format!(
                "the kernel gives no descriptor of a client's process ({errno}): what clients that \
                 pass none hold when they close waits for an operator"
            ));
            None
        }
    }
}

/// Serves a connection that another daemon has served before.
///
/// # Errors
/// There is no thread for it, or its process can't be watched.
pub fn go_on(
    daemon: &Arc<Daemon>,
    credentials: PeerCredentials,
    stream: UnixStream,
    note: SessionNote,
) -> io::Result<()> {
    let facts = Facts::going_on(&note, credentials);
    let adopted = &daemon.origin.adopted.sessions;
    let is_adopted = adopted.iter().any(|one| one.open && one.session == note.id);
    start_session(daemon, facts, stream, |session| session.go_on(note, is_adopted))?;
    daemon.meters.sessions_taken_over.fetch_add(1, Ordering::Relaxed);
    Ok(())
}

fn start_session(
    daemon: &Arc<Daemon>,
    facts: Facts,
    stream: UnixStream,
    prepare: impl FnOnce(Session) -> io::Result<Session>,
) -> io::Result<()> {
    let pidfd = process_of(daemon, &stream);
    let (id, facts, stream) = (facts.id, Arc::new(facts), Arc::new(stream));
    let session = Session::new(Arc::clone(daemon), Arc::clone(&facts), Arc::clone(&stream), pidfd)?;
    let session = prepare(session)?;
    daemon.registry.insert(facts, stream);
    let started = Builder::new()
        .name(format!("kvd-s{}", id.0))
        .stack_size(STACK_BYTES)
        .spawn(move || session.run());
    match started {
        Ok(thread) => {
            daemon.registry.own_thread(id, thread);
            Ok(())
        }
        Err(error) => {
            daemon.registry.remove(id);
            Err(error)
        }
    }
}
