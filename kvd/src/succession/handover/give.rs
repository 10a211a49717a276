//! The running daemon's side: lets everything stand still, passes it on, and goes on with it if anything goes wrong before
//! the last word.

use std::collections::BTreeMap;
use std::net::Shutdown;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvd_proto::ids::SessionId;
use kvd_store::LEDGER_VERSION;

use super::PATIENCE;
use super::line::{Line, LineFault};
use super::note::{Ask, Estate, Note, Role, SessionNote};
use super::parking::{Parked, Verdict};
use crate::daemon::Daemon;
use crate::listen::Claim;

/// How long sessions may wait for storage once they are called; then what is missing is a miss.
const FOR_LOADS: Duration = Duration::from_secs(1);
/// How long they may do anything else; then their connections are closed.
const FOR_ALL: Duration = Duration::from_secs(2);
/// How long a closed one may take to end.
const FOR_THE_CLOSED: Duration = Duration::from_secs(1);
/// How long blocks may be under way between arena and devices.
const FOR_DEVICES: Duration = Duration::from_secs(2);
/// How long a successor that came by itself may take to ask. Nobody waits meanwhile but signals.
const FOR_THE_ASK: Duration = Duration::from_secs(2);
/// The same for one that has to start first.
const FOR_THE_START: Duration = Duration::from_secs(20);

/// Why nothing was handed over. Everything goes on as before.
#[derive(Debug, thiserror::Error)]
pub enum GiveFault {
    /// The program could not be started.
    #[error("starting the successor: {0}")]
    Start(#[source] std::io::Error),
    /// This daemon does not want to.
    #[error("{0}")]
    Unwilling(String),
    /// Sessions do not come to an end of what they do.
    #[error("{0} sessions do not stand still")]
    Restless(usize),
    /// A device has not ended what it was told to do.
    #[error("a device does not answer")]
    Device,
    /// The successor is gone, too late, or refuses.
    #[error(transparent)]
    Line(#[from] LineFault),
}

impl GiveFault {
    /// Whether one of the two said no, rather than failed.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Unwilling(_) | Self::Line(LineFault::Refused(_)))
    }
}

type Sessions = BTreeMap<SessionId, Parked>;
type Processes = BTreeMap<u64, OwnedFd>;

/// What of a running daemon is handed over beside what its threads share.
#[derive(Debug)]
pub struct Offer<'a> {
    /// What the threads share.
    pub daemon: &'a Daemon,
    /// The sockets of the file system, whose they are.
    pub claims: Vec<(Role, &'a Claim)>,
    /// Health and metrics by TCP.
    pub metrics: Option<BorrowedFd<'a>>,
    /// The next session's id.
    pub next_session: u64,
}

/// Hears what the successor asks for; `is_child` if this daemon has started it. Everything goes on meanwhile.
///
/// # Errors
/// [`GiveFault`]: it is not the one. It is to be told why.
pub fn hear(line: &mut Line, daemon: &Daemon, is_child: bool) -> Result<(), GiveFault> {
    let patience = if is_child { FOR_THE_START } else { FOR_THE_ASK };
    let (Note::Ask(ask), _) = line.receive(Instant::now() + patience)? else {
        return Err(LineFault::OutOfTurn.into());
    };
    if let Some(words) = objection(daemon, &ask, is_child) {
        return Err(GiveFault::Unwilling(words));
    }
    tracing::info!(build = ask.build, "a successor takes over");
    Ok(())
}

/// Why this successor is not the one.
fn objection(daemon: &Daemon, ask: &Ask, is_child: bool) -> Option<String> {
    let (own, sessions) = (&daemon.settings, daemon.registry.len());
    let arena_bytes = own.memory.arena_bytes;
    if daemon.manager.is_there() && !is_child {
        Some("a service manager looks after this daemon: reload it there".to_owned())
    } else if daemon.brain.ledger().is_none() {
        Some("this daemon has no ledger of its memory: restart it instead".to_owned())
    } else if ask.ledger_version != LEDGER_VERSION {
        let version = ask.ledger_version;
        Some(format!("the ledger has version {LEDGER_VERSION}, the successor reads {version}"))
    } else if ask.arena_bytes != arena_bytes {
        let wanted = ask.arena_bytes;
        Some(format!("the arena has {arena_bytes} bytes, the successor wants {wanted}"))
    } else if ask.socket != own.socket.as_os_str().as_bytes() {
        Some(format!("this daemon serves {}, the successor does not", own.socket.display()))
    } else if u64::from(ask.sessions_max) < sessions as u64 {
        let most = ask.sessions_max;
        Some(format!("{sessions} sessions are connected, the successor serves at most {most}"))
    } else {
        None
    }
}

impl Offer<'_> {
    /// Hands over to the daemon at the other end, which was heard. Nobody is admitted meanwhile: the caller sees to that.
    ///
    /// If this succeeds, everything is the other daemon's, and this one must not touch it any more. It has stopped to
    /// decide, and its session threads are about to end.
    ///
    /// # Errors
    /// [`GiveFault`]: everything goes on. The other daemon is to be told why.
    pub fn hand_over(&self, line: &mut Line) -> Result<(), GiveFault> {
        let Self { daemon, .. } = self;
        daemon.parking.call();
        let given = self.let_stand_still().and_then(|left_behind| self.pass_on(line, left_behind));
        match given {
            Ok(()) => {
                daemon.brain.is_succeeded();
                daemon.parking.dismiss(Verdict::Leave);
            }
            Err(_) => {
                daemon.brain.go_on();
                daemon.devices.let_go();
                daemon.brain.parkers.begin_again();
                daemon.parking.dismiss(Verdict::GoOn);
            }
        }
        given
    }

