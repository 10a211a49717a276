//! Which fields a protocol-1 message has. Checked before any field is looked at: a missing or an
//! unknown field ends the connection, a field of the wrong kind does not.

use crate::block_key::Namespace;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Fields that must be there, and fields that may be.
pub(super) struct Schema {
    pub(super) op: &'static str,
    pub(super) required: &'static [&'static str],
    pub(super) optional: &'static [&'static str],
}

impl Schema {
    /// Whether all required fields are there and no unknown one is.
    pub(super) fn check(&self, fields: &Fields<'_>) -> Result<(), Malformed> {
        for name in fields.names() {
            if !self.required.contains(&name) && !self.optional.contains(&name) {
                return Err(Malformed::unknown_field(self.op, name));
            }
        }
        for field in self.required {
            if fields.get(field).is_none() {
                return Err(Malformed::MissingField { op: self.op, field });
            }
        }
        Ok(())
    }
}

/// Reads `model` and `compat_key`, both "" unless given.
pub(super) fn namespace<'a>(fields: &Fields<'a>) -> Result<Namespace<'a>, Malformed> {
    Ok(Namespace {
        model: fields.optional("model")?.unwrap_or_default(),
        compat_key: fields.optional("compat_key")?.unwrap_or_default(),
    })
}

/// Appends what [`namespace`] reads.
pub(super) fn put_namespace<'b>(
    writer: FrameWriter<'b>,
    namespace: Namespace<'_>,
) -> FrameWriter<'b> {
    writer.field("model", namespace.model).field("compat_key", namespace.compat_key)
}
