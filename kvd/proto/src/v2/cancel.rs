//! `cancel` and `cancelled`: tickets are given back unused.

use super::batch::first_column;
use crate::column::U64Column;
use crate::ids::{Epoch, TicketId};
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Gives tickets back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancel<'a> {
    /// Repeated in the reply.
    pub id: u64,
    /// Incarnation of the daemon that granted them.
    pub epoch: Epoch,
    /// The tickets, packed [`TicketId`]s.
    pub tickets: U64Column<'a>,
}

impl<'a> Cancel<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "cancel";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            id: fields.required(Self::OP, "id")?,
            epoch: Epoch(fields.required(Self::OP, "epoch")?),
            tickets: first_column(fields, Self::OP, "tickets")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 3)
            .field("id", self.id)
            .field("epoch", self.epoch.0)
            .field("tickets", self.tickets.as_bytes())
            .finish();
    }

    /// The tickets in order.
    pub fn ticket_ids(&self) -> impl ExactSizeIterator<Item = TicketId> + use<'a> {
        self.tickets.iter().map(TicketId)
    }
}

/// Answer to [`Cancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// Id of the request.
    pub id: u64,
    /// How many of the tickets were this session's and open.
    pub cancelled: u32,
}

impl Cancelled {
    /// Name on the wire.
    pub const OP: &'static str = "cancelled";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Malformed> {
        Ok(Self {
            id: fields.required(Self::OP, "id")?,
            cancelled: fields.required(Self::OP, "cancelled")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 2)
            .field("id", self.id)
            .field("cancelled", self.cancelled)
            .finish();
    }
}
