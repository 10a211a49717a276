//! Everything that a daemon holds, as a stream of msgpack maps: a header, a stored event per row, a trailer.
//!
//! The rows are read slice by slice while the daemon works, so they are of no single moment. That is enough: whatever
//! changed since the header was written is in a message with a larger number, and comes after the rows.

use super::event::{Event, Stored};
use crate::malformed::Malformed;
use crate::pack::{Fields, Reader, put_f64, put_map_head, put_str, put_u64};

/// Longest single item, in bytes.
pub const ITEM_BYTES_MAX: usize = 4 << 20;

/// One item of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "it lives on the stack, one at a time")]
pub enum SnapshotItem<'a> {
    /// The first one.
    Header {
        /// Life of the daemon.
        epoch: u64,
        /// Last message that the snapshot includes for certain.
        seq: u64,
        /// When it was begun, in seconds since 1970.
        timestamp: f64,
    },
    /// A row that can be read.
    Row(Stored<'a>),
    /// An item of a later release, or a row that cannot be read.
    Skipped,
    /// The last one. A snapshot without it is not whole.
    End {
        /// Number of rows.
        count: u64,
    },
}

/// Appends the header.
pub fn put_header(out: &mut Vec<u8>, epoch: u64, seq: u64, timestamp: f64) {
    put_map_head(out, 3);
    put_str(out, "epoch");
    put_u64(out, epoch);
    put_str(out, "seq");
    put_u64(out, seq);
    put_str(out, "ts");
    put_f64(out, timestamp);
}

/// Appends the trailer.
pub fn put_end(out: &mut Vec<u8>, count: u64) {
    put_map_head(out, 2);
    put_str(out, "end");
    out.push(0xc3);
    put_str(out, "count");
    put_u64(out, count);
}

/// Splits a stream that arrives in pieces into items.
#[derive(Debug, Default)]
pub struct SnapshotReader {
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were handed out.
    used: usize,
}

impl SnapshotReader {
    /// A reader at the start of a stream.
    #[must_use]
    pub const fn new() -> Self {
        Self { buffer: Vec::new(), used: 0 }
    }

    /// Takes the next piece of the stream. Take all items out before the next piece: what is left is kept.
    pub fn push(&mut self, piece: &[u8]) {
        self.buffer.drain(..self.used.min(self.buffer.len()));
        self.used = 0;
        self.buffer.extend_from_slice(piece);
    }

    /// The next whole item; nothing if more bytes are needed.
    ///
    /// # Errors
    /// The stream is no msgpack, or an item is longer than [`ITEM_BYTES_MAX`]: the rest cannot be used.
    pub fn next_item(&mut self) -> Result<Option<SnapshotItem<'_>>, Malformed> {
        let bytes = self.buffer.get(self.used..).unwrap_or_default();
        let mut reader = Reader::new(bytes);
        match reader.value() {
            Ok(_) => {}
            Err(Malformed::Truncated { .. }) if bytes.len() < ITEM_BYTES_MAX => return Ok(None),
            Err(malformed) => return Err(malformed),
        }
        let len = bytes.len().saturating_sub(reader.rest().len());
        self.used = self.used.saturating_add(len);
        item(bytes.get(..len).unwrap_or_default()).map(Some)
    }

    /// Whether bytes are left that make no whole item.
    #[must_use]
    pub fn is_inside_an_item(&self) -> bool {
        self.used < self.buffer.len()
    }
}

fn item(bytes: &[u8]) -> Result<SnapshotItem<'_>, Malformed> {
    const OP: &str = "snapshot";
    let mut reader = Reader::new(bytes);
    let count = reader.map_head()?;
    let fields = Fields::parse_entries(reader, count)?;
    if fields.get("type").is_some() {
        let decoded = Event::decode(&mut Reader::new(bytes)).ok().and_then(|decoded| decoded.event);
        return Ok(match decoded {
            Some(Event::Stored(stored)) => SnapshotItem::Row(stored),
            _ => SnapshotItem::Skipped,
        });
    }
    if fields.get("end").is_some() {
        return Ok(SnapshotItem::End { count: fields.required(OP, "count")? });
    }
    if fields.get("seq").is_some() {
        return Ok(SnapshotItem::Header {
            epoch: fields.required(OP, "epoch")?,
            seq: fields.required(OP, "seq")?,
            timestamp: fields.optional("ts")?.unwrap_or(0.0),
        });
    }
    Ok(SnapshotItem::Skipped)
}
