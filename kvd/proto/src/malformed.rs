//! What can be wrong with bytes that a peer sent.

/// A frame or message that cannot be used, with the numbers that show why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The prefix announces a body of 0 bytes.
    #[error("frame of 0 bytes")]
    Empty,
    /// The prefix announces more than the receiver takes.
    #[error("frame of {len_bytes} bytes, the limit is {limit_bytes}")]
    FrameTooLarge {
        /// Announced length of the body.
        len_bytes: u64,
        /// Largest body accepted.
        limit_bytes: u64,
    },
    /// A value ends behind the end of the body.
    #[error("value of {needed} bytes where {left} bytes are left")]
    Truncated {
        /// Bytes, or elements of at least one byte, that the value asks for.
        needed: u64,
        /// Bytes left in the body.
        left: u64,
    },
    /// Bytes follow the message.
    #[error("{left} bytes after the message")]
    Trailing {
        /// Number of bytes too many.
        left: u64,
    },
    /// The one marker byte that msgpack reserves.
    #[error("reserved marker 0xc1")]
    ReservedMarker,
    /// Containers inside containers beyond the limit.
    #[error("nested deeper than {limit} levels")]
    TooDeep {
        /// Deepest nesting accepted.
        limit: u64,
    },
    /// The body is some other value than a map.
    #[error("body is not a map")]
    NotAMap,
    /// A map key, on whatever level, is not text.
    #[error("map key is not text")]
    KeyNotText,
    /// A str that is not UTF-8.
    #[error("text is not UTF-8")]
    BadText,
    /// No text under `op`.
    #[error("no operation named")]
    NoOp,
    /// No such operation.
    #[error("unknown operation {op:?}")]
    UnknownOp {
        /// Its name, shortened.
        op: Box<str>,
    },
    /// A field that must be there is not.
    #[error("{op}: field {field} is missing")]
    MissingField {
        /// The operation.
        op: &'static str,
        /// Name of the field.
        field: &'static str,
    },
    /// A field that the operation does not have (protocol 1 only).
    #[error("{op}: unknown field {field:?}")]
    UnknownField {
        /// The operation.
        op: &'static str,
        /// Name of the field, shortened.
        field: Box<str>,
    },
    /// More distinct fields than any operation has.
    #[error("more than {limit} fields")]
    TooManyFields {
        /// Largest number accepted.
        limit: u64,
    },
    /// A field has a type, a width or a word that it cannot have.
    #[error("field {field} has a value of the wrong kind")]
    WrongType {
        /// Name of the field.
        field: &'static str,
    },
    /// A field holds more items than allowed.
    #[error("field {field} has {count} items, the limit is {limit}")]
    TooMany {
        /// Name of the field.
        field: &'static str,
        /// Items found.
        count: u64,
        /// Largest number accepted.
        limit: u64,
    },
    /// A field, or an item of it, is longer than allowed.
    #[error("field {field} has {len_bytes} bytes, the limit is {limit_bytes}")]
    TooLong {
        /// Name of the field.
        field: &'static str,
        /// Length found.
        len_bytes: u64,
        /// Largest length accepted.
        limit_bytes: u64,
    },
    /// Two fields that must agree in length do not.
    #[error("field {field} has length {found}, expected {expected}")]
    LengthMismatch {
        /// Name of the field.
        field: &'static str,
        /// Length that the other fields imply.
        expected: u64,
        /// Length found.
        found: u64,
    },
    /// Fields that contradict each other, or a code that does not exist.
    #[error("field {field} does not make sense here")]
    BadValue {
        /// Name of the field.
        field: &'static str,
    },
}

impl Malformed {
    /// The stable code of the protocol-2 `error` frame.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Empty
            | Self::Truncated { .. }
            | Self::Trailing { .. }
            | Self::ReservedMarker
            | Self::TooDeep { .. }
            | Self::NotAMap
            | Self::KeyNotText
            | Self::BadText
            | Self::NoOp => "bad_frame",
            Self::FrameTooLarge { .. } => "frame_too_large",
            Self::UnknownOp { .. } => "unknown_op",
            Self::MissingField { .. }
            | Self::UnknownField { .. }
            | Self::TooManyFields { .. }
            | Self::WrongType { .. }
            | Self::TooMany { .. }
            | Self::TooLong { .. }
            | Self::LengthMismatch { .. }
            | Self::BadValue { .. } => "bad_field",
        }
    }

    /// Whether a protocol-2 session ends with it: the byte stream can no longer be trusted.
    #[must_use]
    pub fn ends_session(&self) -> bool {
        matches!(self.code(), "bad_frame" | "frame_too_large")
    }

    pub(crate) fn unknown_op(op: &str) -> Self {
        Self::UnknownOp { op: shortened(op).into() }
    }

    pub(crate) fn unknown_field(op: &'static str, field: &str) -> Self {
        Self::UnknownField { op, field: shortened(field).into() }
    }
}

/// Names that a peer invented are quoted up to this length, in bytes.
const QUOTED_BYTES_MAX: usize = 48;

fn shortened(text: &str) -> &str {
    let end = text.floor_char_boundary(QUOTED_BYTES_MAX);
    text.get(..end).unwrap_or_default()
}
