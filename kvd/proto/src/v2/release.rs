//! `release`: leases end. One-way; unknown leases are ignored and counted.

use super::batch::first_column;
use crate::column::U64Column;
use crate::ids::Epoch;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Ends leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release<'a> {
    /// Incarnation of the daemon that granted them.
    pub epoch: Epoch,
    /// The leases, packed [`LeaseId`](crate::ids::LeaseId)s.
    pub leases: U64Column<'a>,
}

impl<'a> Release<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "release";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            epoch: Epoch(fields.required(Self::OP, "epoch")?),
            leases: first_column(fields, Self::OP, "leases")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 2)
            .field("epoch", self.epoch.0)
            .field("leases", self.leases.as_bytes())
            .finish();
    }
}
