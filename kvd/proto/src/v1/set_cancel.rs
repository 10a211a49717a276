//! `set_cancel` and its answer, which is the same for any token.

use super::Rejected;
use super::schema::Schema;
use crate::ids::TicketId;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Gives a reserve back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetCancel {
    /// Token of the reserve.
    pub lease_token: TicketId,
}

impl SetCancel {
    /// Name on the wire.
    pub const OP: &'static str = "set_cancel";
    const SCHEMA: Schema = Schema { op: Self::OP, required: &["lease_token"], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        Ok(Self { lease_token: fields.required(Self::OP, "lease_token")? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 1).field("lease_token", self.lease_token).finish();
    }
}

/// Answer to [`SetCancel`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetCancelResponse;

impl SetCancelResponse {
    /// Name on the wire.
    pub const OP: &'static str = "set_cancel_response";
    const SCHEMA: Schema = Schema { op: Self::OP, required: &[], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self)
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 0).finish();
    }
}
