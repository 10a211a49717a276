//! `resume` and `resumed`: what a process held by connections that it lost goes on, or ends.
//!
//! A connection can be lost without its process: the daemon was restarted, or closed it. What was lent over it stays lent,
//! since the process may use it still. Once it has a new connection it says what of that it has; the rest is free.

use super::batch::first_column;
use crate::column::U64Column;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Takes over rights of sessions whose connections are lost, and lets go of all others of these sessions.
///
/// All three lists may be empty. Rights that do not fit into one message go in several, of which only the last one
/// names the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resume<'a> {
    /// Repeated in the reply.
    pub id: u64,
    /// Leases, packed [`LeaseId`](crate::ids::LeaseId)s, that the process still has: the asking session's from now on.
    pub leases: U64Column<'a>,
    /// Tickets, packed [`TicketId`](crate::ids::TicketId)s: likewise.
    pub tickets: U64Column<'a>,
    /// Sessions, packed [`SessionId`](crate::ids::SessionId)s, of the same process in the same arena. Their connections are
    /// lost for the client, and whatever else they hold nobody has.
    pub sessions: U64Column<'a>,
}

impl<'a> Resume<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "resume";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            id: fields.required(Self::OP, "id")?,
            leases: first_column(fields, Self::OP, "leases")?,
            tickets: first_column(fields, Self::OP, "tickets")?,
            sessions: first_column(fields, Self::OP, "sessions")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 4)
            .field("id", self.id)
            .field("leases", self.leases.as_bytes())
            .field("tickets", self.tickets.as_bytes())
            .field("sessions", self.sessions.as_bytes())
            .finish();
    }
}

/// Answer to [`Resume`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resumed {
    /// Id of the request.
    pub id: u64,
    /// How many of the leases and tickets are the asking session's now.
    pub rights: u32,
    /// How many of the sessions were still known, and the same process's.
    pub sessions: u32,
}

impl Resumed {
    /// Name on the wire.
    pub const OP: &'static str = "resumed";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            id: fields.required(Self::OP, "id")?,
            rights: fields.required(Self::OP, "rights")?,
            sessions: fields.required(Self::OP, "sessions")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 3)
            .field("id", self.id)
            .field("rights", self.rights)
            .field("sessions", self.sessions)
            .finish();
    }
}
