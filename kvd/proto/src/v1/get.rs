//! `get` with its two answers: the value inline, or its place in the arena.

use super::Rejected;
use super::schema::{Schema, namespace, put_namespace};
use crate::block_key::Namespace;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter, Later, Wire, put_bin_head, put_str, str_bytes};
use crate::retention::Retention;

/// Asks for one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Get<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Where it belongs.
    pub namespace: Namespace<'a>,
}

impl<'a> Get<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "get";
    const SCHEMA: Schema =
        Schema { op: Self::OP, required: &["key"], optional: &["model", "compat_key"] };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        Ok(Self { key: fields.required(Self::OP, "key")?, namespace: namespace(fields)? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_namespace(FrameWriter::begin(out, Self::OP, 3).field("key", self.key), self.namespace)
            .finish();
    }
}

/// Answer to [`Get`] with the value inline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetResponse<'a> {
    /// The value; none is a miss, an empty one a hit of length 0.
    pub value: Option<&'a [u8]>,
    /// Class of the row.
    pub retention: Option<Retention>,
}

impl<'a> GetResponse<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "get_response";
    /// A miss, on whatever connection.
    pub const MISS: Self = Self { value: None, retention: None };
    const SCHEMA: Schema =
        Schema { op: Self::OP, required: &["value", "retention"], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self {
            value: fields.required(Self::OP, "value")?,
            retention: fields.required(Self::OP, "retention")?,
        })
    }

    /// Appends the message as a frame.
    ///
    /// # Panics
    /// If the body reaches 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 2)
            .field("value", self.value)
            .field("retention", self.retention)
            .finish();
    }
}

/// An inline hit whose value is sent from where it lies: head, then the value, then tail make
/// one `get_response` frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineHit {
    /// Bytes of the value.
    pub len_bytes: u32,
    /// Class of the row.
    pub retention: Retention,
}

impl InlineHit {
    /// Appends everything before the value.
    ///
    /// # Errors
    /// [`Malformed::FrameTooLarge`] if the body would be above `limit_bytes`; nothing is appended
    /// then.
    pub fn encode_head(&self, out: &mut Vec<u8>, limit_bytes: u32) -> Result<(), Malformed> {
        let tail = str_bytes("retention").saturating_add(str_bytes(self.retention.as_str()));
        let later = Later { fields: 1, bytes: tail.saturating_add(self.len_bytes.into()) };
        FrameWriter::begin(out, GetResponse::OP, 2)
            .field_with("value", |out| put_bin_head(out, self.len_bytes))
            .finish_before(later, limit_bytes)
    }

    /// Appends everything after the value.
    pub fn encode_tail(&self, out: &mut Vec<u8>) {
        put_str(out, "retention");
        self.retention.put(out);
    }
}

/// Answer to [`Get`] on a connection that maps the arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GetSharedResponse {
    /// Where the value begins in the arena, in bytes.
    pub slot_offset: u64,
    /// Bytes of the value.
    pub length: u64,
    /// Version that the extent's header shows while the value is there.
    pub version: u32,
    /// Class of the row.
    pub retention: Option<Retention>,
    /// Slot size of the reference; clients ignore it.
    pub slot_size: u64,
}

impl GetSharedResponse {
    /// Name on the wire.
    pub const OP: &'static str = "get_shared_response";
    const SCHEMA: Schema = Schema {
        op: Self::OP,
        required: &["slot_offset", "length", "version", "retention", "slot_size"],
        optional: &[],
    };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self {
            slot_offset: fields.required(Self::OP, "slot_offset")?,
            length: fields.required(Self::OP, "length")?,
            version: fields.required(Self::OP, "version")?,
            retention: fields.required(Self::OP, "retention")?,
            slot_size: fields.required(Self::OP, "slot_size")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 5)
            .field("slot_offset", self.slot_offset)
            .field("length", self.length)
            .field("version", self.version)
            .field("retention", self.retention)
            .field("slot_size", self.slot_size)
            .finish();
    }
}
