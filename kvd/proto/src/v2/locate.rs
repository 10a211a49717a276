//! `locate` and `located`: where keys are, how large, and how long loading them would take.
//!
//! A present row is a promise: the key stays loadable for the daemon's promise window.

use super::batch::{first_column, keys, namespace, put_keys, put_namespace};
use crate::block_key::Namespace;
use crate::column::{ColumnBuf, KeyColumn, U8Column, U32Column, U64Column, check_same};
use crate::malformed::Malformed;
use crate::miss::MissReason;
use crate::pack::{Fields, FrameWriter};
use crate::tier::Tier;

/// Asks where keys are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locate<'a> {
    /// Repeated in the reply.
    pub id: u64,
    /// Where the keys belong.
    pub namespace: Namespace<'a>,
    /// The keys.
    pub keys: KeyColumn<'a>,
    /// Whether to stop after the first miss.
    pub prefix: bool,
}

impl<'a> Locate<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "locate";

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
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let writer = FrameWriter::begin(out, Self::OP, 6).field("id", self.id);
        let writer = put_namespace(writer, &self.namespace);
        put_keys(writer, self.keys).field("prefix", self.prefix).finish();
    }
}

/// Answer to [`Locate`]: a row per key, or up to and with the first miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located<'a> {
    /// Id of the request.
    pub id: u64,
    outcomes: U8Column<'a>,
    tiers: U8Column<'a>,
    lens: U64Column<'a>,
    load_us: U32Column<'a>,
}

/// Where one key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LocatedRow {
    /// It can be fetched.
    Present {
        /// Where it would come from. A tier that this release does not know reads as the slowest.
        tier: Tier,
        /// Bytes of the value.
        len_bytes: u64,
        /// Estimated time until a fetch could lend it, in microseconds; 0 in host memory.
        load_us: u32,
    },
    /// It cannot. A reason that this release does not know reads as [`MissReason::Shed`].
    Miss(MissReason),
}

impl<'a> Located<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "located";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        let outcomes: U8Column<'a> = first_column(fields, Self::OP, "outcomes")?;
        let located = Self {
            id: fields.required(Self::OP, "id")?,
            outcomes,
            tiers: fields.column(Self::OP, "tiers")?,
            lens: fields.column(Self::OP, "lens")?,
            load_us: fields.column(Self::OP, "load_us")?,
        };
        check_same("tiers", located.tiers.len(), outcomes.len())?;
        check_same("lens", located.lens.len(), outcomes.len())?;
        check_same("load_us", located.load_us.len(), outcomes.len())?;
        Ok(located)
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 5)
            .field("id", self.id)
            .field("outcomes", self.outcomes.as_bytes())
            .field("tiers", self.tiers.as_bytes())
            .field("lens", self.lens.as_bytes())
            .field("load_us", self.load_us.as_bytes())
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
    pub fn row(&self, index: usize) -> Option<LocatedRow> {
        let code = self.outcomes.get(index)?;
        if code != 0 {
            return Some(LocatedRow::Miss(MissReason::from_code_or_shed(code)));
        }
        Some(LocatedRow::Present {
            tier: Tier::from_code(self.tiers.get(index)?).unwrap_or(Tier::Remote),
            len_bytes: self.lens.get(index)?,
            load_us: self.load_us.get(index)?,
        })
    }

    /// All rows in order.
    pub fn rows(&self) -> impl Iterator<Item = LocatedRow> + use<'a> {
        let located = *self;
        (0..located.len()).filter_map(move |index| located.row(index))
    }
}

/// Rows being collected for a [`Located`]; keeps its memory between replies.
#[derive(Clone, Debug, Default)]
pub struct LocatedRows {
    outcomes: ColumnBuf<u8>,
    tiers: ColumnBuf<u8>,
    lens: ColumnBuf<u64>,
    load_us: ColumnBuf<u32>,
}

impl LocatedRows {
    /// Appends one row.
    pub fn push(&mut self, row: LocatedRow) {
        let (outcome, tier, len_bytes, load_us) = match row {
            LocatedRow::Present { tier, len_bytes, load_us } => {
                (0, tier.code(), len_bytes, load_us)
            }
            LocatedRow::Miss(reason) => (reason.code(), 0, 0, 0),
        };
        self.outcomes.push(outcome);
        self.tiers.push(tier);
        self.lens.push(len_bytes);
        self.load_us.push(load_us);
    }

    /// Removes all rows, keeps the memory.
    pub fn clear(&mut self) {
        self.outcomes.clear();
        self.tiers.clear();
        self.lens.clear();
        self.load_us.clear();
    }

    /// The reply with these rows.
    #[must_use]
    pub fn reply(&self, id: u64) -> Located<'_> {
        Located {
            id,
            outcomes: self.outcomes.as_column(),
            tiers: self.tiers.as_column(),
            lens: self.lens.as_column(),
            load_us: self.load_us.as_column(),
        }
    }
}
