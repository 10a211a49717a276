//! One session: a thread, a socket, and the frames that cross it.
//!
//! `inbox` gathers what arrives, `v1` and `v2` answer one frame each, `outbox` gathers replies. The thread that read a
//! request applies it and writes the answer; `loads` and `verdicts` are where it waits for storage, `verify` checks hits.
//!
//! **Invariant:** a session holds the store's lock only inside [`crate::brain::Brain::apply`], never
//! while it reads or writes a socket.

mod ended;
mod inbox;
mod loads;
mod outbox;
mod service;
mod v1;
mod v2;
mod verdicts;
mod verify;

use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvd_proto::frame;
use kvd_proto::ids::SessionId;
use kvd_proto::v2::hello::Hello;
use kvd_shm::descriptor;
use kvd_shm::peer;
use kvd_store::{Effects, Input, Peer};

use crate::daemon::Daemon;
use crate::registry::Facts;
use crate::succession::handover::note::SessionNote;
use crate::succession::handover::parking::{Parked, Verdict};
use ended::Ended;
use inbox::{Front, Inbox};
use outbox::Outbox;
use service::Service;
use v1::Streamed;

/// Bodies up to this size need no staging permit: they fit the session's own buffer.
const FREE_BODY_BYTES: usize = 1 << 20;
/// What each MiB of a staged body may take, beside the patience of one stall.
const SLOWEST_BODY: Duration = Duration::from_millis(100);

/// Whether the first bytes of a body already tell that it is no `hello`: a map of up to 15 entries whose
/// first one is `op`, with another name of up to 31 bytes.
fn is_plainly_no_hello(body: &[u8]) -> bool {
    let op_first = body.get(1..4) == Some(b"\xa2op");
    op_first
        && body.get(4).is_some_and(|head| head & 0xe0 == 0xa0)
        && body.get(4..10) != Some(b"\xa5hello")
}

/// The state of one session, owned by its thread.
#[derive(Debug)]
pub(crate) struct Session {
    inbox: Inbox,
    service: Service,
    rows: v2::Rows,
    /// The peer's process, until the first bytes decide how it is watched.
    pidfd: Option<OwnedFd>,
    opened: bool,
    /// The peer speaks protocol 2.
    modern: bool,
}

impl Session {
    /// A session on an accepted connection.
    ///
    /// # Errors
    /// The socket's send timeout could not be set.
    pub(crate) fn new(
        daemon: Arc<Daemon>,
        facts: Arc<Facts>,
        stream: Arc<UnixStream>,
        pidfd: Option<OwnedFd>,
    ) -> io::Result<Self> {
        stream.set_write_timeout(Some(daemon.settings.limits.write_stall))?;
        // A daemon before may have left one.
        stream.set_read_timeout(None)?;
        let (outbox, effects) = (Outbox::default(), Effects::default());
        Ok(Self {
            inbox: Inbox::new(),
            service: Service {
                daemon,
                facts,
                stream,
                outbox,
                effects,
                found: Vec::new(),
                hits: 0,
                parker: Arc::default(),
            },
            rows: v2::Rows::default(),
            pidfd,
            opened: false,
            modern: false,
        })
    }

    /// Goes on where a daemon before has stopped: `note` is what it said of the session. `is_adopted` if the store has
    /// taken it over with what it holds.
    ///
    /// # Errors
    /// Its process can't be watched.
    pub(crate) fn go_on(mut self, note: SessionNote, is_adopted: bool) -> io::Result<Self> {
        self.inbox = Inbox::holding(note.inbox);
        *self.service.outbox.buffer() = note.outbox;
        self.service.hits = note.hits;
        self.modern = note.modern;
        if note.opened && is_adopted {
            self.opened = true;
            self.pidfd = None;
        } else if note.opened {
            self.open(None)?;
        }
        Ok(self)
    }

    /// Serves until the connection ends, then gives back what the session held.
    pub(crate) fn run(mut self) {
        let ended = match self.serve() {
            Ok(never) => match never {},
            Err(ended) => ended,
        };
        let service = &mut self.service;
        let (id, pid) = (service.id(), service.facts.credentials.pid);
        ended.log(id, pid, &service.daemon.closings);
        service.daemon.meters.sessions_ended.count(ended.label());
        if self.opened && !matches!(ended, Ended::HandedOver) {
            service.apply(Input::Close { session: id });
        }
        let daemon = Arc::clone(&service.daemon);
        let is_held = |session: SessionId| daemon.reaper.watched().is_watched(session.0);
        if let Some(pid) = pid.filter(|_| is_held(id)) {
            daemon.lost.add(pid, id, is_held);
        }
        // The socket closes before the registry forgets it, so that a drain has seen the end.
        drop(self);
        daemon.registry.remove(id);
    }

    fn serve(&mut self) -> Result<Infallible, Ended> {
        while !self.opened {
            if self.service.wait_for_bytes()? {
                self.first_bytes()?;
            } else {
                self.stand_still_if_called()?;
            }
        }
        loop {
            self.stand_still_if_called()?;
            match self.front()? {
                Front::Frame(body) => {
                    self.handle(body.clone())?;
                    self.inbox.consume_to(body.end);
                    if self.service.outbox.is_full() {
                        self.service.flush_or_park()?;
                    }
                }
                Front::Nothing => {
                    if self.service.flush_or_park()? {
                        self.service.fill(&mut self.inbox)?;
                    }
                }
                Front::Begun { body_bytes } => {
                    if self.service.flush_or_park()? {
                        self.receive_body(body_bytes)?;
                    }
                }
            }
        }
    }

