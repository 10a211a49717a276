//! `hello` and `hello_ack`. If the ack offers the arena, one byte `F` with the descriptor follows
//! in a sendmsg of its own.

use super::Rejected;
use super::schema::Schema;
use crate::arena_offer::ArenaOffer;
use crate::malformed::Malformed;
use crate::pack::{Fields, FrameWriter};

/// First message of a client, usually.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// What the client calls itself.
    pub client_id: &'a str,
    /// Protocol asked for.
    pub protocol_version: i64,
    /// Whether the client would map the arena.
    pub prefers_shared_arena: bool,
}

impl<'a> Hello<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "hello";
    const SCHEMA: Schema = Schema {
        op: Self::OP,
        required: &["client_id"],
        optional: &["protocol_version", "prefers_shared_arena"],
    };

    /// Reads the message.
    ///
    /// # Errors
    /// What becomes of it otherwise.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Rejected> {
        Self::SCHEMA.check(fields)?;
        Ok(Self {
            client_id: fields.required(Self::OP, "client_id")?,
            protocol_version: fields.optional("protocol_version")?.unwrap_or(1),
            prefers_shared_arena: fields.optional("prefers_shared_arena")?.unwrap_or(false),
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 3)
            .field("client_id", self.client_id)
            .field("protocol_version", self.protocol_version)
            .field("prefers_shared_arena", self.prefers_shared_arena)
            .finish();
    }

    /// The version to acknowledge: what was asked for, between 1 and `highest`.
    #[must_use]
    pub fn version_to_ack(&self, highest: u32) -> u32 {
        let asked = self.protocol_version.clamp(1, i64::from(highest).max(1));
        u32::try_from(asked).unwrap_or(1)
    }
}

/// Answer to [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HelloAck<'a> {
    /// Begins with `kvd-`.
    pub server_id: &'a str,
    /// Protocol of the connection.
    pub protocol_version: u32,
    /// The arena, if the client asked for it and there is one.
    pub shared_arena: Option<ArenaOffer>,
}

impl<'a> HelloAck<'a> {
    /// Name on the wire.
    pub const OP: &'static str = "hello_ack";
    const SCHEMA: Schema = Schema {
        op: Self::OP,
        required: &["server_id", "protocol_version", "shared_arena"],
        optional: &[],
    };

    /// Reads the message.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(fields: &Fields<'a>) -> Result<Self, Malformed> {
        Self::SCHEMA.check(fields)?;
        Ok(Self {
            server_id: fields.required(Self::OP, "server_id")?,
            protocol_version: fields.required(Self::OP, "protocol_version")?,
            shared_arena: fields.required(Self::OP, "shared_arena")?,
        })
    }

    /// Appends the message as a frame.
    pub fn encode(&self, out: &mut Vec<u8>) {
        FrameWriter::begin(out, Self::OP, 3)
            .field("server_id", self.server_id)
            .field("protocol_version", self.protocol_version)
            .field("shared_arena", self.shared_arena)
            .finish();
    }
}

#[cfg(test)]
mod tests {
    use super::Hello;

    #[test]
    fn versions_are_clamped() {
        let ack = |protocol_version| {
            Hello { client_id: "", protocol_version, prefers_shared_arena: false }.version_to_ack(2)
        };
        assert_eq!([i64::MIN, 0, 1, 2, 3, i64::MAX].map(ack), [1, 1, 1, 2, 2, 2]);
    }
}
