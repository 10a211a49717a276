//! An established connection: numbered requests, their answers, and what became of those that nobody
//! waits for any more.
//!
//! A deadline does not break a connection. The request's number is remembered instead; when its
//! answer comes after all, the rights it grants are given back and the answer is dropped. An answer
//! to a number that is not open ends the connection: from then on nothing it says can be trusted.

use std::sync::Arc;
use std::time::Duration;

use kvd_proto::column::{ColumnBuf, KEYS_MAX, KeyColumnBuf, U64Column, Word};
use kvd_proto::v2::Reply;
use kvd_proto::v2::cancel::Cancel;
use kvd_proto::v2::error::{ErrorCode, ErrorReply};
use kvd_proto::v2::fetch::FetchedRow;
use kvd_proto::v2::hello::Limits;
use kvd_proto::v2::release::Release;
use kvd_proto::v2::reserve::ReservedRow;
use kvd_proto::v2::resume::Resume;

use crate::attachment::Attachment;
use crate::deadline::Deadline;
use crate::error::{Breach, ClientError};
use crate::wire::{Wire, WireFault};

/// Requests that may be unanswered before new ones are held back: a daemon that does not answer must
/// not be sent ever more.
const ABANDONED_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Live {
    wire: Wire,
    attachment: Arc<Attachment>,
    last_id: u64,
    abandoned: Abandoned,
    scratch: Scratch,
}

/// Requests whose answers are still to come and nobody waits for.
#[derive(Debug, Default)]
struct Abandoned {
    ids: Vec<u64>,
    /// The one whose answer says that the daemon took note of earlier connections.
    resume: Option<u64>,
}

/// Columns of the request being written; they keep their memory from call to call.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    pub(crate) keys: KeyColumnBuf,
    pub(crate) lens: ColumnBuf<u64>,
    pub(crate) tickets: ColumnBuf<u64>,
    pub(crate) checksums: ColumnBuf<u64>,
}

/// A request being written.
#[derive(Debug)]
pub(crate) struct Outgoing<'a> {
    pub(crate) id: u64,
    pub(crate) attachment: &'a Attachment,
    pub(crate) scratch: &'a mut Scratch,
    pub(crate) frame: &'a mut Vec<u8>,
}

/// An answer being read. Never an error frame.
#[derive(Debug)]
pub(crate) struct Incoming<'a> {
    pub(crate) reply: Reply<'a>,
    pub(crate) attachment: &'a Arc<Attachment>,
}

impl Live {
    pub(crate) fn new(wire: Wire, attachment: Arc<Attachment>) -> Self {
        let scratch = Scratch::default();
        let abandoned = Abandoned::default();
        let mut live = Self { wire, attachment, last_id: 0, abandoned, scratch };
        live.write_kept();
        live
    }

    pub(crate) fn attachment(&self) -> &Arc<Attachment> {
        &self.attachment
    }

