//! The successor's side: asks, and receives what the running daemon hands over. Nothing of it is believed unless it was
//! looked at; nothing of it is written to.

use std::collections::BTreeSet;
use std::io;
use std::net::TcpListener;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use kvd_proto::ids::SessionId;
use kvd_shm::peer::{self, PeerCredentials};
use kvd_store::LEDGER_VERSION;

use super::PATIENCE;
use super::door::is_trusted;
use super::line::{Line, LineFault};
use super::note::{Ask, Estate, Note, Role, SessionNote};
use crate::config::Settings;
use crate::listen::{Claim, InheritFault};
use crate::lost::LOST_MAX;
use crate::succession::heritage::{Continuity, Heritage};

/// Why nothing is taken over. The running daemon goes on.
#[derive(Debug, thiserror::Error)]
pub enum TakeFault {
    /// The configuration forbids it.
    #[error("taking over from a running daemon needs --warm-restart")]
    NotWanted,
    /// The other end is somebody else's.
    #[error("user {uid} is at the other end, who may not hand over to this daemon")]
    Foreign {
        /// Its user.
        uid: u32,
    },
    /// It cannot be reached.
    #[error("reaching the running daemon: {0}")]
    Unreachable(#[source] io::Error),
    /// It was not understood.
    #[error(transparent)]
    Line(#[from] LineFault),
    /// A socket is not what it should be.
    #[error(transparent)]
    Socket(#[from] InheritFault),
    /// The messages contradict each other, or what came with them is something else.
    #[error("what is handed over does not fit together: {0}")]
    Odd(&'static str),
}

/// A connection that is handed over.
#[derive(Debug)]
pub struct Connection {
    /// What was said of it.
    pub note: SessionNote,
    /// Who is at its other end.
    pub credentials: PeerCredentials,
    /// Its socket.
    pub stream: UnixStream,
}

/// Everything that is handed over.
#[derive(Debug)]
pub struct Handed {
    /// To the daemon that hands over.
    pub line: Line,
    /// Arena and ledger, and what goes on of them.
    pub heritage: Heritage,
    /// The engines' socket.
    pub engines: Claim,
    /// The admin socket.
    pub admin: Option<Claim>,
    /// The socket for successors.
    pub takeover: Option<Claim>,
    /// Health and metrics by TCP.
    pub metrics: Option<TcpListener>,
    /// Connections, in the order of their ids.
    pub connections: Vec<Connection>,
    /// The next session's id.
    pub next_session: u64,
    /// Connections that could not be handed over.
    pub left_behind: u32,
}

/// Asks the daemon at the other end to hand over, and receives everything.
///
/// # Errors
/// [`TakeFault`]; the other daemon is told, if it still listens.
pub fn receive(mut line: Line, settings: &Settings) -> Result<Handed, TakeFault> {
    let mut begin = || {
        if !settings.warm_restart {
            return Err(TakeFault::NotWanted);
        }
        let peer = line.peer().map_err(TakeFault::Unreachable)?;
        if !is_trusted(&peer) {
            return Err(TakeFault::Foreign { uid: peer.uid });
        }
        let ask = Ask {
            ledger_version: LEDGER_VERSION,
            arena_bytes: settings.memory.arena_bytes,
            sessions_max: settings.limits.sessions_max,
            build: env!("CARGO_PKG_VERSION").to_owned(),
            socket: settings.socket.as_os_str().as_bytes().to_vec(),
        };
        line.send(&Note::Ask(ask), &[], Instant::now() + PATIENCE)?;
        let deadline = Instant::now() + PATIENCE;
        receive_all(&mut line, settings, deadline)
    };
    match begin() {
        Ok(parts) => Ok(parts.on(line)),
        Err(fault) => {
            refuse(&mut line, &fault.to_string());
            Err(fault)
        }
    }
}

/// Tells the other daemon to go on, if it still listens.
pub fn refuse(line: &mut Line, words: &str) {
    let refusal = Note::Refusal(words.to_owned());
    if let Err(error) = line.send(&refusal, &[], Instant::now() + PATIENCE) {
        tracing::debug!(%error, "the other daemon does not hear that nothing is taken over");
    }
}

/// [`Handed`] but for the line.
struct Parts {
    heritage: Heritage,
    sockets: Sockets,
    engines: Claim,
    connections: Vec<Connection>,
    estate: Estate,
}

impl Parts {
    fn on(self, line: Line) -> Handed {
        let Self { heritage, sockets, engines, connections, estate } = self;
        let Sockets { admin, takeover, metrics, .. } = sockets;
        Handed {
            line,
            heritage,
            engines,
            admin,
            takeover,
            metrics,
            connections,
            next_session: estate.next_session,
            left_behind: estate.left_behind,
        }
    }
}

#[derive(Default)]
struct Sockets {
    engines: Option<Claim>,
    admin: Option<Claim>,
    takeover: Option<Claim>,
    metrics: Option<TcpListener>,
}

fn receive_all(
    line: &mut Line,
    settings: &Settings,
    deadline: Instant,
) -> Result<Parts, TakeFault> {
    let (Note::Estate(estate), descriptors) = line.receive(deadline)? else {
        return Err(LineFault::OutOfTurn.into());
    };
    let Ok([arena, ledger]) = <[OwnedFd; 2]>::try_from(descriptors) else {
        return Err(TakeFault::Odd("arena and ledger do not come together"));
    };
    if estate.sessions > settings.limits.sessions_max {
        return Err(TakeFault::Odd("more sessions than --sessions-max"));
    }
    let mut sockets = Sockets::default();
    for _ in 0..estate.sockets {
        sockets.take(line, settings, deadline)?;
    }
    let mut connections = Vec::new();
    for _ in 0..estate.sessions {
        connections.push(connection(line, deadline)?);
    }
    let ids: BTreeSet<SessionId> = connections.iter().map(|one| one.note.id).collect();
    if ids.len() < connections.len() || ids.last().is_some_and(|id| id.0 >= estate.next_session) {
        return Err(TakeFault::Odd("session ids are used twice"));
    }
    let mut continuity = Continuity { epoch: estate.epoch, ..Continuity::default() };
    let opened = connections.iter().filter(|one| one.note.opened);
    continuity.connected = opened.map(|one| one.note.id).collect();
    // Every open session has one, and every process some closed ones more.
    let watches_max = u64::from(settings.limits.sessions_max) * (1 + LOST_MAX as u64);
    if u64::from(estate.watches) > watches_max {
        return Err(TakeFault::Odd("more processes than there can be"));
    }
    for _ in 0..estate.watches {
        let (Note::Watch(session), mut descriptors) = line.receive(deadline)? else {
            return Err(LineFault::OutOfTurn.into());
        };
        let process = descriptors.pop().filter(|process| peer::is_pidfd(process.as_fd()));
        let process = process.ok_or(TakeFault::Odd("a process that is none"))?;
        continuity.processes.insert(session, process);
    }
    let engines = sockets.engines.take();
    let engines = engines.ok_or(TakeFault::Odd("the engines' socket does not come along"))?;
    let heritage = Heritage::handed_over(arena, ledger, continuity);
    Ok(Parts { heritage, sockets, engines, connections, estate })
}

fn connection(line: &mut Line, deadline: Instant) -> Result<Connection, TakeFault> {
    let (Note::Session(note), mut descriptors) = line.receive(deadline)? else {
        return Err(LineFault::OutOfTurn.into());
    };
    let stream = descriptors.pop().map(UnixStream::from);
    let stream = stream.ok_or(TakeFault::Odd("a session without its connection"))?;
    let credentials = peer::credentials(&stream)
        .map_err(|_not_connected| TakeFault::Odd("a session's connection is none"))?;
    Ok(Connection { note, credentials, stream })
}

impl Sockets {
    fn take(
        &mut self,
        line: &mut Line,
        settings: &Settings,
        deadline: Instant,
    ) -> Result<(), TakeFault> {
        let (Note::Socket { role, inode }, mut descriptors) = line.receive(deadline)? else {
            return Err(LineFault::OutOfTurn.into());
        };
        let incomplete = TakeFault::Odd("a socket does not come with its lock");
        if role == Role::Metrics {
            let listener = descriptors.pop().ok_or(incomplete)?;
            self.metrics = Some(TcpListener::from(listener));
            return Ok(());
        }
        let Ok([listener, lock]) = <[OwnedFd; 2]>::try_from(descriptors) else {
            return Err(incomplete);
        };
        let (path, place) = match role {
            Role::Engines => (Some(&settings.socket), &mut self.engines),
            Role::Admin => (Some(&settings.admin_socket), &mut self.admin),
            Role::Takeover | Role::Metrics => {
                (settings.takeover_socket.as_ref(), &mut self.takeover)
            }
        };
        // One that this daemon is not to serve is closed.
        if let Some(path) = path {
            *place = Some(Claim::inherit(path, listener, lock, inode)?);
        }
        Ok(())
    }
}