    /// Until nobody but this thread does anything to arena or ledger; how many connections were closed for it.
    fn let_stand_still(&self) -> Result<u32, GiveFault> {
        let Self { daemon, .. } = self;
        let began = Instant::now();
        let (parking, registry) = (&daemon.parking, &daemon.registry);
        let parkers = &daemon.brain.parkers;
        let mut missing = parking.gather(registry, began + FOR_LOADS);
        if !missing.is_empty() {
            parkers.end_loads();
            missing = parking.gather(registry, began + FOR_ALL);
        }
        let left_behind = missing.len();
        if left_behind > 0 {
            tracing::warn!(left_behind, "connections are closed that cannot be handed over now");
            parkers.end_all();
            registry.shut_down_if(Shutdown::Both, |session| missing.contains(&session));
            missing = parking.gather(registry, began + FOR_ALL + FOR_THE_CLOSED);
            if !missing.is_empty() {
                return Err(GiveFault::Restless(missing.len()));
            }
        }
        if !daemon.devices.hold(Instant::now() + FOR_DEVICES) {
            return Err(GiveFault::Device);
        }
        daemon.brain.stand_still();
        Ok(u32::try_from(left_behind).unwrap_or(u32::MAX))
    }

    /// Everything but the last word leaves it to this daemon.
    fn pass_on(&self, line: &mut Line, left_behind: u32) -> Result<(), GiveFault> {
        let Self { daemon, .. } = self;
        let deadline = Instant::now() + PATIENCE;
        let Some(ledger) = daemon.brain.ledger() else {
            return Err(GiveFault::Unwilling("this daemon has no ledger".to_owned()));
        };
        // Sent as they are: where there are as many sessions as there may be, there is no descriptor left for a copy.
        let mut send_all = |parked: &Sessions, processes: &Processes| {
            let count = |many: usize| u32::try_from(many).unwrap_or(u32::MAX);
            let estate = Estate {
                epoch: daemon.status.epoch,
                next_session: self.next_session,
                sockets: count(self.claims.len() + usize::from(self.metrics.is_some())),
                sessions: count(parked.len()),
                watches: count(processes.len()),
                left_behind,
            };
            let memory = [daemon.arena.descriptor(), ledger.descriptor()];
            line.send(&Note::Estate(estate), &memory, deadline)?;
            self.pass_on_sockets(line, deadline)?;
            for session in parked.values() {
                let note = Note::Session(note_of(session));
                line.send(&note, &[session.stream.as_fd()], deadline)?;
            }
            for (session, process) in processes {
                let note = Note::Watch(SessionId(*session));
                line.send(&note, &[process.as_fd()], deadline)?;
            }
            Ok::<(), LineFault>(())
        };
        let watch = daemon.reaper.watched();
        daemon.parking.with_parked(|parked| watch.with_watched(|all| send_all(parked, all)))?;
        line.expect(&Note::Ready, deadline)?;
        Ok(line.send(&Note::Yours, &[], deadline)?)
    }

    fn pass_on_sockets(&self, line: &mut Line, deadline: Instant) -> Result<(), LineFault> {
        for (role, claim) in &self.claims {
            let (listener, lock, inode) = claim.parts();
            line.send(&Note::Socket { role: *role, inode }, &[listener, lock], deadline)?;
        }
        if let Some(listener) = self.metrics {
            let note = Note::Socket { role: Role::Metrics, inode: 0 };
            line.send(&note, &[listener], deadline)?;
        }
        Ok(())
    }
}

fn note_of(parked: &Parked) -> SessionNote {
    let facts = &parked.facts;
    SessionNote {
        id: facts.id,
        opened: parked.opened,
        modern: parked.modern,
        has_arena: facts.has_arena.load(Ordering::Relaxed),
        protocol: facts.protocol.load(Ordering::Relaxed),
        requests: facts.requests.load(Ordering::Relaxed),
        hits: parked.hits,
        age_ms: u64::try_from(facts.since.elapsed().as_millis()).unwrap_or(u64::MAX),
        client_id: facts.client_id.get().cloned(),
        inbox: parked.inbox.clone(),
        outbox: parked.outbox.clone(),
    }
}
