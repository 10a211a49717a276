//! `set_commit` and its answer: what a client wrote into the arena becomes a row.

use super::Rejected;
use super::schema::{Schema, namespace, put_namespace};
use crate::block_key::Namespace;
use crate::ids::TicketId;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};
use crate::refusal::Refusal;
use crate::retention::Retention;

/// Completes a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetCommit<'a> {
    /// Token of the reserve.
    pub lease_token: TicketId,
    /// The key.
    pub key: &'a [u8],
    /// Bytes written; less than 0 or more than asked for is refused.
    pub length: i64,
    /// Where the key belongs.
    pub namespace: Namespace<'a>,
    /// As sent; see [`SetCommit::class`].
    pub retention: &'a str,
    /// See [`super::ttl::Ttl::from_commit_seconds`].
    pub ttl_seconds: i64,
}

impl<'a> SetCommit<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "set_commit";
    const SCHEMA: Schema = Schema {
        op: Self::OP,
        required: &["lease_token", "key", "length"],
        optional: &["model", "compat_key", "retention", "ttl_seconds"],
    };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        Ok(Self {
            lease_token: fields.required(Self::OP, "lease_token")?,
            key: fields.required(Self::OP, "key")?,
            length: fields.required(Self::OP, "length")?,
            namespace: namespace(fields)?,
            retention: fields.optional("retention")?.unwrap_or("default"),
            ttl_seconds: fields.optional("ttl_seconds")?.unwrap_or(0),
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let writer = FrameWriter::begin(out, Self::OP, 7)
            .field("lease_token", self.lease_token)
            .field("key", self.key)
            .field("length", self.length);
        put_namespace(writer, self.namespace)
            .field("retention", self.retention)
            .field("ttl_seconds", self.ttl_seconds)
            .finish();
    }

    /// Class of the row: "" and "default" stand for `short`. None is answered with
    /// [`SetCommitResponse::BAD_RETENTION`].
    #[must_use]
    pub fn class(&self) -> Option<Retention> {
        match self.retention {
            "" | "default" => Some(Retention::Short),
            word => Retention::parse(word),
        }
    }
}

/// Answer to [`SetCommit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetCommitResponse<'a> {
    /// Whether there is a row now.
    pub accepted: bool,
    /// Why not; "" when accepted.
    pub reason: &'a str,
}

impl<'a> SetCommitResponse<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "set_commit_response";
    /// The word for the class is unknown.
    pub const BAD_RETENTION: SetCommitResponse<'static> =
        SetCommitResponse { accepted: false, reason: "bad_retention" };
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

impl From<Result<(), Refusal>> for SetCommitResponse<'static> {
    fn from(outcome: Result<(), Refusal>) -> Self {
        match outcome {
            Ok(()) => Self { accepted: true, reason: "" },
            Err(refusal) => Self { accepted: false, reason: refusal.v1_commit_token() },
        }
    }
}
