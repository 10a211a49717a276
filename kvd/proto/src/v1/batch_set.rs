//! `batch_set` and `batch_set_ack`. A batch with one bad item stores nothing at all.

use super::Rejected;
use super::schema::{Schema, namespace, put_namespace};
use crate::block_key::Namespace;
use crate::column::check_same;
use crate::malformed::Malformed;
use crate::pack::{Array, Fields, FrameWriter, Metadata, Value};
use crate::retention::Retention;

/// Stores several values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchSet<'a> {
    /// The keys, in order, duplicates allowed.
    pub keys: Array<'a, &'a [u8]>,
    /// A value per key.
    pub values: Array<'a, &'a [u8]>,
    /// A class per key.
    pub retentions: Array<'a, Retention>,
    /// Accepted and never returned.
    pub metadatas: Array<'a, Metadata<'a>>,
    /// Where the keys belong.
    pub namespace: Namespace<'a>,
    /// See [`super::ttl::Ttl::from_seconds`]; per key, or none for all.
    pub ttls_seconds: Option<Array<'a, Option<f64>>>,
}

/// One value of a [`BatchSet`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchSetItem<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Its class.
    pub retention: Retention,
    /// See [`super::ttl::Ttl::from_seconds`].
    pub ttl_seconds: Option<f64>,
}

impl<'a> BatchSet<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "batch_set";
    const SCHEMA: Schema = Schema {
        op: Self::OP,
        required: &["keys", "values", "retentions", "metadatas"],
        optional: &["model", "compat_key", "ttls_seconds"],
    };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise. Lengths are compared before items are looked at.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        let keys = count(fields, "keys")?.unwrap_or(0);
        for field in ["values", "retentions", "metadatas", "ttls_seconds"] {
            if let Some(found) = count(fields, field)?
                && found != keys
            {
                return Err(Rejected::Arity { keys, field, found });
            }
        }
        Ok(Self {
            keys: fields.required(Self::OP, "keys")?,
            values: fields.required(Self::OP, "values")?,
            retentions: fields.required(Self::OP, "retentions")?,
            metadatas: fields.required(Self::OP, "metadatas")?,
            namespace: namespace(fields)?,
            ttls_seconds: fields.optional::<Option<_>>("ttls_seconds")?.flatten(),
        })
    }

    /// Appends the message as a frame.
    ///
    /// # Panics
    /// If the body reaches 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let writer = FrameWriter::begin(out, Self::OP, 7)
            .field("keys", self.keys)
            .field("values", self.values)
            .field("retentions", self.retentions)
            .field("metadatas", self.metadatas);
        put_namespace(writer, self.namespace).field("ttls_seconds", self.ttls_seconds).finish();
    }

    /// The values in order.
    pub fn items(&self) -> impl Iterator<Item = BatchSetItem<'a>> + use<'a> {
        let absent = core::iter::repeat(None);
        let ttls = self.ttls_seconds.into_iter().flat_map(|ttls| ttls.iter()).chain(absent);
        let pairs = self.keys.iter().zip(self.values.iter());
        pairs.zip(self.retentions.iter().zip(ttls)).map(
            |((key, value), (retention, ttl_seconds))| BatchSetItem {
                key,
                value,
                retention,
                ttl_seconds,
            },
        )
    }
}

/// Number of items of an array; none if it is absent or nil.
fn count(fields: &Fields<'_>, field: &'static str) -> Result<Option<u64>, Malformed> {
    match fields.get(field) {
        Some(Value::Array(items)) => Ok(Some(items.count().into())),
        None => Ok(None),
        Some(Value::Nil) if field == "ttls_seconds" => Ok(None),
        Some(_) => Err(Malformed::WrongType { field }),
    }
}

/// Answer to [`BatchSet`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchSetAck<'a> {
    /// Whether each value was taken.
    pub accepted: Array<'a, bool>,
    /// Why not, per value.
    pub reasons: Array<'a, Option<&'a str>>,
}

impl<'a> BatchSetAck<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "batch_set_ack";
    const SCHEMA: Schema =
        Schema { op: Self::OP, required: &["accepted", "reasons"], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        let reply = Self {
            accepted: fields.required(Self::OP, "accepted")?,
            reasons: fields.required(Self::OP, "reasons")?,
        };
        check_same("reasons", reply.reasons.len(), reply.accepted.len())?;
        Ok(reply)
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 2)
            .field("accepted", self.accepted)
            .field("reasons", self.reasons)
            .finish();
    }
}