    /// Between two frames: leaves the connection as it is to a successor, if one is about to take over.
    fn stand_still_if_called(&mut self) -> Result<(), Ended> {
        let service = &self.service;
        if !service.daemon.parking.is_called() {
            return Ok(());
        }
        let (inbox, outbox) = (self.inbox.unread(), service.outbox.bytes());
        if !SessionNote::fits(inbox.len(), outbox.len()) {
            return Err(Ended::LeftBehind);
        }
        let verdict = service.daemon.parking.park(Parked {
            facts: Arc::clone(&service.facts),
            stream: Arc::clone(&service.stream),
            opened: self.opened,
            modern: self.modern,
            hits: service.hits,
            inbox: inbox.to_vec(),
            outbox: outbox.to_vec(),
        });
        match verdict {
            Verdict::GoOn => Ok(()),
            Verdict::Leave => Err(Ended::HandedOver),
        }
    }

    /// The first read may bring the peer's own pidfd; only then is it known how to watch it.
    fn first_bytes(&mut self) -> Result<(), Ended> {
        let service = &mut self.service;
        let (got, passed) =
            descriptor::receive_with_descriptors(service.stream.as_fd(), self.inbox.room(), 1)?;
        if got == 0 {
            return Err(Ended::Eof);
        }
        self.inbox.filled(got);
        service.count_received(got);
        let credentials = service.facts.credentials;
        let passed = passed
            .into_iter()
            .find(|passed| peer::verify_pidfd(passed.as_fd(), &credentials).is_ok());
        self.open(passed).map_err(Ended::Unwatchable)
    }

    /// Makes the session known to the store; `passed` is a descriptor of the peer's process that it passed itself.
    fn open(&mut self, passed: Option<OwnedFd>) -> io::Result<()> {
        let service = &mut self.service;
        let session = service.id();
        let pidfd = self.pidfd.take().or(passed);
        let peer = if pidfd.is_some() { Peer::Watched } else { Peer::Unknowable };
        let process = pidfd.as_ref().and_then(|pidfd| service.name_of(pidfd.as_fd()));
        service.apply(Input::Open { session, peer, process });
        self.opened = true;
        // After the session is known: the process may be gone already, and that is told only once.
        if let Some(pidfd) = pidfd {
            service.daemon.reaper.watch(session, pidfd)?;
        }
        Ok(())
    }

    fn front(&mut self) -> Result<Front, Ended> {
        let limit = if self.modern {
            frame::V2_FRAME_BYTES_MAX
        } else {
            self.service.daemon.settings.limits.frame_bytes_max
        };
        match self.inbox.front(limit) {
            Err(reason) if self.modern => Err(v2::refuse_prefix(&mut self.service, reason)),
            front => Ok(front?),
        }
    }

    fn handle(&mut self, body: Range<usize>) -> Result<(), Ended> {
        let body = self.inbox.slice(body);
        self.service.facts.count_request();
        // Clients write a short map with `op` first, so only a hello, or an oddity, is looked at twice.
        if !self.modern && !is_plainly_no_hello(body) {
            self.modern = Hello::asks_for_v2(body);
        }
        if self.modern {
            v2::answer(&mut self.service, &mut self.rows, body)
        } else {
            v1::answer(&mut self.service, body)
        }
    }

    /// Gets the rest of a body: a large value goes straight into the arena, anything else into the
    /// inbox, within the staging budget.
    fn receive_body(&mut self, body_bytes: usize) -> Result<(), Ended> {
        if !self.modern && body_bytes >= v1::STREAM_BODY_BYTES {
            match v1::stream_set(&mut self.service, &mut self.inbox, body_bytes)? {
                Streamed::Done => return Ok(()),
                Streamed::NeedMore => return self.service.fill(&mut self.inbox),
                Streamed::No => {}
            }
        }
        if body_bytes <= FREE_BODY_BYTES {
            self.service.fill(&mut self.inbox)
        } else {
            self.receive_staged(body_bytes)
        }
    }

    /// Others may wait for the room that such a body takes, so a peer that stalls inside it, or
    /// trickles, is closed.
    fn receive_staged(&mut self, body_bytes: usize) -> Result<(), Ended> {
        let daemon = Arc::clone(&self.service.daemon);
        let patience = daemon.settings.limits.write_stall;
        let Some(_permit) = daemon.staging.acquire(body_bytes as u64, patience) else {
            daemon.meters.staging_refused.fetch_add(1, Ordering::Relaxed);
            if !self.modern && v1::decline_set(&mut self.service, &mut self.inbox, body_bytes)? {
                return Ok(());
            }
            return Err(Ended::NoStaging { body_bytes });
        };
        self.service.stream.set_read_timeout(Some(patience))?;
        let until = Instant::now()
            + patience
            + SLOWEST_BODY * u32::try_from(body_bytes >> 20).unwrap_or(u32::MAX);
        while self.inbox.begun().len() < body_bytes {
            self.service.fill(&mut self.inbox)?;
            if Instant::now() > until {
                return Err(Ended::ReadStall);
            }
            let begun_bytes = self.inbox.unread().len();
            if daemon.parking.is_called() && SessionNote::fits(begun_bytes, 0) {
                self.service.stream.set_read_timeout(None)?;
                return Ok(());
            }
        }
        self.service.stream.set_read_timeout(None)?;
        if let Front::Frame(body) = self.front()? {
            // Handled under the permit: the body stays in memory until then.
            self.handle(body.clone())?;
            self.inbox.consume_to(body.end);
        }
        Ok(())
    }
}
