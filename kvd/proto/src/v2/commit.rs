//! `commit` and `committed`: written extents become blocks.

use super::batch::{first_column, keys, namespace, put_keys, put_namespace};
use crate::block_key::Namespace;
use crate::column::{ColumnBuf, KeyColumn, U8Column, U64Column, check_same};
use crate::ids::{Epoch, TicketId};
use crate::lineage::Lineage;
use crate::malformed::Malformed;
use crate::pack::{Array, Fields, FrameWriter};
use crate::refusal::Refusal;
use crate::retention::Retention;

/// Turns tickets into blocks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Commit<'a> {
    /// Repeated in the reply.
    pub id: u64,
    /// Incarnation of the daemon that granted the tickets.
    pub epoch: Epoch,
    /// Where the keys belong.
    pub namespace: Namespace<'a>,
    /// Class of all of them.
    pub retention: Retention,
    /// Time to live of all of them, in milliseconds; 0 on the wire means none.
    pub ttl_ms: Option<u64>,
    /// The tickets, packed [`TicketId`]s.
    pub tickets: U64Column<'a>,
    /// A key per ticket.
    pub keys: KeyColumn<'a>,
    /// Bytes really written, per ticket.
    pub lens: U64Column<'a>,
    /// The checksum of each block, or nothing at all. See [`Commit::checksums_given`].
    pub checksums: Option<U64Column<'a>>,
    /// An encoded [`Lineage`] or nothing per ticket, or nothing at all.
    pub lineages: Option<Array<'a, Option<&'a [u8]>>>,
}

impl<'a> Commit<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "commit";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`; also if a lineage is malformed.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        let tickets: U64Column<'a> = first_column(fields, Self::OP, "tickets")?;
        let ttl_ms: u64 = fields.required(Self::OP, "ttl_ms")?;
        let commit = Self {
            id: fields.required(Self::OP, "id")?,
            epoch: Epoch(fields.required(Self::OP, "epoch")?),
            namespace: namespace(fields, Self::OP)?,
            retention: fields.required(Self::OP, "retention")?,
            ttl_ms: (ttl_ms != 0).then_some(ttl_ms),
            tickets,
            keys: keys(fields, Self::OP)?,
            lens: fields.column(Self::OP, "lens")?,
            checksums: fields.optional_column("checksums")?,
            lineages: fields.optional::<Option<_>>("lineages")?.flatten(),
        };
        check_same("key_lens", commit.keys.len(), tickets.len())?;
        check_same("lens", commit.lens.len(), tickets.len())?;
        if let Some(checksums) = commit.checksums {
            check_same("checksums", checksums.len(), tickets.len())?;
        }
        if let Some(lineages) = commit.lineages {
            check_same("lineages", lineages.len(), tickets.len())?;
            for lineage in lineages.iter().flatten() {
                Lineage::check(lineage)
                    .map_err(|_malformed| Malformed::BadValue { field: "lineages" })?;
            }
        }
        Ok(commit)
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        // An absent column is left out, not nil: to peers of the first release the frame is the one they know.
        let fields = if self.checksums.is_some() { 12 } else { 11 };
        let writer = FrameWriter::begin(out, Self::OP, fields)
            .field("id", self.id)
            .field("epoch", self.epoch.0);
        let writer = put_namespace(writer, &self.namespace)
            .field("retention", self.retention)
            .field("ttl_ms", self.ttl_ms.unwrap_or(0))
            .field("tickets", self.tickets.as_bytes());
        let writer = put_keys(writer, self.keys)
            .field("lens", self.lens.as_bytes())
            .field("lineages", self.lineages);
        match self.checksums {
            Some(checksums) => writer.field("checksums", checksums.as_bytes()).finish(),
            None => writer.finish(),
        }
    }

    /// The tickets in order.
    pub fn ticket_ids(&self) -> impl ExactSizeIterator<Item = TicketId> + use<'a> {
        self.tickets.iter().map(TicketId)
    }

    /// The checksum of each ticket's block, in order: CRC-64/NVME over its bytes, then its key. On the wire
    /// 0 stands for none; a block whose checksum happens to be 0 goes without.
    pub fn checksums_given(&self) -> impl Iterator<Item = Option<u64>> + use<'a> {
        let checksums = self.checksums;
        (0..self.tickets.len()).map(move |index| {
            checksums.and_then(|checksums| checksums.get(index)).filter(|checksum| *checksum != 0)
        })
    }
}

/// Answer to [`Commit`]: an outcome per ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Committed<'a> {
    /// Id of the request.
    pub id: u64,
    outcomes: U8Column<'a>,
}

impl<'a> Committed<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "committed";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            id: fields.required(Self::OP, "id")?,
            outcomes: first_column(fields, Self::OP, "outcomes")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 2)
            .field("id", self.id)
            .field("outcomes", self.outcomes.as_bytes())
            .finish();
    }

    /// Number of outcomes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Whether there is no outcome.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// The outcomes in order. A refusal that this release does not know reads as
    /// [`Refusal::Shed`].
    pub fn rows(&self) -> impl ExactSizeIterator<Item = Result<(), Refusal>> + use<'a> {
        self.outcomes.iter().map(|code| match code {
            0 => Ok(()),
            code => Err(Refusal::from_code_or_shed(code)),
        })
    }
}

/// Outcomes being collected for a [`Committed`]; keeps its memory between replies.
#[derive(Clone, Debug, Default)]
pub struct CommittedRows {
    outcomes: ColumnBuf<u8>,
}

impl CommittedRows {
    /// Appends one outcome.
    pub fn push(&mut self, outcome: Result<(), Refusal>) {
        self.outcomes.push(outcome.map_or_else(Refusal::code, |()| 0));
    }

    /// Removes all outcomes, keeps the memory.
    pub fn clear(&mut self) {
        self.outcomes.clear();
    }

    /// The reply with these outcomes.
    #[must_use]
    pub fn reply(&self, id: u64) -> Committed<'_> {
        Committed { id, outcomes: self.outcomes.as_column() }
    }
}
