//! `fetch` and `fetched`: leases on keys, with the place of each value in the arena.

use super::batch::{first_column, keys, namespace, put_keys, put_namespace};
use crate::block_key::Namespace;
use crate::column::{ColumnBuf, KeyColumn, U8Column, U64Column, check_same};
use crate::ids::LeaseId;
use crate::malformed::Malformed;
use crate::miss::MissReason;
use crate::pack::{Fields, FrameWriter};

/// Asks for leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch<'a> {
    /// Repeated in the reply.
    pub id: u64,
    /// Where the keys belong.
    pub namespace: Namespace<'a>,
    /// The keys.
    pub keys: KeyColumn<'a>,
    /// Whether to stop after the first miss.
    pub prefix: bool,
    /// Time after which a value from a lower tier is of no use, in milliseconds.
    pub deadline_ms: u32,
}

impl<'a> Fetch<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "fetch";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            id: fields.required(Self::OP, "id")?,
            namespace: namespace(fields, Self::OP)?,
            keys: keys(fields, Self::OP)?,
            prefix: fields.required(Self::OP, "prefix")?,
            deadline_ms: fields.required(Self::OP, "deadline_ms")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let writer = FrameWriter::begin(out, Self::OP, 7).field("id", self.id);
        let writer = put_namespace(writer, &self.namespace);
        put_keys(writer, self.keys)
            .field("prefix", self.prefix)
            .field("deadline_ms", self.deadline_ms)
            .finish();
    }
}

/// Answer to [`Fetch`]: a row per key, or up to and with the first miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetched<'a> {
    /// Id of the request.
    pub id: u64,
    outcomes: U8Column<'a>,
    leases: U64Column<'a>,
    offsets: U64Column<'a>,
    lens: U64Column<'a>,
}

/// What became of one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchedRow {
    /// Lent until released.
    Hit {
        /// The right to read it.
        lease: LeaseId,
        /// Where the value begins in the arena, in bytes.
        offset: u64,
        /// Bytes of the value.
        len_bytes: u64,
    },
    /// Not there. A reason that this release does not know reads as [`MissReason::Shed`].
    Miss(MissReason),
}

impl<'a> Fetched<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "fetched";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        let outcomes: U8Column<'a> = first_column(fields, Self::OP, "outcomes")?;
        let fetched = Self {
            id: fields.required(Self::OP, "id")?,
            outcomes,
            leases: fields.column(Self::OP, "leases")?,
            offsets: fields.column(Self::OP, "offsets")?,
            lens: fields.column(Self::OP, "lens")?,
        };
        check_same("leases", fetched.leases.len(), outcomes.len())?;
        check_same("offsets", fetched.offsets.len(), outcomes.len())?;
        check_same("lens", fetched.lens.len(), outcomes.len())?;
        Ok(fetched)
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 5)
            .field("id", self.id)
            .field("outcomes", self.outcomes.as_bytes())
            .field("leases", self.leases.as_bytes())
            .field("offsets", self.offsets.as_bytes())
            .field("lens", self.lens.as_bytes())
            .finish();
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> usize {
        self.outcomes.len()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.outcomes.is_empty()
    }

    /// The row of the key at `index` of the request.
    #[must_use]
    pub fn row(&self, index: usize) -> Option<FetchedRow> {
        let code = self.outcomes.get(index)?;
        if code != 0 {
            return Some(FetchedRow::Miss(MissReason::from_code_or_shed(code)));
        }
        Some(FetchedRow::Hit {
            lease: LeaseId(self.leases.get(index)?),
            offset: self.offsets.get(index)?,
            len_bytes: self.lens.get(index)?,
        })
    }

    /// All rows in order.
    pub fn rows(&self) -> impl Iterator<Item = FetchedRow> + use<'a> {
        let fetched = *self;
        (0..fetched.len()).filter_map(move |index| fetched.row(index))
    }
}

/// Rows being collected for a [`Fetched`]; keeps its memory between replies.
#[derive(Clone, Debug, Default)]
pub struct FetchedRows {
    outcomes: ColumnBuf<u8>,
    leases: ColumnBuf<u64>,
    offsets: ColumnBuf<u64>,
    lens: ColumnBuf<u64>,
}

impl FetchedRows {
    /// Appends one row.
    pub fn push(&mut self, row: FetchedRow) {
        let (outcome, lease, offset, len_bytes) = match row {
            FetchedRow::Hit { lease, offset, len_bytes } => (0, lease, offset, len_bytes),
            FetchedRow::Miss(reason) => (reason.code(), LeaseId(0), 0, 0),
        };
        self.outcomes.push(outcome);
        self.leases.push(lease.0);
        self.offsets.push(offset);
        self.lens.push(len_bytes);
    }

    /// Removes all rows, keeps the memory.
    pub fn clear(&mut self) {
        self.outcomes.clear();
        self.leases.clear();
        self.offsets.clear();
        self.lens.clear();
    }

    /// The reply with these rows.
    #[must_use]
    pub fn reply(&self, id: u64) -> Fetched<'_> {
        Fetched {
            id,
            outcomes: self.outcomes.as_column(),
            leases: self.leases.as_column(),
            offsets: self.offsets.as_column(),
            lens: self.lens.as_column(),
        }
    }
}
