//! The payload of one message: `[timestamp, events, rank?]`.

use super::decode::Decoded;
use super::event::Event;
use crate::malformed::Malformed;
use crate::pack::{Items, Reader, Value, Wire, put_f64};

/// Largest payload that is looked at, in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 64 << 20;

/// A decoded payload; its events are still in place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Batch<'a> {
    /// When it was published, in seconds since 1970.
    pub timestamp: f64,
    /// The data-parallel rank that published it.
    pub rank: Option<u32>,
    events: Items<'a>,
}

impl<'a> Batch<'a> {
    /// Reads a payload.
    ///
    /// # Errors
    /// It is no msgpack, no array, or longer than [`PAYLOAD_BYTES_MAX`]: nothing in it can be used.
    pub fn decode(payload: &'a [u8]) -> Result<Self, Malformed> {
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(Malformed::TooLong {
                field: "payload",
                len_bytes: payload.len() as u64,
                limit_bytes: PAYLOAD_BYTES_MAX as u64,
            });
        }
        let mut reader = Reader::new(payload);
        let Some((count, false)) = reader.container_head()? else {
            return Err(Malformed::WrongType { field: "batch" });
        };
        let mut values = (0..count).map(|_| reader.value());
        let timestamp = values.next().transpose()?.and_then(f64::from_value);
        let Some(Value::Array(events)) = values.next().transpose()? else {
            return Err(Malformed::WrongType { field: "events" });
        };
        let rank = values.next().transpose()?.and_then(u32::from_value);
        values.try_for_each(|value| value.map(drop))?;
        if !reader.rest().is_empty() {
            return Err(Malformed::Trailing { left: reader.rest().len() as u64 });
        }
        let timestamp = timestamp.ok_or(Malformed::WrongType { field: "timestamp" })?;
        Ok(Self { timestamp, rank, events })
    }

    /// Number of events, whatever they are.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.events.count()
    }

    /// Whether there is no event.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The events that can be used, in order.
    #[must_use]
    pub const fn events(&self) -> Events<'a> {
        Events { rest: Reader::new(self.events.content()), skipped: Skipped::NONE }
    }
}

/// What a batch contained and nobody could use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Skipped {
    /// Events that cannot be read.
    pub malformed: u32,
    /// Events of a type that this release does not know.
    pub unknown_types: u32,
    /// Fields that this release does not know.
    pub unknown_fields: u32,
}

impl Skipped {
    const NONE: Self = Self { malformed: 0, unknown_types: 0, unknown_fields: 0 };
}

/// Walks the events of a [`Batch`] and counts what it skips.
#[derive(Clone, Debug)]
pub struct Events<'a> {
    rest: Reader<'a>,
    skipped: Skipped,
}

impl Events<'_> {
    /// What was skipped so far.
    #[must_use]
    pub const fn skipped(&self) -> Skipped {
        self.skipped
    }
}

impl<'a> Iterator for Events<'a> {
    type Item = Event<'a>;

    fn next(&mut self) -> Option<Event<'a>> {
        loop {
            if self.rest.rest().is_empty() {
                return None;
            }
            let counter = match Event::decode(&mut self.rest) {
                Ok(Decoded { event: Some(event), unknown_fields }) => {
                    let known = &mut self.skipped.unknown_fields;
                    *known = known.saturating_add(unknown_fields);
                    return Some(event);
                }
                Ok(Decoded { event: None, .. }) => &mut self.skipped.unknown_types,
                Err(_malformed) => &mut self.skipped.malformed,
            };
            *counter = counter.saturating_add(1);
        }
    }
}

/// `array 32`, so that the head can be written before the number of events is known.
const ARRAY_32: u8 = 0xdd;
const ARRAY_OF_2: u8 = 0x92;

/// Appends one payload to a buffer.
#[derive(Debug)]
#[must_use = "the batch has no length before finish()"]
pub struct BatchWriter<'b> {
    out: &'b mut Vec<u8>,
    count_at: usize,
    count: u32,
}

impl<'b> BatchWriter<'b> {
    /// Begins a payload of a publisher without ranks. `timestamp`: seconds since 1970.
    pub fn begin(out: &'b mut Vec<u8>, timestamp: f64) -> Self {
        out.push(ARRAY_OF_2);
        put_f64(out, timestamp);
        out.push(ARRAY_32);
        let count_at = out.len();
        out.extend_from_slice(&[0; 4]);
        Self { out, count_at, count: 0 }
    }

    /// Appends an event.
    pub fn push(&mut self, event: &Event<'_>) {
        event.encode(self.out);
        self.count = self.count.saturating_add(1);
    }

    /// Number of events so far.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is no event yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Writes the number of events into the head.
    pub fn finish(self) {
        let count_end = self.count_at.saturating_add(4);
        if let Some(count) = self.out.get_mut(self.count_at..count_end) {
            count.copy_from_slice(&self.count.to_be_bytes());
        }
    }
}
