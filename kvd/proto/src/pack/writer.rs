//! Appends msgpack values, and whole frames, to a caller's buffer. Shortest forms throughout.

use rmp::Marker;

use super::value::Wire;
use crate::frame::{self, PREFIX_BYTES};
use crate::malformed::Malformed;

/// One frame being appended to a buffer.
///
/// The prefix is patched by [`FrameWriter::finish`]; a writer dropped before that leaves the
/// buffer with an incomplete frame.
#[derive(Debug)]
#[must_use = "the frame has no length before finish()"]
pub struct FrameWriter<'b> {
    out: &'b mut Vec<u8>,
    start: usize,
    fields_left: usize,
}

impl<'b> FrameWriter<'b> {
    /// Begins a frame of operation `op` with `fields` further fields.
    pub fn begin(out: &'b mut Vec<u8>, op: &str, fields: usize) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        put_map_head(out, fields.saturating_add(1));
        put_str(out, "op");
        put_str(out, op);
        Self { out, start, fields_left: fields }
    }

    /// Appends one field.
    pub fn field<'v>(self, name: &str, value: impl Wire<'v>) -> Self {
        self.field_with(name, |out| value.put(out))
    }

    /// Appends one field whose single value `put` writes.
    pub fn field_with(mut self, name: &str, put: impl FnOnce(&mut Vec<u8>)) -> Self {
        put_str(self.out, name);
        put(self.out);
        self.fields_left = self.fields_left.wrapping_sub(1);
        self
    }

    /// Patches the length in.
    ///
    /// # Panics
    /// If the number of fields is not the announced one, or the body reaches 4 GiB.
    pub fn finish(self) {
        let body_bytes = length(self.body_bytes());
        self.patch(body_bytes, 0);
    }

    /// Patches the length in for a body whose last part, `later`, is sent from elsewhere.
    ///
    /// # Errors
    /// [`Malformed::FrameTooLarge`] if the whole body is above `limit_bytes`; the buffer is then
    /// as it was before the frame.
    ///
    /// # Panics
    /// If the number of fields is not the announced one.
    pub(crate) fn finish_before(self, later: Later, limit_bytes: u32) -> Result<(), Malformed> {
        let len_bytes = self.body_bytes().saturating_add(later.bytes);
        let body_bytes = u32::try_from(len_bytes).ok().filter(|bytes| *bytes <= limit_bytes);
        let Some(body_bytes) = body_bytes else {
            self.out.truncate(self.start);
            return Err(Malformed::FrameTooLarge { len_bytes, limit_bytes: limit_bytes.into() });
        };
        self.patch(body_bytes, later.fields);
        Ok(())
    }

    fn body_bytes(&self) -> u64 {
        let body_at = self.start.saturating_add(PREFIX_BYTES);
        self.out.len().saturating_sub(body_at) as u64
    }

    fn patch(self, body_bytes: u32, later_fields: usize) {
        assert_eq!(self.fields_left, later_fields, "a frame announces as many fields as it has");
        let body_at = self.start.saturating_add(PREFIX_BYTES);
        if let Some(prefix) = self.out.get_mut(self.start..body_at) {
            prefix.copy_from_slice(&frame::prefix(body_bytes));
        }
    }
}

/// The part of a frame that does not go through its [`FrameWriter`].
pub(crate) struct Later {
    /// Fields whose names come in that part.
    pub(crate) fields: usize,
    /// Its length.
    pub(crate) bytes: u64,
}

/// Appends nil.
pub fn put_nil(out: &mut Vec<u8>) {
    out.push(Marker::Null.to_u8());
}

/// Appends an integer of 0 or more.
pub fn put_u64(out: &mut Vec<u8>, value: u64) {
    if let Ok(value) = u8::try_from(value) {
        if value >= 0x80 {
            out.push(Marker::U8.to_u8());
        }
        out.push(value);
    } else if let Ok(value) = u16::try_from(value) {
        put_marked(out, Marker::U16, value.to_be_bytes());
    } else if let Ok(value) = u32::try_from(value) {
        put_marked(out, Marker::U32, value.to_be_bytes());
    } else {
        put_marked(out, Marker::U64, value.to_be_bytes());
    }
}

/// Appends an integer.
pub fn put_i64(out: &mut Vec<u8>, value: i64) {
    if let Ok(value) = u64::try_from(value) {
        put_u64(out, value);
    } else if let Ok(value) = i8::try_from(value) {
        if value < -32 {
            out.push(Marker::I8.to_u8());
        }
        out.push(value.cast_unsigned());
    } else if let Ok(value) = i16::try_from(value) {
        put_marked(out, Marker::I16, value.to_be_bytes());
    } else if let Ok(value) = i32::try_from(value) {
        put_marked(out, Marker::I32, value.to_be_bytes());
    } else {
        put_marked(out, Marker::I64, value.to_be_bytes());
    }
}

/// Appends a float64.
pub fn put_f64(out: &mut Vec<u8>, value: f64) {
    put_marked(out, Marker::F64, value.to_be_bytes());
}

/// Appends a str.
///
/// # Panics
/// If it reaches 4 GiB.
pub fn put_str(out: &mut Vec<u8>, text: &str) {
    let len = length(text.len() as u64);
    match u8::try_from(len) {
        Ok(len) if len < 32 => out.push(Marker::FixStr(len).to_u8()),
        Ok(len) => put_marked(out, Marker::Str8, [len]),
        Err(_) => match u16::try_from(len) {
            Ok(len) => put_marked(out, Marker::Str16, len.to_be_bytes()),
            Err(_) => put_marked(out, Marker::Str32, len.to_be_bytes()),
        },
    }
    out.extend_from_slice(text.as_bytes());
}

