//! `set_reserve` and its answer: room in the arena for a client to write.

use super::Rejected;
use super::schema::Schema;
use crate::ids::TicketId;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};
use crate::refusal::Refusal;

/// Asks for room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetReserve {
    /// Bytes; 0 and less are refused.
    pub size: i64,
}

impl SetReserve {
    /// Name on the wire.
    pub const OP: &'static str = "set_reserve";
    const SCHEMA: Schema = Schema { op: Self::OP, required: &["size"], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        Ok(Self { size: fields.required(Self::OP, "size")? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 1).field("size", self.size).finish();
    }
}

/// Answer to [`SetReserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetReserveResponse<'a> {
    /// The right to write, above 0; 0 is a refusal.
    pub lease_token: TicketId,
    /// 0 or more when granted; -1 is a refusal.
    pub slot_id: i64,
    /// Where to write in the arena, in bytes.
    pub payload_offset: u64,
    /// How much may be written there.
    pub payload_max_size: u64,
    /// Why not; "" when granted.
    pub reason: &'a str,
}

impl<'a> SetReserveResponse<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "set_reserve_response";
    const SCHEMA: Schema = Schema {
        op: Self::OP,
        required: &["lease_token", "slot_id", "payload_offset", "payload_max_size", "reason"],
        optional: &[],
    };

    /// A refusal.
    #[must_use]
    pub const fn refused(refusal: Refusal) -> SetReserveResponse<'static> {
        SetReserveResponse {
            lease_token: TicketId(0),
            slot_id: -1,
            payload_offset: 0,
            payload_max_size: 0,
            reason: refusal.v1_reserve_token(),
        }
    }

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self {
            lease_token: fields.required(Self::OP, "lease_token")?,
            slot_id: fields.required(Self::OP, "slot_id")?,
            payload_offset: fields.required(Self::OP, "payload_offset")?,
            payload_max_size: fields.required(Self::OP, "payload_max_size")?,
            reason: fields.required(Self::OP, "reason")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 5)
            .field("lease_token", self.lease_token)
            .field("slot_id", self.slot_id)
            .field("payload_offset", self.payload_offset)
            .field("payload_max_size", self.payload_max_size)
            .field("reason", self.reason)
            .finish();
    }
}
