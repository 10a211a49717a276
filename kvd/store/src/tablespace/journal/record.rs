//! What a journal says: one record for each change, framed by its length.
#![warn(clippy::indexing_slicing)]

use core::fmt;

use kvd_proto::block_key::{KEY_BYTES_MAX, NAMESPACE_PART_BYTES_MAX, Namespace};
use kvd_proto::lineage::LINEAGE_BYTES_MAX;
use kvd_proto::retention::Retention;

use crate::input::ClearScope;
use crate::tablespace::WallTime;
use crate::tablespace::bytes::Reader;

/// Why an entry left a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// It made room.
    Evicted,
    /// A newer value was stored under its name.
    Superseded,
    /// Its time to live was over.
    Expired,
    /// It was cleared. Clears say so for many entries at once; this is for a single one.
    Cleared,
    /// Its bytes did not fit its checksum.
    Corrupt,
    /// The device could not read it.
    Faulty,
}

impl Reason {
    const ALL: [Self; 6] = [
        Self::Evicted,
        Self::Superseded,
        Self::Expired,
        Self::Cleared,
        Self::Corrupt,
        Self::Faulty,
    ];

    /// One word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Superseded => "superseded",
            Self::Expired => "expired",
            Self::Cleared => "cleared",
            Self::Corrupt => "corrupt",
            Self::Faulty => "faulty",
        }
    }

    const fn code(self) -> u8 {
        self as u8 + 1
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.code() == code)
    }

    /// Whether the loss of such a record could bring back what must not come back.
    pub(in crate::tablespace) const fn is_vital(self) -> bool {
        match self {
            Self::Superseded | Self::Cleared => true,
            Self::Evicted | Self::Expired | Self::Corrupt | Self::Faulty => false,
        }
    }
}

impl ClearScope<'_> {
    pub(crate) fn covers(&self, model: &str, compat_key: &str) -> bool {
        match *self {
            Self::Everything => true,
            Self::Model(wanted) => wanted == model,
            Self::Namespace(wanted) => wanted == Namespace { model, compat_key },
        }
    }
}

/// One change of a device's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// A name that later records of the same batch refer to by its number.
    Namespace {
        /// Its number in this batch.
        number: u32,
        /// Its first part.
        model: &'a str,
        /// Its second part.
        compat_key: &'a str,
    },
    /// A block is on the device.
    Insert(Insert<'a>),
    /// The entry is gone.
    Remove {
        /// Where it began.
        start: u64,
        /// Which entry it was.
        generation: u64,
        /// Why it left.
        reason: Reason,
    },
    /// Entries are gone whose generation is less than a bound.
    Clear {
        /// Which entries.
        scope: ClearScope<'a>,
        /// Generations of entries that it covers are less.
        below_generation: u64,
    },
}

/// One block, as it came to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Insert<'a> {
    /// Number of its namespace in this batch.
    pub namespace: u32,
    /// Byte offset on the device.
    pub start: u64,
    /// Which entry it is.
    pub generation: u64,
    /// CRC-64/NVME over the bytes, then the key.
    pub checksum: u64,
    /// When it ends.
    pub expires_at: WallTime,
    /// Bytes of the block.
    pub len_bytes: u32,
    /// How much it is worth.
    pub class: Retention,
    /// The key.
    pub key: &'a [u8],
    /// Encoded lineage, empty if there is none.
    pub lineage: &'a [u8],
}

const NAMESPACE: u8 = 1;
const INSERT: u8 = 2;
const REMOVE: u8 = 3;
const CLEAR: u8 = 4;

impl<'a> Record<'a> {
    /// Whether the loss of this record could bring back what must not come back.
    #[must_use]
    pub const fn is_vital(&self) -> bool {
        match self {
            Self::Clear { .. } => true,
            Self::Remove { reason, .. } => reason.is_vital(),
            Self::Namespace { .. } | Self::Insert(_) => false,
        }
    }

    /// Appends the record with its frame.
    pub(in crate::tablespace) fn encode(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        self.encode_body(&mut body);
        out.extend_from_slice(&narrow::<u32>(body.len()).to_le_bytes());
        out.extend_from_slice(&body);
    }

    fn encode_body(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Namespace { number, model, compat_key } => {
                out.push(NAMESPACE);
                out.extend_from_slice(&number.to_le_bytes());
                encode_names(model, compat_key, out);
            }
            Self::Insert(insert) => insert.encode(out),
            Self::Remove { start, generation, reason } => {
                out.push(REMOVE);
                out.extend_from_slice(&start.to_le_bytes());
                out.extend_from_slice(&generation.to_le_bytes());
                out.push(reason.code());
            }
            Self::Clear { scope, below_generation } => {
                out.push(CLEAR);
                out.extend_from_slice(&below_generation.to_le_bytes());
                let (code, model, compat_key) = match scope {
                    ClearScope::Everything => (0, "", ""),
                    ClearScope::Model(model) => (1, model, ""),
                    ClearScope::Namespace(of) => (2, of.model, of.compat_key),
                };
                out.push(code);
                encode_names(model, compat_key, out);
            }
        }
    }

    /// The record in a frame whose length is taken off already; none if it is none of these.
    pub(in crate::tablespace) fn decode(body: &'a [u8]) -> Option<Self> {
        let mut reader = Reader::new(body);
        let record = match reader.u8()? {
            NAMESPACE => {
                let number = reader.u32()?;
                let (model, compat_key) = decode_names(&mut reader)?;
                Self::Namespace { number, model, compat_key }
            }
            INSERT => Self::Insert(Insert::decode(&mut reader)?),
            REMOVE => Self::Remove {
                start: reader.u64()?,
                generation: reader.number()?,
                reason: Reason::from_code(reader.u8()?)?,
            },
            CLEAR => {
                let below_generation = reader.number()?;
                let code = reader.u8()?;
                let (model, compat_key) = decode_names(&mut reader)?;
                let scope = match code {
                    0 => ClearScope::Everything,
                    1 => ClearScope::Model(model),
                    2 => ClearScope::Namespace(Namespace { model, compat_key }),
                    _ => return None,
                };
                Self::Clear { scope, below_generation }
            }
            _ => return None,
        };
        reader.is_empty().then_some(record)
    }
}

