//! `prefetch`: keys that will be asked for soon. One-way; only for daemons that announce it.

use super::batch::{keys, namespace, put_keys, put_namespace};
use crate::block_key::Namespace;
use crate::column::KeyColumn;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Asks for keys to be brought into host memory, in their order. A hint: there is no answer, and the daemon
/// may drop it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefetch<'a> {
    /// Where the keys belong.
    pub namespace: Namespace<'a>,
    /// The keys, soonest first.
    pub keys: KeyColumn<'a>,
    /// For how long from now the copies in host memory are of use, in milliseconds. What has not been started by then
    /// is dropped.
    pub deadline_ms: u32,
}

impl<'a> Prefetch<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "prefetch";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            namespace: namespace(fields, Self::OP)?,
            keys: keys(fields, Self::OP)?,
            deadline_ms: fields.required(Self::OP, "deadline_ms")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let writer = put_namespace(FrameWriter::begin(out, Self::OP, 5), &self.namespace);
        put_keys(writer, self.keys).field("deadline_ms", self.deadline_ms).finish();
    }
}
