//! `prefetch_hint`: keys that will be asked for soon. Never answered.

use super::Rejected;
use super::schema::{Schema, namespace, put_namespace};
use crate::block_key::Namespace;
use crate::malformed::Malformed;
use crate::pack::{Array, Fields, FrameWriter};

/// Names keys worth loading into memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PrefetchHint<'a> {
    /// The keys.
    pub keys: Array<'a, &'a [u8]>,
    /// Where they belong.
    pub namespace: Namespace<'a>,
    /// How long the copy in memory is of use, in milliseconds.
    pub deadline_ms: i64,
}

impl<'a> PrefetchHint<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "prefetch_hint";
    const SCHEMA: Schema = Schema {
        op: Self::OP,
        required: &["keys"],
        optional: &["model", "compat_key", "deadline_ms"],
    };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        Self::from_fields(fields).map_err(Rejected::Ignored)
    }

    fn from_fields(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            keys: fields.required(Self::OP, "keys")?,
            namespace: namespace(fields)?,
            deadline_ms: fields.optional("deadline_ms")?.unwrap_or(1000),
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let writer = FrameWriter::begin(out, Self::OP, 4).field("keys", self.keys);
        put_namespace(writer, self.namespace).field("deadline_ms", self.deadline_ms).finish();
    }
}
