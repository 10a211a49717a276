//! `clear` and `cleared`: rows are forgotten in every tier.

use super::batch::namespace_part;
use crate::block_key::Namespace;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Forgets rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clear<'a> {
    /// Repeated in the reply.
    pub id: u64,
    /// Which rows.
    pub scope: ClearScope<'a>,
}

/// Which rows a clear takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClearScope<'a> {
    /// All of them.
    Everything,
    /// All of one model, under whatever compatibility key.
    Model(&'a str),
    /// Those of one namespace.
    Namespace(Namespace<'a>),
}

impl<'a> Clear<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "clear";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`; [`Malformed::BadValue`] if the fields
    /// contradict each other, so that a slip never clears more than was meant.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        let id = fields.required(Self::OP, "id")?;
        let model: Option<&str> = fields.required(Self::OP, "model")?;
        let compat_key: Option<&str> = fields.required(Self::OP, "compat_key")?;
        let everything: bool = fields.required(Self::OP, "everything")?;
        let scope = match (everything, model, compat_key) {
            (true, None, None) => ClearScope::Everything,
            (false, Some(model), None) => ClearScope::Model(namespace_part("model", model)?),
            (false, Some(model), Some(compat_key)) => ClearScope::Namespace(Namespace {
                model: namespace_part("model", model)?,
                compat_key: namespace_part("compat_key", compat_key)?,
            }),
            (true, _, _) => {
                return Err(Malformed::BadValue { field: "everything" });
            }
            (false, None, _) => return Err(Malformed::BadValue { field: "model" }),
        };
        Ok(Self { id, scope })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let (everything, model, compat_key) = match self.scope {
            ClearScope::Everything => (true, None, None),
            ClearScope::Model(model) => (false, Some(model), None),
            ClearScope::Namespace(Namespace { model, compat_key }) => {
                (false, Some(model), Some(compat_key))
            }
        };
        FrameWriter::begin(out, Self::OP, 4)
            .field("id", self.id)
            .field("model", model)
            .field("compat_key", compat_key)
            .field("everything", everything)
            .finish();
    }
}

/// Answer to [`Clear`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleared {
    /// Id of the request.
    pub id: u64,
    /// Rows forgotten.
    pub rows: u64,
}

impl Cleared {
    /// Name on the wire.
    pub const OP: &'static str = "cleared";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Malformed> {
        Ok(Self { id: fields.required(Self::OP, "id")?, rows: fields.required(Self::OP, "rows")? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 2).field("id", self.id).field("rows", self.rows).finish();
    }
}
