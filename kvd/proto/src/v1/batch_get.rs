//! `batch_get` with its two answers. On a connection that maps the arena, the answer is by place
//! only if every hit lies in the arena and none is empty; else all of it goes inline.

use super::Rejected;
use super::get::InlineHit;
use super::schema::{Schema, namespace, put_namespace};
use crate::block_key::Namespace;
use crate::column::check_same;
use crate::malformed::Malformed;
use crate::pack::{
    Array, Fields, FrameWriter, Later, Wire, array_head_bytes, bin_bytes, put_array_head,
    put_bin_head, put_nil, put_str, str_bytes,
};
use crate::retention::Retention;

/// Asks for several values.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchGet<'a> {
    /// The keys, in order, duplicates allowed.
    pub keys: Array<'a, &'a [u8]>,
    /// Where they belong.
    pub namespace: Namespace<'a>,
}

impl<'a> BatchGet<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "batch_get";
    const SCHEMA: Schema =
        Schema { op: Self::OP, required: &["keys"], optional: &["model", "compat_key"] };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        Ok(Self { keys: fields.required(Self::OP, "keys")?, namespace: namespace(fields)? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_namespace(
            FrameWriter::begin(out, Self::OP, 3).field("keys", self.keys),
            self.namespace,
        )
        .finish();
    }
}

/// Answer to [`BatchGet`] with the values inline.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchGetResponse<'a> {
    /// A value or a miss per key.
    pub values: Array<'a, Option<&'a [u8]>>,
    /// Class of the row, or a miss, per key.
    pub retentions: Array<'a, Option<Retention>>,
}

impl<'a> BatchGetResponse<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "batch_get_response";
    const SCHEMA: Schema =
        Schema { op: Self::OP, required: &["values", "retentions"], optional: &[] };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        let reply = Self {
            values: fields.required(Self::OP, "values")?,
            retentions: fields.required(Self::OP, "retentions")?,
        };
        check_same("retentions", reply.retentions.len(), reply.values.len())?;
        Ok(reply)
    }

    /// Appends the message as a frame.
    ///
    /// # Panics
    /// If the body reaches 4 GiB.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 2)
            .field("values", self.values)
            .field("retentions", self.retentions)
            .finish();
    }
}

/// An inline batch whose values are sent from where they lie: the head; then for each item
/// [`InlineBatch::encode_item`] and, for a hit, its value; then the tail. Together they make one
/// `batch_get_response` frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InlineBatch<'a> {
    /// A hit or a miss per key.
    pub items: &'a [Option<InlineHit>],
}

impl InlineBatch<'_> {
    /// Appends everything before the first item.
    ///
    /// # Errors
    /// [`Malformed::FrameTooLarge`] if the body would be above `limit_bytes`; nothing is appended
    /// then.
    pub fn encode_head(&self, out: &mut Vec<u8>, limit_bytes: u32) -> Result<(), Malformed> {
        let names = str_bytes("retentions").saturating_add(array_head_bytes(self.items.len()));
        let bytes = self.items.iter().fold(names, |sum, item| {
            let item = item.map_or(2, |hit| {
                bin_bytes(hit.len_bytes).saturating_add(str_bytes(hit.retention.as_str()))
            });
            sum.saturating_add(item)
        });
        FrameWriter::begin(out, BatchGetResponse::OP, 2)
            .field_with("values", |out| put_array_head(out, self.items.len()))
            .finish_before(Later { fields: 1, bytes }, limit_bytes)
    }

    /// Appends what stands before the value of a hit, or all of a miss.
    pub fn encode_item(out: &mut Vec<u8>, item: Option<InlineHit>) {
        match item {
            Some(hit) => put_bin_head(out, hit.len_bytes),
            None => put_nil(out),
        }
    }

    /// Appends everything after the last value.
    pub fn encode_tail(&self, out: &mut Vec<u8>) {
        put_str(out, "retentions");
        put_array_head(out, self.items.len());
        for item in self.items {
            item.map(|hit| hit.retention).put(out);
        }
    }
}

