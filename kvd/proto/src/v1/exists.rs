//! `exists` and its answer. Schedulers plan on a true.

use super::Rejected;
use super::schema::{Schema, namespace, put_namespace};
use crate::block_key::Namespace;
use crate::malformed::Malformed;
use crate::pack::{Array, Fields, FrameWriter};

/// Asks whether keys are there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exists<'a> {
    /// The keys, in order, duplicates allowed.
    pub keys: Array<'a, &'a [u8]>,
    /// Where they belong.
    pub namespace: Namespace<'a>,
}

impl<'a> Exists<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "exists";
    const SCHEMA: Schema =
        Schema { op: Self::OP, required: &["keys"], optional: &["model", "compat_key"] };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        Ok(Self { keys: fields.required(Self::OP, "keys")?, namespace: namespace(fields)? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_namespace(
            FrameWriter::begin(out, Self::OP, 3).field("keys", self.keys),
            self.namespace,
        )
        .finish();
    }
}

/// Answer to [`Exists`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExistsResponse<'a> {
    /// Per key, whether a get would hit.
    pub present: Array<'a, bool>,
}

impl<'a> ExistsResponse<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "exists_response";
    const SCHEMA: Schema = Schema { op: Self::OP, required: &["present"], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self { present: fields.required(Self::OP, "present")? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 1).field("present", self.present).finish();
    }
}
