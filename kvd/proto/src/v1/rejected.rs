//! What becomes of a protocol-1 request that is not as it should be.

use super::REPLY_OPS;
use super::error::{ErrorCode, ErrorResponse};
use crate::malformed::Malformed;

/// A request that is not served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The connection ends without a word. A reference client takes a close for a dead daemon
    /// and never returns, so nothing else may lead here.
    #[error("closing: {0}")]
    Close(#[source] Malformed),
    /// A field has the wrong kind: `internal_error`, nothing was done, the connection lives.
    #[error("{0}")]
    Internal(#[source] Malformed),
    /// The same in a message that is never answered: nothing is done, nothing is sent.
    #[error("{0}")]
    Ignored(#[source] Malformed),
    /// A reply came from a client: `bad_op`, the connection lives.
    #[error("{op} is a reply")]
    BadOp {
        /// The operation.
        op: &'static str,
    },
    /// The arrays of a `batch_set` differ in length: `batch_set_arity_mismatch`, nothing was
    /// stored, the connection lives.
    #[error("{keys} keys, but {field} has {found} items")]
    Arity {
        /// Number of keys.
        keys: u64,
        /// The first array of another length.
        field: &'static str,
        /// Its length.
        found: u64,
    },
}

impl Rejected {
    /// The code of the error frame; none if none is sent.
    #[must_use]
    pub const fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Close(_) | Self::Ignored(_) => None,
            Self::Internal(_) => Some(ErrorCode::InternalError),
            Self::BadOp { .. } => Some(ErrorCode::BadOp),
            Self::Arity { .. } => Some(ErrorCode::BatchSetArityMismatch),
        }
    }

    /// Whether the connection ends.
    #[must_use]
    pub const fn closes(&self) -> bool {
        matches!(self, Self::Close(_))
    }

    /// Appends the error frame that tells the client, if one is sent.
    pub fn encode(&self, out: &mut Vec<u8>) {
        if let Some(code) = self.code() {
            ErrorResponse { code: code.as_str(), message: &self.to_string() }.encode(out);
        }
    }

    /// An operation that is no request.
    pub(super) fn other_op(op: &str) -> Self {
        REPLY_OPS
            .into_iter()
            .find(|reply| *reply == op)
            .map_or_else(|| Self::Close(Malformed::unknown_op(op)), |op| Self::BadOp { op })
    }
}

/// A field of the wrong kind leaves the connection alive; everything else ends it.
impl From<Malformed> for Rejected {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::WrongType { .. } => Self::Internal(malformed),
            Malformed::Empty
            | Malformed::FrameTooLarge { .. }
            | Malformed::Truncated { .. }
            | Malformed::Trailing { .. }
            | Malformed::ReservedMarker
            | Malformed::TooDeep { .. }
            | Malformed::NotAMap
            | Malformed::KeyNotText
            | Malformed::BadText
            | Malformed::NoOp
            | Malformed::UnknownOp { .. }
            | Malformed::MissingField { .. }
            | Malformed::UnknownField { .. }
            | Malformed::TooManyFields { .. }
            | Malformed::TooMany { .. }
            | Malformed::TooLong { .. }
            | Malformed::LengthMismatch { .. }
            | Malformed::BadValue { .. } => Self::Close(malformed),
        }
    }
}
