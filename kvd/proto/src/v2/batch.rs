//! The fields that batch operations share: namespace and keys.

use crate::block_key::{NAMESPACE_PART_BYTES_MAX, Namespace};
use crate::column::{Column, KeyColumn, Word, check_count};
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Reads `model` and `compat_key`.
pub(super) fn namespace<'a>(
    fields: &Fields<'a>,
    op: &'static str,
) -> Result<Namespace<'a>, Malformed> {
    Ok(Namespace {
        model: namespace_part("model", fields.required(op, "model")?)?,
        compat_key: namespace_part("compat_key", fields.required(op, "compat_key")?)?,
    })
}

/// Checks the length of one part of a namespace.
pub(super) fn namespace_part<'a>(field: &'static str, part: &'a str) -> Result<&'a str, Malformed> {
    text_up_to(field, part, NAMESPACE_PART_BYTES_MAX)
}

/// Checks the length of a text.
pub(super) fn text_up_to<'a>(
    field: &'static str,
    text: &'a str,
    limit: usize,
) -> Result<&'a str, Malformed> {
    if text.len() > limit {
        let (len_bytes, limit_bytes) = (text.len() as u64, limit as u64);
        return Err(Malformed::TooLong { field, len_bytes, limit_bytes });
    }
    Ok(text)
}

/// Reads `key_lens` and `keys`.
pub(super) fn keys<'a>(fields: &Fields<'a>, op: &'static str) -> Result<KeyColumn<'a>, Malformed> {
    KeyColumn::new(fields.column(op, "key_lens")?, fields.required(op, "keys")?)
}

/// Reads the first column of a batch, whose length is the batch's.
pub(super) fn first_column<'a, T: Word>(
    fields: &Fields<'a>,
    op: &'static str,
    field: &'static str,
) -> Result<Column<'a, T>, Malformed> {
    let column = fields.column(op, field)?;
    check_count(field, column.len())?;
    Ok(column)
}

/// Appends what [`namespace`] reads.
pub(super) fn put_namespace<'b>(
    writer: FrameWriter<'b>,
    namespace: &Namespace<'_>,
) -> FrameWriter<'b> {
    writer.field("model", namespace.model).field("compat_key", namespace.compat_key)
}

/// Appends what [`keys`] reads.
pub(super) fn put_keys<'b>(writer: FrameWriter<'b>, keys: KeyColumn<'_>) -> FrameWriter<'b> {
    writer.field("key_lens", keys.lens().as_bytes()).field("keys", keys.bytes())
}
