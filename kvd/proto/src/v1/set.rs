//! `set` and `set_ack`, whole or as a stream.
//!
//! Clients send `op`, `key` and `value` first. [`Head::parse`] recognises that from the first
//! bytes of the body, so that the daemon can pick an extent and receive the value straight into
//! it; [`Tail::decode`] reads what follows the value. Any other order is buffered and decoded as
//! a whole, with the same outcome.

use super::Rejected;
use super::schema::{Schema, namespace, put_namespace};
use crate::block_key::Namespace;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter, Metadata, Reader};
use crate::refusal::Refusal;
use crate::retention::Retention;

/// Stores one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Set<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Class; `short` unless given.
    pub retention: Retention,
    /// Where the key belongs.
    pub namespace: Namespace<'a>,
    /// Accepted and never returned.
    pub metadata: Metadata<'a>,
    /// See [`super::ttl::Ttl::from_seconds`].
    pub ttl_seconds: Option<f64>,
}

impl<'a> Set<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "set";
    const SCHEMA: Schema =
        Schema { op: Self::OP, required: &["key", "value"], optional: Tail::FIELDS };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        let tail = Tail::from_fields(fields)?;
        Ok(Self {
            key: fields.required(Self::OP, "key")?,
            value: fields.required(Self::OP, "value")?,
            retention: tail.retention,
            namespace: tail.namespace,
            metadata: tail.metadata,
            ttl_seconds: tail.ttl_seconds,
        })
    }

    /// Appends the message as a frame.
    ///
    /// # Panics
    /// If the body reaches 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let writer = FrameWriter::begin(out, Self::OP, 7)
            .field("key", self.key)
            .field("value", self.value)
            .field("retention", self.retention);
        put_namespace(writer, self.namespace)
            .field("metadata", self.metadata)
            .field("ttl_seconds", self.ttl_seconds)
            .finish();
    }
}

/// Longest key of a streamed set, in bytes: bounds how much is kept back before the decision.
pub const STREAMED_KEY_BYTES_MAX: u32 = 4096;

/// The first fields of a streamed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Bytes of the value.
    pub value_len: u32,
    /// Where the value begins in the body.
    pub value_at: usize,
    /// Fields that follow the value.
    pub fields_left: u32,
}

/// What the first bytes of a body tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadState<'a> {
    /// Not enough of them yet.
    NeedMore,
    /// Another operation, another order, or wrong: decode the body as a whole.
    NotStreamable,
    /// The value comes next.
    Head(Head<'a>),
}

impl<'a> Head<'a> {
    /// Looks at `partial`, the first bytes of a body of `body_bytes` bytes.
    #[must_use]
    pub fn parse(partial: &'a [u8], body_bytes: u32) -> HeadState<'a> {
        match Self::read(partial) {
            Ok(Some(head)) => {
                let value_end = (head.value_at as u64).saturating_add(head.value_len.into());
                if value_end > u64::from(body_bytes) {
                    return HeadState::NotStreamable;
                }
                HeadState::Head(head)
            }
            Err(Malformed::Truncated { .. }) if (partial.len() as u64) < body_bytes.into() => {
                HeadState::NeedMore
            }
            Ok(None) | Err(_) => HeadState::NotStreamable,
        }
    }

    fn read(partial: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut reader = Reader::new(partial);
        let Some(fields_left) = reader.map_head()?.checked_sub(3) else {
            return Ok(None);
        };
        if reader.name()? != "op" || reader.name()? != Set::OP || reader.name()? != "key" {
            return Ok(None);
        }
        let Some(key_len) = reader.bin_head()? else {
            return Ok(None);
        };
        if key_len > STREAMED_KEY_BYTES_MAX {
            return Ok(None);
        }
        let key = reader.take(key_len as usize)?;
        if reader.name()? != "value" {
            return Ok(None);
        }
        let Some(value_len) = reader.bin_head()? else {
            return Ok(None);
        };
        let value_at = partial.len().saturating_sub(reader.rest().len());
        Ok(Some(Self { key, value_len, value_at, fields_left }))
    }
}

/// The fields of a streamed set that follow its value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tail<'a> {
    /// Class; `short` unless given.
    pub retention: Retention,
    /// Where the key belongs.
    pub namespace: Namespace<'a>,
    /// Accepted and never returned.
    pub metadata: Metadata<'a>,
    /// See [`super::ttl::Ttl::from_seconds`].
    pub ttl_seconds: Option<f64>,
    /// A second `key`, which counts instead of the first.
    pub key_again: Option<&'a [u8]>,
    /// A second `value`, which counts instead of the first.
    pub value_again: Option<&'a [u8]>,
}

impl<'a> Tail<'a> {
    const FIELDS: &'static [&'static str] =
        &["retention", "model", "compat_key", "metadata", "ttl_seconds"];
    const SCHEMA: Schema = Schema {
        op: Set::OP,
        required: &[],
        optional: &["retention", "model", "compat_key", "metadata", "ttl_seconds", "key", "value"],
    };

    /// Reads the bytes between the value's end and the body's end.
    ///
    /// # Errors
    /// What becomes of the whole set otherwise.
    pub fn decode(bytes: &'a [u8], fields_left: u32) -> Result<Self, Rejected> {
        let fields = &Fields::parse_entries(Reader::new(bytes), fields_left)?;
        if fields.has_op() {
            let op = fields.op()?;
            if op != Set::OP {
                return Err(Rejected::other_op(op));
            }
        }
        Self::SCHEMA.check(fields)?;
        Self::from_fields(fields)
    }

    fn from_fields(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Ok(Self {
            retention: fields.optional("retention")?.unwrap_or(Retention::Short),
            namespace: namespace(fields)?,
            metadata: fields.optional("metadata")?.unwrap_or(Metadata::EMPTY),
            ttl_seconds: fields.optional::<Option<_>>("ttl_seconds")?.flatten(),
            key_again: fields.optional("key")?,
            value_again: fields.optional("value")?,
        })
    }
}

/// Answer to [`Set`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetAck<'a> {
    /// Whether the value was taken.
    pub accepted: bool,
    /// Why not.
    pub reason: Option<&'a str>,
}

impl<'a> SetAck<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "set_ack";
    const SCHEMA: Schema =
        Schema { op: Self::OP, required: &["accepted", "reason"], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self {
            accepted: fields.required(Self::OP, "accepted")?,
            reason: fields.required(Self::OP, "reason")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 2)
            .field("accepted", self.accepted)
            .field("reason", self.reason)
            .finish();
    }
}

impl From<Result<(), Refusal>> for SetAck<'static> {
    fn from(outcome: Result<(), Refusal>) -> Self {
        let reason = outcome.err().map(Refusal::v1_set_token);
        Self { accepted: reason.is_none(), reason }
    }
}
