//! What a daemon says of its tiers: measured bandwidths and queues, and the digest of what it holds.

use xxhash_rust::xxh3::xxh3_64;

use super::block::BlockHash;
use super::decode::{required, set_owner};
use super::encode::MapWriter;
use super::event::{Namespace, Owner};
use super::place::CacheTier;
use crate::malformed::Malformed;
use crate::pack::{Items, Value, Wire, put_array_head, put_map_head, put_str};

/// Measured figures of all tiers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats<'a> {
    /// Whose.
    pub owner: Owner<'a>,
    /// Last message of the event stream that they include.
    pub as_of_seq: u64,
    /// The figures of each tier.
    pub tiers: Tiers<'a>,
}

/// Figures of several tiers, in a frame or about to be sent.
#[derive(Clone, Copy, Debug)]
pub enum Tiers<'a> {
    /// In a frame.
    Frame(Items<'a>),
    /// The caller's.
    Slice(&'a [TierFigures]),
}

/// Figures of one tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TierFigures {
    /// The tier.
    pub tier: CacheTier,
    /// Capacity in bytes.
    pub bytes: u64,
    /// Bytes in use.
    pub used: u64,
    /// Measured reading, in bytes per second; nothing if not measured.
    pub read_bw: Option<f64>,
    /// Measured latency of a read, in microseconds; nothing if not measured.
    pub read_lat_us: Option<f64>,
    /// Bytes of reads that wait.
    pub queue_bytes: u64,
}

impl Default for Tiers<'_> {
    fn default() -> Self {
        Self::Slice(&[])
    }
}

impl<'a> Tiers<'a> {
    /// The figures in order; tiers that this release does not know are left out.
    pub fn iter(&self) -> impl Iterator<Item = TierFigures> + Clone + use<'a> {
        let (items, slice): (Items<'a>, &'a [TierFigures]) = match *self {
            Self::Frame(items) => (items, &[]),
            Self::Slice(slice) => (Items::EMPTY, slice),
        };
        items.values().filter_map(TierFigures::of).chain(slice.iter().copied())
    }
}

impl PartialEq for Tiers<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl TierFigures {
    fn of(value: Value<'_>) -> Option<Self> {
        let Value::Map(items) = value else {
            return None;
        };
        let mut tier = None;
        let (mut bytes, mut used, mut queue_bytes) = (0, 0, 0);
        let (mut read_bw, mut read_lat_us) = (None, None);
        let mut values = items.values();
        while let (Some(name), Some(value)) = (values.next(), values.next()) {
            match <&str>::from_value(name)? {
                "tier" => tier = <&str>::from_value(value).and_then(CacheTier::parse),
                "bytes" => bytes = u64::from_value(value)?,
                "used" => used = u64::from_value(value)?,
                "read_bw" => read_bw = measured(value),
                "read_lat_us" => read_lat_us = measured(value),
                "queue_bytes" => queue_bytes = u64::from_value(value)?,
                _ => {}
            }
        }
        Some(Self { tier: tier?, bytes, used, read_bw, read_lat_us, queue_bytes })
    }

    fn put(&self, out: &mut Vec<u8>) {
        put_map_head(out, 6);
        put_str(out, "tier");
        self.tier.as_str().put(out);
        put_str(out, "bytes");
        self.bytes.put(out);
        put_str(out, "used");
        self.used.put(out);
        put_str(out, "read_bw");
        self.read_bw.put(out);
        put_str(out, "read_lat_us");
        self.read_lat_us.put(out);
        put_str(out, "queue_bytes");
        self.queue_bytes.put(out);
    }
}

/// A measurement is a positive, finite number; anything else was not measured.
fn measured(value: Value<'_>) -> Option<f64> {
    f64::from_value(value).filter(|number| number.is_finite() && *number > 0.0)
}

impl<'a> Stats<'a> {
    /// Name on the wire.
    pub const TYPE: &'static str = "stats";

    pub(super) fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match name {
            "as_of_seq" => self.as_of_seq = required("as_of_seq", value)?,
            "tiers" => {
                let Value::Array(items) = value else {
                    return Err(Malformed::WrongType { field: "tiers" });
                };
                self.tiers = Tiers::Frame(items);
            }
            _ => return set_owner(&mut self.owner, &mut Namespace::default(), name, value),
        }
        Ok(true)
    }

    /// Appends the event as a map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::begin(out, Self::TYPE);
        map.owned(&self.owner, &Namespace::default());
        map.field("as_of_seq", self.as_of_seq);
        map.field_with("tiers", |out| {
            put_array_head(out, self.tiers.iter().count());
            for tier in self.tiers.iter() {
                tier.put(out);
            }
        });
        map.finish();
    }
}

/// What one tier holds of one namespace, after every event before this one.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Digest<'a> {
    /// Whose.
    pub owner: Owner<'a>,
    /// Of which model.
    pub namespace: Namespace<'a>,
    /// Where; known in a decoded digest.
    pub tier: Option<CacheTier>,
    /// How much.
    pub tally: Tally,
}

impl<'a> Digest<'a> {
    /// Name on the wire.
    pub const TYPE: &'static str = "digest";

    pub(super) fn set(&mut self, name: &str, value: Value<'a>) -> Result<bool, Malformed> {
        match name {
            "tier" => self.tier = <&str>::from_value(value).and_then(CacheTier::parse),
            "count" => self.tally.count = required("count", value)?,
            "xor" => self.tally.xor = required::<BlockHash<'_>>("xor", value)?.bits(),
            _ => return set_owner(&mut self.owner, &mut self.namespace, name, value),
        }
        Ok(true)
    }

    pub(super) fn check(self) -> Result<Self, Malformed> {
        if self.tier.is_none() {
            return Err(Malformed::MissingField { op: Self::TYPE, field: "tier" });
        }
        Ok(self)
    }

    /// Appends the event as a map.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::begin(out, Self::TYPE);
        map.owned(&self.owner, &self.namespace);
        map.optional("tier", self.tier.map(CacheTier::as_str));
        map.field("count", self.tally.count);
        map.field("xor", self.tally.xor);
        map.finish();
    }
}

/// A set of blocks in 16 bytes: equal sets have equal tallies, whatever their order.
///
/// Whoever holds rows adds and takes out what [`Tally::of_row`] says of each row; so publisher and reader agree about
/// rows whose hashes are known, and about rows of which only the key is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of blocks.
    pub count: u64,
    /// All their 64-bit hashes, combined by exclusive or.
    pub xor: u64,
}

impl Tally {
    /// What one row adds: its hashed blocks, or one block by the XXH3-64 of its key if no hash is known.
    pub fn of_row(hashes: impl IntoIterator<Item = u64>, key: &[u8]) -> Self {
        let mut tally = Self::default();
        for hash in hashes {
            tally.count = tally.count.wrapping_add(1);
            tally.xor ^= hash;
        }
        if tally.count == 0 {
            return Self { count: 1, xor: xxh3_64(key) };
        }
        tally
    }

    /// Adds a row.
    pub const fn add(&mut self, row: Self) {
        self.count = self.count.wrapping_add(row.count);
        self.xor ^= row.xor;
    }

    /// Takes a row out.
    pub const fn take_out(&mut self, row: Self) {
        self.count = self.count.wrapping_sub(row.count);
        self.xor ^= row.xor;
    }
}