impl<'a> Insert<'a> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(INSERT);
        out.extend_from_slice(&self.namespace.to_le_bytes());
        out.extend_from_slice(&self.start.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&self.checksum.to_le_bytes());
        out.extend_from_slice(&self.expires_at.0.to_le_bytes());
        out.extend_from_slice(&self.len_bytes.to_le_bytes());
        out.push(self.class as u8);
        out.extend_from_slice(&narrow::<u16>(self.key.len()).to_le_bytes());
        out.extend_from_slice(&narrow::<u32>(self.lineage.len()).to_le_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.lineage);
    }

    fn decode(reader: &mut Reader<'a>) -> Option<Self> {
        let namespace = reader.u32()?;
        let start = reader.u64()?;
        let generation = reader.number()?;
        let checksum = reader.u64()?;
        let expires_at = WallTime(reader.u64()?);
        let len_bytes = reader.u32()?;
        let class = class_from_code(reader.u8()?)?;
        let key_len = usize::from(reader.u16()?);
        let lineage_len = usize::try_from(reader.u32()?).ok()?;
        if key_len > KEY_BYTES_MAX || lineage_len > LINEAGE_BYTES_MAX {
            return None;
        }
        let (key, lineage) = (reader.take(key_len)?, reader.take(lineage_len)?);
        Some(Self {
            namespace,
            start,
            generation,
            checksum,
            expires_at,
            len_bytes,
            class,
            key,
            lineage,
        })
    }
}

pub(in crate::tablespace) fn class_from_code(code: u8) -> Option<Retention> {
    Retention::ALL.into_iter().find(|&class| class as u8 == code)
}

/// The records of a batch's payload, in order.
#[derive(Clone, Debug)]
pub struct Records<'a>(Reader<'a>);

impl<'a> Records<'a> {
    pub(in crate::tablespace) const fn new(payload: &'a [u8]) -> Self {
        Self(Reader::new(payload))
    }
}

impl<'a> Iterator for Records<'a> {
    /// None for a record that this release does not know.
    type Item = Option<Record<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let len_bytes = self.0.u32().and_then(|len| usize::try_from(len).ok());
        let body = len_bytes.and_then(|len| self.0.take(len));
        if body.is_none() {
            self.0 = Reader::new(&[]);
        }
        Some(body.and_then(Record::decode))
    }
}

fn encode_names(model: &str, compat_key: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&narrow::<u16>(model.len()).to_le_bytes());
    out.extend_from_slice(&narrow::<u16>(compat_key.len()).to_le_bytes());
    out.extend_from_slice(model.as_bytes());
    out.extend_from_slice(compat_key.as_bytes());
}

fn decode_names<'a>(reader: &mut Reader<'a>) -> Option<(&'a str, &'a str)> {
    let (model, compat_key) = (usize::from(reader.u16()?), usize::from(reader.u16()?));
    if model > NAMESPACE_PART_BYTES_MAX || compat_key > NAMESPACE_PART_BYTES_MAX {
        return None;
    }
    let (model, compat_key) = (reader.take(model)?, reader.take(compat_key)?);
    Some((str::from_utf8(model).ok()?, str::from_utf8(compat_key).ok()?))
}

/// # Panics
/// If the length does not fit: the protocols' limits are far below.
fn narrow<T: TryFrom<usize>>(len: usize) -> T {
    let Ok(narrow) = T::try_from(len) else {
        panic!("a length of {len} bytes is beyond every limit");
    };
    narrow
}

impl fmt::Display for Record<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace { number, model, compat_key } => {
                write!(out, "namespace {number} is {model:?} {compat_key:?}")
            }
            Self::Insert(insert) => write!(out, "{insert}"),
            Self::Remove { start, generation, reason } => {
                write!(out, "remove generation {generation} at {start}: {}", reason.as_str())
            }
            Self::Clear { scope, below_generation } => {
                match scope {
                    ClearScope::Everything => out.write_str("clear everything")?,
                    ClearScope::Model(model) => write!(out, "clear model {model:?}")?,
                    ClearScope::Namespace(of) => {
                        write!(out, "clear {:?} {:?}", of.model, of.compat_key)?;
                    }
                }
                write!(out, " below generation {below_generation}")
            }
        }
    }
}

impl fmt::Display for Insert<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "insert generation {} at {}: {} bytes, {}, namespace {}, key {}, checksum {:016x}",
            self.generation,
            self.start,
            self.len_bytes,
            self.class.as_str(),
            self.namespace,
            self.key.escape_ascii(),
            self.checksum,
        )?;
        if self.expires_at != WallTime::NEVER {
            write!(out, ", expires at {} ms", self.expires_at.0)?;
        }
        if !self.lineage.is_empty() {
            write!(out, ", {} bytes of lineage", self.lineage.len())?;
        }
        Ok(())
    }
}
