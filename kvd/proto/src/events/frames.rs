//! The frames around a payload: live from a publisher, replayed by its replay socket.

use crate::malformed::Malformed;

/// Topic of events of engines.
pub const ENGINE_TOPIC: &str = "kv-events";
/// Topic of the daemon's events.
pub const EVENTS_TOPIC: &str = "kvd-events";
/// Topic of the daemon's figures.
pub const STATS_TOPIC: &str = "kvd-stats";

/// In place of a number: nothing more follows.
pub const END: u64 = u64::MAX;
/// In place of a number: what was asked for is no longer kept.
pub const TOO_OLD: u64 = u64::MAX - 1;

/// One message of a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Live<'a> {
    /// Its topic.
    pub topic: &'a [u8],
    /// Its number, absent from publishers that don't count.
    pub seq: Option<u64>,
    /// What [`super::Batch::decode`] reads.
    pub payload: &'a [u8],
}

impl<'a> Live<'a> {
    /// Reads `[topic, seq, payload]` or `[topic, payload]`. Whatever later releases put in between is skipped.
    ///
    /// # Errors
    /// There are fewer frames, or the number has not eight bytes.
    pub fn parse(frames: &[&'a [u8]]) -> Result<Self, Malformed> {
        match frames {
            [topic, payload] => Ok(Self { topic, seq: None, payload }),
            [topic, seq, .., payload] => Ok(Self { topic, seq: Some(number(seq)?), payload }),
            [] | [_] => Err(Malformed::MissingField { op: "live", field: "payload" }),
        }
    }
}

/// One answer of a replay socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replayed<'a> {
    /// A message that was published before.
    Message {
        /// Its number.
        seq: u64,
        /// What [`super::Batch::decode`] reads.
        payload: &'a [u8],
        /// Life of the publisher, if it says so.
        epoch: Option<u64>,
    },
    /// That was all.
    End,
    /// What was asked for is no longer kept.
    TooOld,
}

impl<'a> Replayed<'a> {
    /// Reads `[topic, seq, payload, epoch?]` or `[seq, payload]`, with or without the empty frame that delimits the
    /// envelope of a request.
    ///
    /// # Errors
    /// There are fewer frames, or a number has not eight bytes.
    pub fn parse(frames: &[&'a [u8]]) -> Result<Self, Malformed> {
        let frames = match frames {
            [[], rest @ ..] if rest.len() >= 2 => rest,
            _ => frames,
        };
        let (seq, payload, epoch) = match *frames {
            [seq, payload] | [_, seq, payload] => (seq, payload, None),
            [_, seq, payload, epoch, ..] => (seq, payload, Some(number(epoch)?)),
            [] | [_] => return Err(Malformed::MissingField { op: "replay", field: "payload" }),
        };
        Ok(match number(seq)? {
            END => Self::End,
            TOO_OLD => Self::TooOld,
            seq => Self::Message { seq, payload, epoch },
        })
    }
}

/// The frames that ask for every message from `start` on, to be sent by a DEALER socket.
#[must_use]
pub const fn replay_request(start: u64) -> [[u8; 8]; 1] {
    [start.to_be_bytes()]
}

/// What a replay socket was asked for; the frames come without the identity of whoever asks.
///
/// # Errors
/// The last frame has not eight bytes.
pub fn parse_replay_request(frames: &[&[u8]]) -> Result<u64, Malformed> {
    let start = frames.last().ok_or(Malformed::MissingField { op: "replay", field: "start" })?;
    number(start)
}

fn number(frame: &[u8]) -> Result<u64, Malformed> {
    let bytes = <[u8; 8]>::try_from(frame);
    bytes.map(u64::from_be_bytes).ok().ok_or(Malformed::LengthMismatch {
        field: "seq",
        expected: 8,
        found: frame.len() as u64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEQ: [u8; 8] = 258_u64.to_be_bytes();

    #[test]
    fn live_messages_of_both_kinds() {
        let counted = Live::parse(&[b"kv-events", &SEQ, b"payload"]).unwrap();
        assert_eq!((counted.seq, counted.payload), (Some(258), &b"payload"[..]));
        let uncounted = Live::parse(&[b"", b"payload"]).unwrap();
        assert_eq!((uncounted.seq, uncounted.payload), (None, &b"payload"[..]));
        assert!(Live::parse(&[b"topic"]).is_err());
        assert!(Live::parse(&[b"topic", &SEQ[1..], b"payload"]).is_err());
    }

    #[test]
    fn answers_come_in_every_envelope() {
        let message = |epoch| Ok(Replayed::Message { seq: 258, payload: b"p", epoch });
        let end = END.to_be_bytes();
        assert_eq!(Replayed::parse(&[b"", b"t", &SEQ, b"p"]), message(None));
        assert_eq!(Replayed::parse(&[b"", b"", &SEQ, b"p"]), message(None));
        assert_eq!(Replayed::parse(&[b"t", &SEQ, b"p"]), message(None));
        assert_eq!(Replayed::parse(&[b"", &SEQ, b"p"]), message(None));
        assert_eq!(Replayed::parse(&[&SEQ, b"p"]), message(None));
        assert_eq!(Replayed::parse(&[b"", b"t", &SEQ, b"p", &SEQ]), message(Some(258)));
        for frames in [&[b"", b"", &end[..], b""][..], &[b"", &end, b""], &[&end, b""]] {
            assert_eq!(Replayed::parse(frames), Ok(Replayed::End));
        }
        let too_old = TOO_OLD.to_be_bytes();
        assert_eq!(Replayed::parse(&[b"", b"", &too_old, b""]), Ok(Replayed::TooOld));
        assert!(Replayed::parse(&[b"", b""]).is_err());
        assert!(Replayed::parse(&[]).is_err());
    }

    #[test]
    fn a_request_is_its_last_frame() {
        let [start] = replay_request(258);
        assert_eq!(parse_replay_request(&[b"", &start]), Ok(258));
        assert_eq!(parse_replay_request(&[&start]), Ok(258));
        assert!(parse_replay_request(&[b""]).is_err());
        assert!(parse_replay_request(&[]).is_err());
    }
}
