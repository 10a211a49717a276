//! Walks msgpack bytes one value at a time; lengths are checked against the bytes at hand.

use rmp::Marker;

use super::value::{Items, Value};
use crate::malformed::Malformed;

/// Deepest nesting of containers inside one value. Only `metadata`, which is not interpreted,
/// nests at all.
pub const NESTING_MAX: usize = 128;

/// A position in msgpack bytes.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

/// One value without the content of containers.
enum Head<'a> {
    Scalar(Value<'a>),
    Array(u32),
    Map(u32),
}

/// An open container during a walk.
#[derive(Clone, Copy)]
struct Level {
    /// Values that still belong to it; keys of a map count too.
    left: u64,
    is_map: bool,
}

impl<'a> Reader<'a> {
    /// A reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The bytes not yet read.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Reads one value; the content of a container is walked and found well formed.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_frame`.
    pub fn value(&mut self) -> Result<Value<'a>, Malformed> {
        let (count, is_map) = match self.head()? {
            Head::Scalar(value) => return Ok(value),
            Head::Array(count) => (count, false),
            Head::Map(count) => (count, true),
        };
        let content = self.rest;
        self.walk(Level::new(count, is_map))?;
        let len = content.len().saturating_sub(self.rest.len());
        let items = Items::new(count, content.get(..len).unwrap_or_default());
        Ok(if is_map { Value::Map(items) } else { Value::Array(items) })
    }

    /// Reads the head of a map: the number of its entries.
    ///
    /// # Errors
    /// [`Malformed::NotAMap`], or as [`Reader::value`].
    pub fn map_head(&mut self) -> Result<u32, Malformed> {
        match self.head()? {
            Head::Map(count) => Ok(count),
            Head::Scalar(_) | Head::Array(_) => Err(Malformed::NotAMap),
        }
    }

    /// Reads the head of an array or a map: how many values it has, keys counted, and whether it is a map. Of a scalar,
    /// which is read as a whole, nothing.
    ///
    /// # Errors
    /// As [`Reader::value`].
    pub(crate) fn container_head(&mut self) -> Result<Option<(u64, bool)>, Malformed> {
        Ok(match self.head()? {
            Head::Scalar(_) => None,
            Head::Array(count) => Some((count.into(), false)),
            Head::Map(count) => Some((u64::from(count).saturating_mul(2), true)),
        })
    }

    /// Reads a map key.
    ///
    /// # Errors
    /// [`Malformed::KeyNotText`], or as [`Reader::value`].
    pub fn name(&mut self) -> Result<&'a str, Malformed> {
        match self.head()? {
            Head::Scalar(Value::Text(name)) => Ok(name),
            Head::Scalar(_) | Head::Array(_) | Head::Map(_) => Err(Malformed::KeyNotText),
        }
    }

    /// Reads the head of a bin: its length; nothing if another value stands here.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if the head itself is not complete.
    pub fn bin_head(&mut self) -> Result<Option<u32>, Malformed> {
        let marker = Marker::from_u8(self.byte()?);
        if marker == Marker::Bin8 {
            self.be_u8().map(|len| Some(len.into()))
        } else if marker == Marker::Bin16 {
            self.be_u16().map(|len| Some(len.into()))
        } else if marker == Marker::Bin32 {
            self.be_u32().map(Some)
        } else {
            Ok(None)
        }
    }

    /// Takes `len` bytes as they are.
    ///
    /// # Errors
    /// [`Malformed::Truncated`] if fewer are left.
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self
            .rest
            .split_at_checked(len)
            .ok_or(Malformed::Truncated { needed: len as u64, left: self.rest.len() as u64 })?;
        self.rest = rest;
        Ok(taken)
    }

    /// Walks the content of a container. Most have no container inside; those that do need a stack.
    fn walk(&mut self, mut outermost: Level) -> Result<(), Malformed> {
        match self.walk_flat(&mut outermost)? {
            None => Ok(()),
            Some(inner) => self.walk_nested(outermost, inner),
        }
    }

    /// Walks to the end of a container, or up to the first one inside it that is not empty.
    fn walk_flat(&mut self, level: &mut Level) -> Result<Option<Level>, Malformed> {
        level.check(self.rest.len())?;
        while level.left > 0 {
            let is_key = level.is_map && level.left.is_multiple_of(2);
            level.left = level.left.saturating_sub(1);
            if is_key {
                self.name()?;
                continue;
            }
            match self.head()? {
                Head::Scalar(_) | Head::Array(0) | Head::Map(0) => {}
                Head::Array(count) => return Ok(Some(Level::new(count, false))),
                Head::Map(count) => return Ok(Some(Level::new(count, true))),
            }
        }
        Ok(None)
    }

    /// Walks without recursion; the stack is a fixed array.
    fn walk_nested(&mut self, outermost: Level, inner: Level) -> Result<(), Malformed> {
        let mut open = [outermost; NESTING_MAX];
        let mut depth = 1_usize;
        let mut level = inner;
        loop {
            if let Some(inner) = self.walk_flat(&mut level)? {
                let too_deep = Malformed::TooDeep { limit: NESTING_MAX as u64 };
                *open.get_mut(depth).ok_or(too_deep)? = level;
                depth = depth.saturating_add(1);
                level = inner;
            } else if let Some(outer) = depth.checked_sub(1) {
                depth = outer;
                level = open.get(outer).copied().unwrap_or(level);
            } else {
                return Ok(());
            }
        }
    }

    fn head(&mut self) -> Result<Head<'a>, Malformed> {
        let scalar = match Marker::from_u8(self.byte()?) {
            Marker::FixPos(value) => Value::Unsigned(value.into()),
            Marker::FixNeg(value) => Value::Negative(value.into()),
            Marker::Null => Value::Nil,
            Marker::True => Value::Bool(true),
            Marker::False => Value::Bool(false),
            Marker::U8 => Value::Unsigned(self.be_u8()?.into()),
            Marker::U16 => Value::Unsigned(self.be_u16()?.into()),
            Marker::U32 => Value::Unsigned(self.be_u32()?.into()),
            Marker::U64 => Value::Unsigned(u64::from_be_bytes(self.chunk()?)),
            Marker::I8 => signed(i8::from_be_bytes(self.chunk()?).into()),
            Marker::I16 => signed(i16::from_be_bytes(self.chunk()?).into()),
            Marker::I32 => signed(i32::from_be_bytes(self.chunk()?).into()),
            Marker::I64 => signed(i64::from_be_bytes(self.chunk()?)),
            Marker::F32 => Value::Float(f32::from_be_bytes(self.chunk()?).into()),
            Marker::F64 => Value::Float(f64::from_be_bytes(self.chunk()?)),
            Marker::FixStr(len) => self.text(len.into())?,
            Marker::Str8 => self.be_u8().and_then(|len| self.text(len.into()))?,
            Marker::Str16 => self.be_u16().and_then(|len| self.text(len.into()))?,
            Marker::Str32 => self.be_u32().and_then(|len| self.text(len))?,
            Marker::Bin8 => self.be_u8().and_then(|len| self.bytes(len.into()))?,
            Marker::Bin16 => self.be_u16().and_then(|len| self.bytes(len.into()))?,
            Marker::Bin32 => self.be_u32().and_then(|len| self.bytes(len))?,
            Marker::FixArray(count) => return Ok(Head::Array(count.into())),
            Marker::Array16 => return Ok(Head::Array(self.be_u16()?.into())),
            Marker::Array32 => return Ok(Head::Array(self.be_u32()?)),
            Marker::FixMap(count) => return Ok(Head::Map(count.into())),
            Marker::Map16 => return Ok(Head::Map(self.be_u16()?.into())),
            Marker::Map32 => return Ok(Head::Map(self.be_u32()?)),
            Marker::FixExt1 => self.extension(1)?,
            Marker::FixExt2 => self.extension(2)?,
            Marker::FixExt4 => self.extension(4)?,
            Marker::FixExt8 => self.extension(8)?,
            Marker::FixExt16 => self.extension(16)?,
            Marker::Ext8 => self.be_u8().and_then(|len| self.extension(len.into()))?,
            Marker::Ext16 => self.be_u16().and_then(|len| self.extension(len.into()))?,
            Marker::Ext32 => self.be_u32().and_then(|len| self.extension(len))?,
            Marker::Reserved => return Err(Malformed::ReservedMarker),
        };
        Ok(Head::Scalar(scalar))
    }

    fn text(&mut self, len: u32) -> Result<Value<'a>, Malformed> {
        let bytes = self.take(len as usize)?;
        core::str::from_utf8(bytes).map(Value::Text).ok().ok_or(Malformed::BadText)
    }

    fn bytes(&mut self, len: u32) -> Result<Value<'a>, Malformed> {
        self.take(len as usize).map(Value::Bytes)
    }

    fn extension(&mut self, len: u32) -> Result<Value<'a>, Malformed> {
        // One byte of type, then the payload: nothing here interprets either.
        self.byte()?;
        self.take(len as usize)?;
        Ok(Value::Extension)
    }

    fn byte(&mut self) -> Result<u8, Malformed> {
        let [byte] = self.chunk()?;
        Ok(byte)
    }

    fn be_u8(&mut self) -> Result<u8, Malformed> {
        self.byte()
    }

    fn be_u16(&mut self) -> Result<u16, Malformed> {
        self.chunk().map(u16::from_be_bytes)
    }

    fn be_u32(&mut self) -> Result<u32, Malformed> {
        self.chunk().map(u32::from_be_bytes)
    }

    fn chunk<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (chunk, rest) = self
            .rest
            .split_first_chunk()
            .ok_or(Malformed::Truncated { needed: N as u64, left: self.rest.len() as u64 })?;
        self.rest = rest;
        Ok(*chunk)
    }
}

