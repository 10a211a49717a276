//! `clear` and its answer.

use super::Rejected;
use super::schema::{Schema, namespace, put_namespace};
use crate::block_key::Namespace;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Forgets rows: everything if both parts of the namespace are empty, else exactly the rows of
/// that namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clear<'a> {
    /// Which rows.
    pub namespace: Namespace<'a>,
}

impl<'a> Clear<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "clear";
    const SCHEMA: Schema =
        Schema { op: Self::OP, required: &[], optional: &["model", "compat_key"] };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        Ok(Self { namespace: namespace(fields)? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_namespace(FrameWriter::begin(out, Self::OP, 2), self.namespace).finish();
    }
}

/// Answer to [`Clear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClearAck {
    /// Rows forgotten in host memory.
    pub cleared_entries: u64,
}

impl ClearAck {
    /// Name on the wire.
    pub const OP: &'static str = "clear_ack";
    const SCHEMA: Schema = Schema { op: Self::OP, required: &["cleared_entries"], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self { cleared_entries: fields.required(Self::OP, "cleared_entries")? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 1)
            .field("cleared_entries", self.cleared_entries)
            .finish();
    }
}
