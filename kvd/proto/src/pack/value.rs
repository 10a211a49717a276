//! One msgpack value in place, and which Rust types it can stand for.

use super::reader::Reader;
use super::writer::{put_bin, put_f64, put_i64, put_nil, put_str, put_u64};
use crate::ids::TicketId;
use crate::retention::Retention;

/// A msgpack value, borrowed from the frame.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value<'a> {
    /// Absent.
    Nil,
    /// A truth value.
    Bool(bool),
    /// An integer of 0 or more, of whatever width.
    Unsigned(u64),
    /// An integer below 0.
    Negative(i64),
    /// A float of either width.
    Float(f64),
    /// A str.
    Text(&'a str),
    /// A bin.
    Bytes(&'a [u8]),
    /// An array whose content is well formed.
    Array(Items<'a>),
    /// A map whose content is well formed and whose keys are text.
    Map(Items<'a>),
    /// An extension; no message has one.
    Extension,
}

/// The content of a container, known to be well formed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Items<'a> {
    count: u32,
    content: &'a [u8],
}

impl<'a> Items<'a> {
    /// An empty container.
    pub const EMPTY: Self = Self { count: 0, content: &[] };

    pub(super) const fn new(count: u32, content: &'a [u8]) -> Self {
        Self { count, content }
    }

    /// Number of elements of an array, or entries of a map.
    #[must_use]
    pub const fn count(&self) -> u32 {
        self.count
    }

    /// The encoded elements, without the head.
    #[must_use]
    pub const fn content(&self) -> &'a [u8] {
        self.content
    }

    /// The values one after another; in a map each key comes right before its value.
    pub fn values(&self) -> impl Iterator<Item = Value<'a>> + Clone + use<'a> {
        let mut reader = Reader::new(self.content);
        core::iter::from_fn(move || reader.value().ok())
    }
}

impl core::fmt::Debug for Items<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_list().entries(self.values()).finish()
    }
}

/// A Rust type that a field or an array element can have.
pub trait Wire<'a>: Copy {
    /// The value as this type, or nothing if it is of another kind.
    fn from_value(value: Value<'a>) -> Option<Self>;
    /// Appends the value in its shortest form.
    fn put(&self, out: &mut Vec<u8>);
}

impl<'a> Wire<'a> for bool {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Bool(value) = value { Some(value) } else { None }
    }
    fn put(&self, out: &mut Vec<u8>) {
        out.push(if *self { 0xc3 } else { 0xc2 });
    }
}

impl<'a> Wire<'a> for u64 {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Unsigned(value) = value { Some(value) } else { None }
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, *self);
    }
}

impl<'a> Wire<'a> for u32 {
    fn from_value(value: Value<'a>) -> Option<Self> {
        u64::from_value(value).and_then(|value| Self::try_from(value).ok())
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, (*self).into());
    }
}

/// Integers above the range count as the largest: no field of ours tells them apart.
impl<'a> Wire<'a> for i64 {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Negative(value) = value {
            return Some(value);
        }
        u64::from_value(value).map(|value| Self::try_from(value).unwrap_or(Self::MAX))
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_i64(out, *self);
    }
}

/// Integers are accepted, as the reference's clients send them; always sent as float64.
impl<'a> Wire<'a> for f64 {
    #[expect(clippy::cast_precision_loss, reason = "seconds beyond 2^53 need no precision")]
    fn from_value(value: Value<'a>) -> Option<Self> {
        match value {
            Value::Float(value) => Some(value),
            Value::Unsigned(value) => Some(value as Self),
            Value::Negative(value) => Some(value as Self),
            Value::Nil
            | Value::Bool(_)
            | Value::Text(_)
            | Value::Bytes(_)
            | Value::Array(_)
            | Value::Map(_)
            | Value::Extension => None,
        }
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_f64(out, *self);
    }
}

impl<'a> Wire<'a> for &'a str {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Text(value) = value { Some(value) } else { None }
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_str(out, self);
    }
}

impl<'a> Wire<'a> for &'a [u8] {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Bytes(value) = value { Some(value) } else { None }
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_bin(out, self);
    }
}

impl<'a, T: Wire<'a>> Wire<'a> for Option<T> {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if value == Value::Nil { Some(None) } else { T::from_value(value).map(Some) }
    }
    fn put(&self, out: &mut Vec<u8>) {
        match self {
            Some(value) => value.put(out),
            None => put_nil(out),
        }
    }
}

impl<'a> Wire<'a> for Retention {
    fn from_value(value: Value<'a>) -> Option<Self> {
        <&str>::from_value(value).and_then(Self::parse)
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_str(out, self.as_str());
    }
}

/// A protocol-1 lease token. Negative tokens become 0: neither was ever granted.
impl<'a> Wire<'a> for TicketId {
    fn from_value(value: Value<'a>) -> Option<Self> {
        if let Value::Negative(_) = value {
            return Some(Self(0));
        }
        u64::from_value(value).map(Self)
    }
    fn put(&self, out: &mut Vec<u8>) {
        put_u64(out, self.0);
    }
}
