//! What a request is served with: the daemon, the peer, and the buffers that are used again and
//! again so that a hit allocates nothing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvd_proto::arena_offer::ArenaOffer;
use kvd_proto::ids::SessionId;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::v2::hello::DESCRIPTOR_MARKER;
use kvd_shm::descriptor;
use kvd_shm::mapping::{Piece, Stopped};
use kvd_shm::peer::{self, Identity};
use kvd_store::{
    ClearCursor, ClearScope, Effects, Found, Granted, Input, Outcome, ProcessName, Writer,
};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::ended::Ended;
use super::inbox::Inbox;
use super::outbox::Outbox;
use crate::daemon::Daemon;
use crate::parkers::Parker;
use crate::registry::Facts;
use crate::succession::handover::note::SessionNote;

pub(super) use crate::hints::SLICE_KEYS;

/// How long a request for room waits for arena memory that is being touched.
const GROWTH_PATIENCE: Duration = Duration::from_secs(3);

/// Everything of a session but its inbox.
#[derive(Debug)]
pub(super) struct Service {
    pub(super) daemon: Arc<Daemon>,
    pub(super) facts: Arc<Facts>,
    pub(super) stream: Arc<UnixStream>,
    pub(super) outbox: Outbox,
    pub(super) effects: Effects,
    /// The answer of the latest fetch.
    pub(super) found: Vec<Found>,
    /// Hits so far, for the sample that is verified.
    pub(super) hits: u64,
    /// Where this session's thread waits for storage.
    pub(super) parker: Arc<Parker>,
}

impl Service {
    pub(super) fn id(&self) -> SessionId {
        self.facts.id
    }

