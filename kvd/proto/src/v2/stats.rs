//! `stats` and `stats_reply`: counters and gauges by name.

use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter, Pairs};

/// Most values of one reply.
pub const STATS_VALUES_MAX: usize = 1024;

/// Asks for the counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stats {
    /// Repeated in the reply.
    pub id: u64,
}

impl Stats {
    /// Name on the wire.
    pub const OP: &'static str = "stats";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'_>) -> Result<Self, Malformed> {
        Ok(Self { id: fields.required(Self::OP, "id")? })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 1).field("id", self.id).finish();
    }
}

/// Answer to [`Stats`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatsReply<'a> {
    /// Id of the request.
    pub id: u64,
    /// Names and values, at most [`STATS_VALUES_MAX`]. Names are added, never reused.
    pub values: Pairs<'a>,
}

impl<'a> StatsReply<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "stats_reply";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        let values: Pairs<'a> = fields.required(Self::OP, "values")?;
        if values.len() > STATS_VALUES_MAX {
            return Err(Malformed::TooMany {
                field: "values",
                count: values.len() as u64,
                limit: STATS_VALUES_MAX as u64,
            });
        }
        Ok(Self { id: fields.required(Self::OP, "id")?, values })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 2)
            .field("id", self.id)
            .field("values", self.values)
            .finish();
    }
}
