//! Headers at their place in an arena.

use super::{HEADER_BYTES, Header, HeaderWords};
use crate::mapping::{Access, Mapping};

/// Marks the payload at `payload_offset` as being written. Call it before the first byte changes.
///
/// # Panics
/// If `version` is even, if there is no room for a header before the payload, or if the payload is
/// not 4-byte-aligned.
pub fn write_odd(mapping: &Mapping, payload_offset: u64, version: u32) {
    writable_words(mapping, payload_offset).write_odd(version);
}

/// Marks the payload at `payload_offset` as complete and `len` bytes long. Call it after the last
/// byte has changed.
///
/// # Panics
/// If `version` is odd, if there is no room for a header before the payload, or if the payload is
/// not 4-byte-aligned.
pub fn publish(mapping: &Mapping, payload_offset: u64, version: u32, len: u32) {
    writable_words(mapping, payload_offset).publish(version, len);
}

/// What stands in the header now: for tests and tools.
///
/// # Panics
/// If there is no room for a header before the payload, or if the payload is not 4-byte-aligned.
#[must_use]
pub fn read(mapping: &Mapping, payload_offset: u64) -> Header {
    words(mapping, payload_offset).read()
}

fn writable_words(mapping: &Mapping, payload_offset: u64) -> HeaderWords<'_> {
    assert!(mapping.access() == Access::ReadWrite, "writing through a read-only mapping");
    words(mapping, payload_offset)
}

fn words(mapping: &Mapping, payload_offset: u64) -> HeaderWords<'_> {
    let Some(start) = payload_offset.checked_sub(HEADER_BYTES) else {
        panic!("no room for a header before offset {payload_offset}")
    };
    HeaderWords::new(mapping.word(start), mapping.word(start + 4))
}
