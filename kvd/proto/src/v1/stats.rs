//! `stats` and its nine numbers.

use super::schema::Schema;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// Asks for the counters. The one request whose unknown fields are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats;

impl Stats {
    /// Name on the wire.
    pub const OP: &'static str = "stats";

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 0).finish();
    }
}

/// Answer to [`Stats`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatsResponse {
    /// Rows in host memory; expired rows that nobody touched yet count.
    pub entries: u64,
    /// Bytes of their values.
    pub host_bytes: u64,
    /// Always 0.
    pub spillover_bytes: u64,
    /// Bytes of the values in files.
    pub long_bytes: u64,
    /// Keys asked for.
    pub gets_total: u64,
    /// Values offered, refused ones included.
    pub sets_total: u64,
    /// Keys found, in whatever tier.
    pub hits_total: u64,
    /// Keys not found, expired ones included.
    pub misses_total: u64,
    /// Rows dropped from host memory to make room.
    pub evictions_total: u64,
}

impl StatsResponse {
    /// Name on the wire.
    pub const OP: &'static str = "stats_response";
    const SCHEMA: Schema = Schema {
        op: Self::OP,
        required: &[
            "entries",
            "host_bytes",
            "spillover_bytes",
            "long_bytes",
            "gets_total",
            "sets_total",
            "hits_total",
            "misses_total",
            "evictions_total",
        ],
        optional: &[],
    };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self {
            entries: fields.required(Self::OP, "entries")?,
            host_bytes: fields.required(Self::OP, "host_bytes")?,
            spillover_bytes: fields.required(Self::OP, "spillover_bytes")?,
            long_bytes: fields.required(Self::OP, "long_bytes")?,
            gets_total: fields.required(Self::OP, "gets_total")?,
            sets_total: fields.required(Self::OP, "sets_total")?,
            hits_total: fields.required(Self::OP, "hits_total")?,
            misses_total: fields.required(Self::OP, "misses_total")?,
            evictions_total: fields.required(Self::OP, "evictions_total")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 9)
            .field("entries", self.entries)
            .field("host_bytes", self.host_bytes)
            .field("spillover_bytes", self.spillover_bytes)
            .field("long_bytes", self.long_bytes)
            .field("gets_total", self.gets_total)
            .field("sets_total", self.sets_total)
            .field("hits_total", self.hits_total)
            .field("misses_total", self.misses_total)
            .field("evictions_total", self.evictions_total)
            .finish();
    }
}