    /// Sends what `write` writes and waits for its answer. If it fails before `write` was called,
    /// the daemon has not seen the request.
    pub(crate) fn exchange<R>(
        &mut self,
        deadline: Deadline,
        write: impl FnOnce(Outgoing<'_>) -> Result<(), ClientError>,
        read: impl FnOnce(Incoming<'_>) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        let id = self.put(deadline, write)?;
        let answer = self.flush(deadline).and_then(|()| self.await_answer(id, deadline, read));
        if let Err(ClientError::Deadline { .. }) = answer {
            self.abandoned.ids.push(id);
        }
        answer
    }

    /// Sends what `write` writes, which has no answer.
    pub(crate) fn tell(
        &mut self,
        deadline: Deadline,
        write: impl FnOnce(Outgoing<'_>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        self.put(deadline, write)?;
        self.flush(deadline)
    }

    /// Puts what `write` writes into the outbox, under the number that is returned.
    fn put(
        &mut self,
        deadline: Deadline,
        write: impl FnOnce(Outgoing<'_>) -> Result<(), ClientError>,
    ) -> Result<u64, ClientError> {
        // Leftovers of an earlier call first, so that what waits to be sent stays bounded.
        self.flush(deadline)?;
        while self.abandoned.ids.len() >= ABANDONED_MAX {
            self.await_frame(deadline)?;
            let reply = Reply::decode(self.wire.frame()).map_err(Breach::from)?;
            self.abandoned.settle(reply, &self.attachment)?;
        }
        self.write_returns();
        let id = self.next_id();
        let Self { wire, attachment, scratch, .. } = self;
        let begun = wire.outbox().len();
        let outgoing = Outgoing { id, attachment, scratch, frame: wire.outbox() };
        write(outgoing).inspect_err(|_| wire.outbox().truncate(begun))?;
        Ok(id)
    }

    /// Sends queued returns if the socket takes them at once, and looks whether abandoned requests
    /// have been answered. Never waits; false if the queue could not be emptied now.
    pub(crate) fn give_back(&mut self) -> Result<bool, ClientError> {
        let now = Deadline::after(Duration::ZERO);
        if !self.wire.flush_now().map_err(|fault| explain(fault, now))? {
            return Ok(false);
        }
        while !self.abandoned.ids.is_empty() {
            match self.await_frame(now) {
                Ok(()) => {}
                Err(ClientError::Deadline { .. }) => break,
                Err(error) => return Err(error),
            }
            let reply = Reply::decode(self.wire.frame()).map_err(Breach::from)?;
            self.abandoned.settle(reply, &self.attachment)?;
        }
        if self.abandoned.ids.len() >= ABANDONED_MAX {
            return Ok(false);
        }
        self.write_returns();
        self.wire.flush_now().map_err(|fault| explain(fault, now))?;
        Ok(true)
    }

    fn await_answer<R>(
        &mut self,
        id: u64,
        deadline: Deadline,
        read: impl FnOnce(Incoming<'_>) -> Result<R, ClientError>,
    ) -> Result<R, ClientError> {
        loop {
            self.await_frame(deadline)?;
            let reply = Reply::decode(self.wire.frame()).map_err(Breach::from)?;
            if reply.id() != Some(id) {
                self.abandoned.settle(reply, &self.attachment)?;
                continue;
            }
            return match reply {
                Reply::Error(error) => Err(refused(error)),
                reply => read(Incoming { reply, attachment: &self.attachment }),
            };
        }
    }

    fn flush(&mut self, deadline: Deadline) -> Result<(), ClientError> {
        self.wire.flush(deadline).map_err(|fault| explain(fault, deadline))
    }

    fn await_frame(&mut self, deadline: Deadline) -> Result<(), ClientError> {
        self.wire.await_frame(deadline).map_err(|fault| explain(fault, deadline))
    }

    /// Appends queued leases and tickets to the outbox. Nobody waits for the answer to a cancel.
    fn write_returns(&mut self) {
        let Self { wire, attachment, abandoned, last_id, .. } = self;
        let epoch = attachment.epoch;
        attachment.returns.drain(|queue| {
            for leases in frames_of(queue.leases.as_column(), &attachment.limits) {
                Release { epoch, leases }.encode(wire.outbox());
            }
            for tickets in frames_of(queue.tickets.as_column(), &attachment.limits) {
                *last_id += 1;
                Cancel { id: *last_id, epoch, tickets }.encode(wire.outbox());
                abandoned.ids.push(*last_id);
            }
        });
    }

    /// Puts into the outbox, before anything else, what is held of earlier connections. What does not fit into one frame
    /// goes in several; the sessions come last, since all that was not named before them is free.
    fn write_kept(&mut self) {
        let Self { wire, attachment, abandoned, last_id, .. } = self;
        let Attachment { limits, abilities, .. } = attachment.as_ref();
        attachment.returns.attached(attachment.connection(), abilities.resumes, |kept| {
            let mut put = |leases, tickets, sessions| {
                *last_id += 1;
                Resume { id: *last_id, leases, tickets, sessions }.encode(wire.outbox());
                abandoned.ids.push(*last_id);
                abandoned.resume = Some(*last_id);
            };
            let (none, sessions) = (ColumnBuf::new(), kept.sessions.as_column());
            let none = none.as_column();
            frames_of(kept.leases.as_column(), limits).for_each(|leases| put(leases, none, none));
            frames_of(kept.tickets.as_column(), limits).for_each(|some| put(none, some, none));
            frames_of(sessions, limits).for_each(|sessions| put(none, none, sessions));
        });
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.attachment.returns.lost(self.attachment.connection());
    }
}

impl Abandoned {
    /// Takes note of an answer that nobody waits for: what it grants goes back.
    fn settle(&mut self, reply: Reply<'_>, attachment: &Attachment) -> Result<(), ClientError> {
        let Some(id) = reply.id() else {
            return Err(farewell(reply).into());
        };
        let open = self.ids.iter().position(|&abandoned| abandoned == id);
        self.ids.swap_remove(open.ok_or(Breach::UnknownId { id })?);
        let (returns, connection) = (&attachment.returns, attachment.connection());
        match reply {
            Reply::Fetched(fetched) => {
                for row in fetched.rows() {
                    if let FetchedRow::Hit { lease, .. } = row {
                        returns.add_lease(connection, lease, true);
                    }
                }
            }
            Reply::Reserved(reserved) => {
                for row in reserved.rows() {
                    if let ReservedRow::Granted { ticket, .. } = row {
                        returns.add_ticket(connection, ticket);
                    }
                }
            }
            Reply::Resumed(_) if self.resume == Some(id) => returns.resumed(),
            _ => {}
        }
        Ok(())
    }
}

/// The column in pieces that one frame may carry.
fn frames_of<'a>(column: U64Column<'a>, limits: &Limits) -> impl Iterator<Item = U64Column<'a>> {
    let items = usize::try_from(limits.keys_max).map_or(KEYS_MAX, |max| max.clamp(1, KEYS_MAX));
    column.as_bytes().chunks(items * u64::BYTES).filter_map(U64Column::new)
}

/// The fault in the caller's terms.
pub(crate) fn explain(fault: WireFault, deadline: Deadline) -> ClientError {
    match fault {
        WireFault::Deadline => ClientError::Deadline { waited_ms: deadline.waited_ms() },
        WireFault::Lost(source) => ClientError::Disconnected { source },
        WireFault::Breach(breach) => ClientError::Protocol(breach),
    }
}

/// The error frame that answers a request.
pub(crate) fn refused(error: ErrorReply<'_>) -> ClientError {
    if ErrorCode::parse(error.code) == Some(ErrorCode::NoArena) {
        return ClientError::NoArena;
    }
    ClientError::Refused { code: error.code.to_owned(), message: error.message.to_owned() }
}

/// A frame without a number where an answer was due.
fn farewell(reply: Reply<'_>) -> Breach {
    match reply {
        Reply::Error(error) => {
            Breach::Farewell { code: error.code.to_owned(), message: error.message.to_owned() }
        }
        _ => Breach::WrongKind,
    }
}
