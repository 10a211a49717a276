//! `error`: a request that was not served.

use super::schema::Schema;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Longest message, in bytes; longer ones are cut.
pub const MESSAGE_BYTES_MAX: usize = 200;

/// Codes of the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// A reply was sent by a client.
    BadOp,
    /// The arrays of a `batch_set` differ in length.
    BatchSetArityMismatch,
    /// Anything else, a field of the wrong kind included.
    InternalError,
}

impl ErrorCode {
    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadOp => "bad_op",
            Self::BatchSetArityMismatch => "batch_set_arity_mismatch",
            Self::InternalError => "internal_error",
        }
    }
}

/// Answer to a request that was not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorResponse<'a> {
    /// What kind of trouble.
    pub code: &'a str,
    /// For people.
    pub message: &'a str,
}

impl<'a> ErrorResponse<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "error";
    const SCHEMA: Schema = Schema { op: Self::OP, required: &["code", "message"], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self {
            code: fields.required(Self::OP, "code")?,
            message: fields.required(Self::OP, "message")?,
        })
    }

    /// Appends the message as a frame; the text is cut at [`MESSAGE_BYTES_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let end = self.message.floor_char_boundary(MESSAGE_BYTES_MAX);
        FrameWriter::begin(out, Self::OP, 2)
            .field("code", self.code)
            .field("message", self.message.get(..end).unwrap_or_default())
            .finish();
    }
}