    /// Writes the replies that have gathered.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.flush_unless(|_daemon| false).map(drop)
    }

    /// As [`Service::flush`], unless the session is called to stand still while the peer does not read; whether all is
    /// written.
    pub(super) fn flush_or_park(&mut self) -> io::Result<bool> {
        self.flush_unless(|daemon| daemon.parking.is_called())
    }

    fn flush_unless(&mut self, gives_way: impl Fn(&Daemon) -> bool) -> io::Result<bool> {
        let sent = self.outbox.flush(&self.stream, || gives_way(&self.daemon))?;
        self.daemon.meters.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        Ok(self.outbox.bytes().is_empty())
    }

    /// Applies one input; the answer is in `effects` afterwards.
    pub(super) fn apply(&mut self, input: Input<'_>) {
        self.daemon.brain.apply(input, &mut self.effects);
    }

    /// Applies one input and takes its single answer.
    pub(super) fn ask(&mut self, input: Input<'_>) -> Outcome {
        self.apply(input);
        self.effects.outcome
    }

    /// How a successor of this daemon finds the peer's process; `None` also if there will be none.
    pub(super) fn name_of(&self, pidfd: BorrowedFd<'_>) -> Option<ProcessName> {
        self.daemon.brain.ledger()?;
        let Identity { pid, started } = peer::identity(self.facts.credentials.pid?, pidfd)?;
        Some(ProcessName { pid, started })
    }

    /// Asks for room of which the class is known.
    ///
    /// While the arena is still being touched, memory that is about to be ready is waited for
    /// rather than evicting what has just been stored.
    pub(super) fn reserve(
        &mut self,
        len_bytes: u64,
        class: Retention,
        writer: Writer,
    ) -> Result<Granted, Refusal> {
        let session = self.id();
        let until = Instant::now() + GROWTH_PATIENCE;
        let mut ready_bytes = self.daemon.warm_up.ready_bytes();
        while ready_bytes < self.daemon.arena.bytes() {
            let reserved = self.ask(Input::Reserve { session, len_bytes, class: None, writer });
            if !matches!(reserved, Outcome::Reserved(Err(Refusal::ArenaFull))) {
                return granted(reserved);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.daemon.warm_up.wait_growth(ready_bytes, left) {
                Some(now) => ready_bytes = now,
                None => break,
            }
        }
        granted(self.ask(Input::Reserve { session, len_bytes, class: Some(class), writer }))
    }

    /// Forgets rows slice by slice, so that nobody waits for a large clear; how many went. None if
    /// some may come back after a restart: no device has noted for good that they are gone.
    pub(super) fn clear(&mut self, scope: ClearScope<'_>) -> Option<u64> {
        let mut total = 0;
        let mut cursor = ClearCursor::START;
        while let Outcome::Cleared { rows, next } = self.ask(Input::Clear { scope, cursor }) {
            total += rows;
            match next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        let wait = self.effects.wait;
        match wait {
            Some(wait) if !self.is_durable(wait) => None,
            Some(_) | None => Some(total),
        }
    }

    /// Writes the replies that have gathered, and a piece of the arena right behind them. What a peer does not read while
    /// the session is called to stand still waits with the replies, if it is not too much.
    pub(super) fn send_with(&mut self, piece: Piece<'_>) -> Result<(), Stopped> {
        let len = match piece {
            Piece::Bytes(bytes) => bytes.len(),
            Piece::Arena { len, .. } => len,
        };
        let (daemon, out) = (&self.daemon, self.outbox.buffer());
        let arena = daemon.arena.mapping();
        let total = out.len() + len;
        let gives_way = || daemon.parking.is_called() && SessionNote::fits(0, total);
        let pieces = [Piece::Bytes(out), piece];
        let sent = arena.send_pieces_unless(self.stream.as_fd(), &pieces, gives_way)?;
        daemon.meters.sent_bytes.fetch_add(sent as u64, Ordering::Relaxed);
        let sent_of_piece = sent.saturating_sub(out.len());
        out.drain(..sent.min(out.len()));
        if sent < total {
            let at = out.len();
            match piece {
                Piece::Bytes(bytes) => out.extend_from_slice(&bytes[sent_of_piece..]),
                Piece::Arena { offset, len } => {
                    out.resize(at + len - sent_of_piece, 0);
                    arena.copy_out(offset + sent_of_piece as u64, &mut out[at..]);
                }
            }
        }
        Ok(())
    }

    /// Reads once into the inbox, nothing if a nudge comes. Replies must have been flushed: the peer may wait for them.
    pub(super) fn fill(&self, inbox: &mut Inbox) -> Result<(), Ended> {
        let got = match inbox.fill(&mut &*self.stream) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(Ended::ReadStall);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            got => got?,
        };
        self.count_received(got);
        if got == 0 { Err(Ended::Eof) } else { Ok(()) }
    }

    /// Waits for the peer's first bytes; false if a nudge comes before.
    pub(super) fn wait_for_bytes(&self) -> io::Result<bool> {
        let mut waits = [PollFd::new(self.stream.as_fd(), PollFlags::POLLIN)];
        match poll(&mut waits, PollTimeout::NONE) {
            Ok(_) => Ok(true),
            Err(Errno::EINTR) => Ok(false),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn count_received(&self, bytes: usize) {
        self.daemon.meters.received_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn count_error_frame(&self) {
        self.daemon.meters.error_frames.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether this session may be answered with places in the arena.
    pub(super) fn has_arena(&self) -> bool {
        self.facts.has_arena.load(Ordering::Relaxed)
    }

    /// Takes a `hello`: the arena, if it is the first one, asks for it, and the daemon shares one.
    pub(super) fn introduce(&self, client_id: &str, wants_arena: bool) -> Option<ArenaOffer> {
        let first = self.facts.introduce(client_id);
        let offered = first && wants_arena && self.daemon.settings.memory.shared;
        offered.then(|| ArenaOffer {
            size_bytes: self.daemon.arena.bytes(),
            slot_size_bytes: 0,
            server_pid: std::process::id(),
        })
    }

    /// Sends what has gathered (the ack that made the offer, complete), then the descriptor with
    /// its marker byte in a message of its own.
    pub(super) fn hand_over_arena(&mut self) -> io::Result<()> {
        self.flush()?;
        let arena = self.daemon.arena.descriptor();
        descriptor::send_with_descriptor(self.stream.as_fd(), &[DESCRIPTOR_MARKER], arena)?;
        self.facts.has_arena.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Waits until the whole arena is present, at most `patience`.
    pub(super) fn wait_for_arena(&self, patience: Duration) {
        self.daemon.warm_up.wait_complete(patience);
    }
}

fn granted(outcome: Outcome) -> Result<Granted, Refusal> {
    match outcome {
        Outcome::Reserved(result) => result,
        _ => Err(Refusal::Shed),
    }
}