impl Level {
    const fn new(count: u32, is_map: bool) -> Self {
        // No overflow: twice a u32 in a u64.
        let left = if is_map { (count as u64).saturating_mul(2) } else { count as u64 };
        Self { left, is_map }
    }

    /// Every value takes at least one byte, so a count above the bytes at hand is a lie.
    const fn check(self, left: usize) -> Result<(), Malformed> {
        if self.left > left as u64 {
            return Err(Malformed::Truncated { needed: self.left, left: left as u64 });
        }
        Ok(())
    }
}

const fn signed(value: i64) -> Value<'static> {
    if value < 0 { Value::Negative(value) } else { Value::Unsigned(value.cast_unsigned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
        Reader::new(bytes).value()
    }

    #[test]
    fn a_count_is_checked_before_it_is_believed() {
        assert!(matches!(
            read(&[0xdd, 0xff, 0xff, 0xff, 0xff]),
            Err(Malformed::Truncated { needed: 0xffff_ffff, left: 0 })
        ));
        assert!(matches!(
            read(&[0xdf, 0xff, 0xff, 0xff, 0xff]),
            Err(Malformed::Truncated { needed: 0x1_ffff_fffe, left: 0 })
        ));
        assert!(matches!(
            read(&[0xc6, 0xff, 0xff, 0xff, 0xff, 0]),
            Err(Malformed::Truncated { needed: 0xffff_ffff, left: 1 })
        ));
    }

    #[test]
    fn nesting_is_walked_and_bounded() {
        let nested = |levels: usize| {
            let mut bytes = vec![0x91_u8; levels];
            bytes.push(0xc0);
            bytes
        };
        assert!(read(&nested(NESTING_MAX + 1)).is_ok());
        assert!(matches!(read(&nested(NESTING_MAX + 2)), Err(Malformed::TooDeep { .. })));
        // [[1, {"a": [2]}], 3], then one byte that belongs to nobody.
        let bytes = [0x92, 0x92, 1, 0x81, 0xa1, b'a', 0x91, 2, 3, 0x77];
        let mut reader = Reader::new(&bytes);
        assert!(matches!(reader.value(), Ok(Value::Array(_))));
        assert_eq!(reader.rest(), [0x77]);
    }

    #[test]
    fn odd_values_are_named() {
        assert_eq!(read(&[0xc1]), Err(Malformed::ReservedMarker));
        assert_eq!(read(&[0xa1, 0xff]), Err(Malformed::BadText));
        assert_eq!(read(&[0x81, 1, 1]), Err(Malformed::KeyNotText));
        assert_eq!(read(&[0x91, 0x81, 0xc4, 0, 1]), Err(Malformed::KeyNotText));
        assert_eq!(read(&[]), Err(Malformed::Truncated { needed: 1, left: 0 }));
        assert_eq!(read(&[0xd4, 5, 6]), Ok(Value::Extension));
        assert_eq!(read(&[0xd3, 0, 0, 0, 0, 0, 0, 0, 9]), Ok(Value::Unsigned(9)));
        assert_eq!(read(&[0xd0, 0x80]), Ok(Value::Negative(-128)));
        assert_eq!(read(&[0xca, 0x3f, 0xc0, 0, 0]), Ok(Value::Float(1.5)));
    }
}
