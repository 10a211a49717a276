//! One message: its operation and its fields, still in place in the frame.

use super::reader::Reader;
use super::value::{Value, Wire};
use crate::column::{Column, Word};
use crate::malformed::Malformed;

/// Most distinct fields of one message, without `op`. No operation has half as many; the rest is
/// room for fields that later releases add.
pub const FIELDS_MAX: usize = 24;

/// A decoded map. If a name comes twice, the later value counts, as in the reference.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    entries: [(&'a str, Value<'a>); FIELDS_MAX],
    len: usize,
    /// The first field for which there was no room.
    overflow: Option<&'a str>,
    op: Option<Value<'a>>,
}

impl<'a> Fields<'a> {
    /// Reads a body: one map, nothing behind it, text under `op`.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_frame`.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(body);
        let count = reader.map_head()?;
        let fields = Self::parse_entries(reader, count)?;
        fields.op()?;
        Ok(fields)
    }

    /// Reads the last `count` entries of a map, which must end with the bytes. `op` may be absent.
    ///
    /// # Errors
    /// As [`Fields::parse`].
    pub fn parse_entries(mut reader: Reader<'a>, count: u32) -> Result<Self, Malformed> {
        let entries = [("", Value::Nil); FIELDS_MAX];
        let mut fields = Self { entries, len: 0, overflow: None, op: None };
        for _ in 0..count {
            let name = reader.name()?;
            let value = reader.value()?;
            fields.insert(name, value);
        }
        if !reader.rest().is_empty() {
            return Err(Malformed::Trailing { left: reader.rest().len() as u64 });
        }
        Ok(fields)
    }

    /// Name of the operation.
    ///
    /// # Errors
    /// [`Malformed::NoOp`] if there is none or it is not text.
    pub fn op(&self) -> Result<&'a str, Malformed> {
        self.op.and_then(<&str>::from_value).ok_or(Malformed::NoOp)
    }

    /// Whether the map had an `op` entry of whatever kind.
    #[must_use]
    pub fn has_op(&self) -> bool {
        self.op.is_some()
    }

    /// The value of a field.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<Value<'a>> {
        self.present().iter().find_map(|(found, value)| (*found == name).then_some(*value))
    }

    /// Names of the fields, without `op`.
    pub fn names(&self) -> impl Iterator<Item = &'a str> {
        self.present().iter().map(|(name, _)| *name).chain(self.overflow)
    }

    /// A field that may be absent.
    ///
    /// # Errors
    /// [`Malformed::WrongType`] if it is there and of another kind.
    pub fn optional<T: Wire<'a>>(&self, field: &'static str) -> Result<Option<T>, Malformed> {
        self.get(field)
            .map(|value| T::from_value(value).ok_or(Malformed::WrongType { field }))
            .transpose()
    }

    /// A field that must be there.
    ///
    /// # Errors
    /// [`Malformed::MissingField`], [`Malformed::WrongType`].
    pub fn required<T: Wire<'a>>(
        &self,
        op: &'static str,
        field: &'static str,
    ) -> Result<T, Malformed> {
        self.optional(field)?.ok_or(Malformed::MissingField { op, field })
    }

    /// A packed column that must be there.
    ///
    /// # Errors
    /// As [`Fields::required`]; also [`Malformed::WrongType`] if the bytes are not a whole number
    /// of items.
    pub fn column<T: Word>(
        &self,
        op: &'static str,
        field: &'static str,
    ) -> Result<Column<'a, T>, Malformed> {
        Column::new(self.required(op, field)?).ok_or(Malformed::WrongType { field })
    }

    /// A packed column that may be absent or nil.
    ///
    /// # Errors
    /// [`Malformed::WrongType`] as for [`Fields::column`].
    pub fn optional_column<T: Word>(
        &self,
        field: &'static str,
    ) -> Result<Option<Column<'a, T>>, Malformed> {
        let Some(bytes) = self.optional::<Option<&[u8]>>(field)?.flatten() else {
            return Ok(None);
        };
        Column::new(bytes).map(Some).ok_or(Malformed::WrongType { field })
    }

    /// Refuses messages with more than [`FIELDS_MAX`] distinct fields.
    ///
    /// # Errors
    /// [`Malformed::TooManyFields`].
    pub const fn check_count(&self) -> Result<(), Malformed> {
        if self.overflow.is_some() {
            return Err(Malformed::TooManyFields { limit: FIELDS_MAX as u64 });
        }
        Ok(())
    }

    fn insert(&mut self, name: &'a str, value: Value<'a>) {
        if name == "op" {
            self.op = Some(value);
            return;
        }
        let known = self.entries.iter_mut().take(self.len).find(|(found, _)| *found == name);
        if let Some((_, slot)) = known {
            *slot = value;
        } else if let Some(slot) = self.entries.get_mut(self.len) {
            *slot = (name, value);
            self.len = self.len.saturating_add(1);
        } else if self.overflow.is_none() {
            self.overflow = Some(name);
        }
    }

    fn present(&self) -> &[(&'a str, Value<'a>)] {
        self.entries.get(..self.len).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_value_counts_and_op_may_stand_anywhere() {
        let body = b"\x84\xa1a\x01\xa2op\xa1x\xa1a\x02\xa2op\xa1y";
        let fields = Fields::parse(body).unwrap();
        assert_eq!(fields.op(), Ok("y"));
        assert_eq!(fields.get("a"), Some(Value::Unsigned(2)));
        assert_eq!(fields.names().collect::<Vec<_>>(), ["a"]);
    }

    #[test]
    fn what_is_no_message_is_named() {
        assert_eq!(Fields::parse(b"\x80").unwrap_err(), Malformed::NoOp);
        assert_eq!(Fields::parse(b"\x81\xa2op\x01").unwrap_err(), Malformed::NoOp);
        assert_eq!(Fields::parse(b"\x90").unwrap_err(), Malformed::NotAMap);
        assert_eq!(Fields::parse(b"\xc0").unwrap_err(), Malformed::NotAMap);
        assert_eq!(Fields::parse(b"\x81\x01\x01").unwrap_err(), Malformed::KeyNotText);
        let trailing = Fields::parse(b"\x81\xa2op\xa1x\xc0").unwrap_err();
        assert_eq!(trailing, Malformed::Trailing { left: 1 });
    }

    #[test]
    fn too_many_fields_are_walked_but_not_kept() {
        let mut body = vec![0xde, 0, 31, 0xa2, b'o', b'p', 0xa1, b'x'];
        for number in 0..30 {
            body.extend_from_slice(&[0xa1, b'A' + number, number]);
        }
        let fields = Fields::parse(&body).unwrap();
        assert_eq!(fields.names().count(), FIELDS_MAX + 1);
        assert!(fields.check_count().is_err());
        body.pop();
        assert!(Fields::parse(&body).is_err(), "the walk goes to the end");
    }
}
