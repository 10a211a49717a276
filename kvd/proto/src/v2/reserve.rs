//! `reserve` and `reserved`: tickets to write extents of the arena.

use super::batch::first_column;
use crate::column::{ColumnBuf, U8Column, U64Column, check_same};
use crate::ids::TicketId;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};
use crate::refusal::Refusal;
use crate::retention::Retention;

/// Asks for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserve<'a> {
    /// Repeated in the reply.
    pub id: u64,
    /// Class of what will be written: rows up to it may be evicted to make room.
    pub retention: Retention,
    /// Bytes of each value.
    pub lens: U64Column<'a>,
}

impl<'a> Reserve<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "reserve";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            id: fields.required(Self::OP, "id")?,
            retention: fields.required(Self::OP, "retention")?,
            lens: first_column(fields, Self::OP, "lens")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 3)
            .field("id", self.id)
            .field("retention", self.retention)
            .field("lens", self.lens.as_bytes())
            .finish();
    }
}

/// Answer to [`Reserve`]: a row per length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reserved<'a> {
    /// Id of the request.
    pub id: u64,
    outcomes: U8Column<'a>,
    tickets: U64Column<'a>,
    offsets: U64Column<'a>,
}

/// What became of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReservedRow {
    /// The extent is the session's until committed or cancelled.
    Granted {
        /// The right to write it.
        ticket: TicketId,
        /// Where the value begins in the arena, in bytes.
        offset: u64,
    },
    /// No. A refusal that this release does not know reads as [`Refusal::Shed`].
    Refused(Refusal),
}

impl<'a> Reserved<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "reserved";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        let outcomes: U8Column<'a> = first_column(fields, Self::OP, "outcomes")?;
        let reserved = Self {
            id: fields.required(Self::OP, "id")?,
            outcomes,
            tickets: fields.column(Self::OP, "tickets")?,
            offsets: fields.column(Self::OP, "offsets")?,
        };
        check_same("tickets", reserved.tickets.len(), outcomes.len())?;
        check_same("offsets", reserved.offsets.len(), outcomes.len())?;
        Ok(reserved)
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 4)
            .field("id", self.id)
            .field("outcomes", self.outcomes.as_bytes())
            .field("tickets", self.tickets.as_bytes())
            .field("offsets", self.offsets.as_bytes())
            .finish();
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// The row of the length at `index` of the request.
    #[must_use]
    pub fn row(&self, index: usize) -> Option<ReservedRow> {
        let code = self.outcomes.get(index)?;
        if code != 0 {
            return Some(ReservedRow::Refused(Refusal::from_code_or_shed(code)));
        }
        Some(ReservedRow::Granted {
            ticket: TicketId(self.tickets.get(index)?),
            offset: self.offsets.get(index)?,
        })
    }

    /// All rows in order.
    pub fn rows(&self) -> impl Iterator<Item = ReservedRow> + use<'a> {
        let reserved = *self;
        (0..reserved.len()).filter_map(move |index| reserved.row(index))
    }
}

/// Rows being collected for a [`Reserved`]; keeps its memory between replies.
#[derive(Clone, Debug, Default)]
pub struct ReservedRows {
    outcomes: ColumnBuf<u8>,
    tickets: ColumnBuf<u64>,
    offsets: ColumnBuf<u64>,
}

impl ReservedRows {
    /// Appends one row.
    pub fn push(&mut self, row: ReservedRow) {
        let (outcome, ticket, offset) = match row {
            ReservedRow::Granted { ticket, offset } => (0, ticket, offset),
            ReservedRow::Refused(refusal) => (refusal.code(), TicketId(0), 0),
        };
        self.outcomes.push(outcome);
        self.tickets.push(ticket.0);
        self.offsets.push(offset);
    }

    /// Removes all rows, keeps the memory.
    pub fn clear(&mut self) {
        self.outcomes.clear();
        self.tickets.clear();
        self.offsets.clear();
    }

    /// The reply with these rows.
    #[must_use]
    pub fn reply(&self, id: u64) -> Reserved<'_> {
        Reserved {
            id,
            outcomes: self.outcomes.as_column(),
            tickets: self.tickets.as_column(),
            offsets: self.offsets.as_column(),
        }
    }
}
