//! `hello` and `hello_ack`: versions, features, limits and the arena.
//!
//! The client's first sendmsg may carry one pidfd of the client itself. If the ack offers the
//! arena, one byte `F` with the arena's descriptor follows in a sendmsg of its own.

use super::batch::text_up_to;
use crate::arena_offer::ArenaOffer;
use crate::ids::{Epoch, SessionId};
use crate::malformed::Malformed;
use crate::pack::{Array, Fields, FrameWriter, Items, Value, Wire, put_map_head, put_str, put_u64};

/// Longest name that a client gives itself, in bytes.
pub const CLIENT_ID_BYTES_MAX: usize = 256;

/// Most features in one list.
pub const FEATURES_MAX: usize = 64;

/// The byte that carries the arena's descriptor.
pub const DESCRIPTOR_MARKER: u8 = b'F';

/// First message of a session.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hello<'a> {
    /// What the client calls itself; for logs and for an operator's eyes.
    pub client_id: &'a str,
    /// Highest protocol that the client speaks; 2 or more here. Versions beyond 32 bits count as
    /// the largest one.
    pub protocol_version: u32,
    /// Whether the client would map the arena.
    pub prefers_shared_arena: bool,
    /// Optional abilities that the client has.
    pub features: Array<'a, &'a str>,
}

impl<'a> Hello<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "hello";

    /// Whether `body` is a `hello` that asks for protocol 2 or later. Decides how a first frame
    /// is decoded, hence looks at nothing else.
    #[must_use]
    pub fn asks_for_v2(body: &[u8]) -> bool {
        Fields::parse(body).is_ok_and(|fields| {
            let version = fields.get("protocol_version").and_then(i64::from_value);
            fields.op() == Ok(Self::OP) && version >= Some(super::PROTOCOL_VERSION.into())
        })
    }

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        let client_id = fields.required(Self::OP, "client_id")?;
        let asked: i64 = fields.required(Self::OP, "protocol_version")?;
        Ok(Self {
            client_id: text_up_to("client_id", client_id, CLIENT_ID_BYTES_MAX)?,
            protocol_version: u32::try_from(asked.max(0)).unwrap_or(u32::MAX),
            prefers_shared_arena: fields.optional("prefers_shared_arena")?.unwrap_or(false),
            features: features(fields)?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 4)
            .field("client_id", self.client_id)
            .field("protocol_version", self.protocol_version)
            .field("prefers_shared_arena", self.prefers_shared_arena)
            .field("features", self.features)
            .finish();
    }
}

/// Answer to [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HelloAck<'a> {
    /// `kvd-` and eight hexadecimal digits, new with every start of the daemon.
    pub server_id: &'a str,
    /// Protocol of the session: the lower of what was asked for and what the daemon speaks.
    pub protocol_version: u32,
    /// The arena, if the client asked for it and there is one.
    pub shared_arena: Option<ArenaOffer>,
    /// Incarnation of the daemon; repeated by the client wherever a right is used.
    pub epoch: Epoch,
    /// Number of this session.
    pub session: SessionId,
    /// Optional abilities that both sides have.
    pub features: Array<'a, &'a str>,
    /// What the daemon takes from one session.
    pub limits: Limits,
}

impl<'a> HelloAck<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "hello_ack";

    /// Reads the message.
    ///
    /// # Errors
    /// Whatever [`Malformed::code`] calls `bad_field`.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Ok(Self {
            server_id: fields.required(Self::OP, "server_id")?,
            protocol_version: fields.required(Self::OP, "protocol_version")?,
            shared_arena: fields.required(Self::OP, "shared_arena")?,
            epoch: Epoch(fields.required(Self::OP, "epoch")?),
            session: SessionId(fields.required(Self::OP, "session")?),
            features: features(fields)?,
            limits: fields.required(Self::OP, "limits")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 7)
            .field("server_id", self.server_id)
            .field("protocol_version", self.protocol_version)
            .field("shared_arena", self.shared_arena)
            .field("epoch", self.epoch.0)
            .field("session", self.session.0)
            .field("features", self.features)
            .field("limits", self.limits)
            .finish();
    }
}

fn features<'a>(fields: &Fields<'a>) -> Result<Array<'a, &'a str>, Malformed> {
    let features = fields.optional("features")?.unwrap_or(Array::Slice(&[]));
    if features.len() > FEATURES_MAX {
        return Err(Malformed::TooMany {
            field: "features",
            count: features.len() as u64,
            limit: FEATURES_MAX as u64,
        });
    }
    Ok(features)
}

/// What the daemon takes from one session. Beyond it, answers are typed refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Keys, tickets, leases or rows in one frame.
    pub keys_max: u64,
    /// Bytes of one frame body.
    pub frame_bytes_max: u64,
    /// Leases held at once.
    pub leases_max: u64,
    /// Tickets held at once.
    pub tickets_max: u64,
    /// Bytes under leases and tickets at once.
    pub in_flight_bytes_max: u64,
    /// Bytes of one value.
    pub value_bytes_max: u64,
}

impl Limits {
    fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("keys_max", self.keys_max),
            ("frame_bytes_max", self.frame_bytes_max),
            ("leases_max", self.leases_max),
            ("tickets_max", self.tickets_max),
            ("in_flight_bytes_max", self.in_flight_bytes_max),
            ("value_bytes_max", self.value_bytes_max),
        ]
    }
}

/// A map; limits that a later release adds are ignored.
impl<'a> Wire<'a> for Limits {
    fn from_value(value: Value<'a>) -> Option<Self> {
        let Value::Map(items) = value else {
            return None;
        };
        Some(Self {
            keys_max: entry(items, "keys_max")?,
            frame_bytes_max: entry(items, "frame_bytes_max")?,
            leases_max: entry(items, "leases_max")?,
            tickets_max: entry(items, "tickets_max")?,
            in_flight_bytes_max: entry(items, "in_flight_bytes_max")?,
            value_bytes_max: entry(items, "value_bytes_max")?,
        })
    }
    fn put(&self, out: &mut Vec<u8>) {
        let named = self.named();
        put_map_head(out, named.len());
        for (name, limit) in named {
            put_str(out, name);
            put_u64(out, limit);
        }
    }
}

fn entry(items: Items<'_>, name: &str) -> Option<u64> {
    let mut values = items.values();
    loop {
        let (key, value) = (values.next()?, values.next()?);
        if key == Value::Text(name) {
            return u64::from_value(value);
        }
    }
}