/// Where one hit of a batch lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedHit {
    /// Where the value begins in the arena, in bytes.
    pub offset: u64,
    /// Bytes of the value; never 0 in a batch, where clients read that as a miss.
    pub length: u64,
    /// Version that the extent's header shows while the value is there.
    pub version: u32,
    /// Class of the row.
    pub retention: Option<Retention>,
}

/// Answer to [`BatchGet`] on a connection that maps the arena.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchGetSharedResponse<'a> {
    /// A hit or a miss per key.
    pub rows: SharedRows<'a>,
    /// Slot size of the reference; clients ignore it.
    pub slot_size: u64,
}

impl<'a> BatchGetSharedResponse<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "batch_get_shared_response";
    const SCHEMA: Schema = Schema {
        op: Self::OP,
        required: &["offsets", "lengths", "versions", "retentions", "slot_size"],
        optional: &[],
    };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        let columns = SharedColumns {
            offsets: fields.required(Self::OP, "offsets")?,
            lengths: fields.required(Self::OP, "lengths")?,
            versions: fields.required(Self::OP, "versions")?,
            retentions: fields.required(Self::OP, "retentions")?,
        };
        let count = columns.offsets.len();
        check_same("lengths", columns.lengths.len(), count)?;
        check_same("versions", columns.versions.len(), count)?;
        check_same("retentions", columns.retentions.len(), count)?;
        Ok(Self {
            rows: SharedRows::Frame(columns),
            slot_size: fields.required(Self::OP, "slot_size")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 5)
            .field_with("offsets", |out| {
                self.put(out, |row| row.map_or(-1, |hit| i64::try_from(hit.offset).unwrap_or(-1)));
            })
            .field_with("lengths", |out| self.put(out, |row| row.map_or(0, |hit| hit.length)))
            .field_with("versions", |out| self.put(out, |row| row.map_or(0, |hit| hit.version)))
            .field_with("retentions", |out| self.put(out, |row| row.and_then(|hit| hit.retention)))
            .field("slot_size", self.slot_size)
            .finish();
    }

    fn put<'v, T: Wire<'v>>(&self, out: &mut Vec<u8>, item: impl Fn(Option<SharedHit>) -> T) {
        put_array_head(out, self.rows.len());
        for row in self.rows.iter() {
            item(row).put(out);
        }
    }
}

/// Rows of a [`BatchGetSharedResponse`].
#[derive(Clone, Copy, Debug)]
pub enum SharedRows<'a> {
    /// In a frame, as parallel lists of equal length.
    Frame(SharedColumns<'a>),
    /// The caller's.
    Slice(&'a [Option<SharedHit>]),
}

/// The parallel lists of a [`BatchGetSharedResponse`], as they stand in the frame.
#[derive(Clone, Copy, Debug)]
pub struct SharedColumns<'a> {
    offsets: Array<'a, i64>,
    lengths: Array<'a, u64>,
    versions: Array<'a, u32>,
    retentions: Array<'a, Option<Retention>>,
}

impl<'a> SharedRows<'a> {
    /// Number of rows.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self {
            Self::Frame(columns) => columns.offsets.len(),
            Self::Slice(rows) => rows.len(),
        }
    }

    /// Whether there is no row.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All rows in order.
    pub fn iter(&self) -> impl Iterator<Item = Option<SharedHit>> + use<'a> {
        let (columns, slice): (Option<SharedColumns<'a>>, &'a [Option<SharedHit>]) = match *self {
            Self::Frame(columns) => (Some(columns), &[]),
            Self::Slice(slice) => (None, slice),
        };
        columns.into_iter().flat_map(SharedColumns::rows).chain(slice.iter().copied())
    }
}

impl<'a> SharedColumns<'a> {
    fn rows(self) -> impl Iterator<Item = Option<SharedHit>> + use<'a> {
        let sizes = self.lengths.iter().zip(self.versions.iter());
        self.offsets.iter().zip(sizes).zip(self.retentions.iter()).map(
            |((offset, (length, version)), retention)| {
                let offset = u64::try_from(offset).ok()?;
                Some(SharedHit { offset, length, version, retention })
            },
        )
    }
}

impl PartialEq for SharedRows<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}
