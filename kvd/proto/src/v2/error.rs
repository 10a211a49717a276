//! `error`: a request that cannot be served, with a stable code.

use super::Rejected;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Longest message, in bytes; longer ones are cut.
pub const MESSAGE_BYTES_MAX: usize = 200;

/// Codes of the protocol. Codes are added, never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorCode {
    /// The bytes are no message. The daemon closes after it.
    BadFrame,
    /// The announced body is above the limit. The daemon closes after it.
    FrameTooLarge,
    /// No such operation in this release.
    UnknownOp,
    /// A field is missing, of the wrong kind, or beyond its limit.
    BadField,
    /// Tickets or leases of another incarnation of the daemon.
    StaleEpoch,
    /// The operation needs the arena, and this session has none.
    NoArena,
    /// The daemon is at a limit; the same request may succeed later.
    Busy,
    /// A mistake of the daemon.
    InternalError,
}

impl ErrorCode {
    /// Every code.
    pub const ALL: [Self; 8] = [
        Self::BadFrame,
        Self::FrameTooLarge,
        Self::UnknownOp,
        Self::BadField,
        Self::StaleEpoch,
        Self::NoArena,
        Self::Busy,
        Self::InternalError,
    ];

    /// The word on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::BadFrame => "bad_frame",
            Self::FrameTooLarge => "frame_too_large",
            Self::UnknownOp => "unknown_op",
            Self::BadField => "bad_field",
            Self::StaleEpoch => "stale_epoch",
            Self::NoArena => "no_arena",
            Self::Busy => "busy",
            Self::InternalError => "internal_error",
        }
    }

    /// The code that `word` names.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|code| code.as_str() == word)
    }
}

/// Answer to a request that cannot be served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorReply<'a> {
    /// Id of the request, where it could be read.
    pub id: Option<u64>,
    /// What kind of trouble; [`ErrorCode::parse`] names those that this release knows.
    pub code: &'a str,
    /// For people.
    pub message: &'a str,
}

impl<'a> ErrorReply<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "error";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            id: fields.required(Self::OP, "id")?,
            code: fields.required(Self::OP, "code")?,
            message: fields.required(Self::OP, "message")?,
        })
    }

    /// Appends the message as a frame; the text is cut at [`MESSAGE_BYTES_MAX`].
    pub fn encode(&self, out: &mut Vec<u8>) {
        let end = self.message.floor_char_boundary(MESSAGE_BYTES_MAX);
        FrameWriter::begin(out, Self::OP, 3)
            .field("id", self.id)
            .field("code", self.code)
            .field("message", self.message.get(..end).unwrap_or_default())
            .finish();
    }
}

impl Rejected {
    /// Appends the error frame that tells the client.
    pub fn encode(&self, out: &mut Vec<u8>) {
        ErrorReply { id: self.id, code: self.reason.code(), message: &self.reason.to_string() }
            .encode(out);
    }
}