/// Appends a bin.
///
/// # Panics
/// If it reaches 4 GiB.
pub fn put_bin(out: &mut Vec<u8>, bytes: &[u8]) {
    put_bin_head(out, length(bytes.len() as u64));
    out.extend_from_slice(bytes);
}

/// Appends the head of a bin of `len` bytes.
pub fn put_bin_head(out: &mut Vec<u8>, len: u32) {
    if let Ok(len) = u8::try_from(len) {
        put_marked(out, Marker::Bin8, [len]);
    } else if let Ok(len) = u16::try_from(len) {
        put_marked(out, Marker::Bin16, len.to_be_bytes());
    } else {
        put_marked(out, Marker::Bin32, len.to_be_bytes());
    }
}

/// Appends the head of an array of `count` elements.
///
/// # Panics
/// If there are 2^32 elements or more.
pub fn put_array_head(out: &mut Vec<u8>, count: usize) {
    let count = length(count as u64);
    match u16::try_from(count) {
        Ok(few) if few < 16 => out.push(Marker::FixArray(few.to_be_bytes()[1]).to_u8()),
        Ok(some) => put_marked(out, Marker::Array16, some.to_be_bytes()),
        Err(_) => put_marked(out, Marker::Array32, count.to_be_bytes()),
    }
}

/// Appends the head of a map of `count` entries.
///
/// # Panics
/// If there are 2^32 entries or more.
pub fn put_map_head(out: &mut Vec<u8>, count: usize) {
    let count = length(count as u64);
    match u16::try_from(count) {
        Ok(few) if few < 16 => out.push(Marker::FixMap(few.to_be_bytes()[1]).to_u8()),
        Ok(some) => put_marked(out, Marker::Map16, some.to_be_bytes()),
        Err(_) => put_marked(out, Marker::Map32, count.to_be_bytes()),
    }
}

/// Length in bytes that [`put_bin_head`] takes for a bin of `len` bytes, head included.
pub(crate) fn bin_bytes(len: u32) -> u64 {
    let head = match len {
        0..=0xff => 2,
        0x100..=0xffff => 3,
        0x1_0000.. => 5,
    };
    u64::from(len).saturating_add(head)
}

/// Length in bytes that [`put_array_head`] takes.
pub(crate) const fn array_head_bytes(count: usize) -> u64 {
    match count {
        0..=15 => 1,
        16..=0xffff => 3,
        _ => 5,
    }
}

/// Length in bytes that [`put_str`] takes.
pub(crate) const fn str_bytes(text: &str) -> u64 {
    let head = match text.len() {
        0..=31 => 1,
        32..=0xff => 2,
        0x100..=0xffff => 3,
        _ => 5,
    };
    (text.len() as u64).saturating_add(head)
}

fn put_marked<const N: usize>(out: &mut Vec<u8>, marker: Marker, bytes: [u8; N]) {
    out.push(marker.to_u8());
    out.extend_from_slice(&bytes);
}

/// msgpack and the prefix both end at 32 bits; whoever sends bounds what it sends far below.
fn length(len: u64) -> u32 {
    let Ok(len) = u32::try_from(len) else { panic!("{len} do not fit a frame") };
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(put: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        put(&mut out);
        out
    }

    #[test]
    fn integers_take_their_shortest_form() {
        for (value, bytes) in [
            (0_i64, &[0_u8][..]),
            (127, &[0x7f]),
            (128, &[0xcc, 0x80]),
            (255, &[0xcc, 0xff]),
            (256, &[0xcd, 1, 0]),
            (65_535, &[0xcd, 0xff, 0xff]),
            (65_536, &[0xce, 0, 1, 0, 0]),
            (0xffff_ffff, &[0xce, 0xff, 0xff, 0xff, 0xff]),
            (0x1_0000_0000, &[0xcf, 0, 0, 0, 1, 0, 0, 0, 0]),
            (-1, &[0xff]),
            (-32, &[0xe0]),
            (-33, &[0xd0, 0xdf]),
            (-128, &[0xd0, 0x80]),
            (-129, &[0xd1, 0xff, 0x7f]),
            (-32_769, &[0xd2, 0xff, 0xff, 0x7f, 0xff]),
            (i64::MIN, &[0xd3, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        ] {
            assert_eq!(put(|out| put_i64(out, value)), bytes, "{value}");
        }
    }

    #[test]
    fn computed_lengths_are_the_written_ones() {
        for len in [0_usize, 1, 15, 16, 31, 32, 255, 256, 65_535, 65_536] {
            let text = "x".repeat(len);
            assert_eq!(put(|out| put_str(out, &text)).len() as u64, str_bytes(&text));
            let bin = put(|out| put_bin(out, text.as_bytes())).len() as u64;
            assert_eq!(bin, bin_bytes(u32::try_from(len).unwrap()));
            let head = put(|out| put_array_head(out, len)).len() as u64;
            assert_eq!(head, array_head_bytes(len));
            assert_eq!(put(|out| put_map_head(out, len)).len() as u64, head);
        }
    }

    #[test]
    #[should_panic(expected = "announces as many fields")]
    fn a_missing_field_is_a_mistake_of_ours() {
        FrameWriter::begin(&mut Vec::new(), "x", 2).field("a", true).finish();
    }

    #[test]
    fn a_frame_above_the_limit_leaves_no_trace() {
        let mut out = vec![7];
        let writer = FrameWriter::begin(&mut out, "x", 1);
        let refused = writer.finish_before(Later { fields: 1, bytes: 100 }, 99);
        assert!(matches!(refused, Err(Malformed::FrameTooLarge { .. })));
        assert_eq!(out, [7]);
    }
}
