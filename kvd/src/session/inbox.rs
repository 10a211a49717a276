//! What a client sent and nobody has handled yet.
//!
//! The buffer grows with the bytes that really arrived, never with the length that a prefix
//! claims, and goes back to its first size after a large frame.

use std::io::{self, Read};
use std::ops::Range;

use kvd_proto::frame;
use kvd_proto::malformed::Malformed;

/// First size. One batch of 64 keys of 32 bytes needs 2.3 KiB; a small buffer keeps the copied
/// part of a large value small, the rest of which goes straight into the arena.
const FIRST_BYTES: usize = 16 << 10;
/// A buffer above this is given back once its frame is handled.
const KEEP_BYTES: usize = 1 << 20;

/// Received bytes, from `start` to `end`.
#[derive(Debug)]
pub(crate) struct Inbox {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// What stands at the front of the inbox.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// Not even a whole prefix.
    Nothing,
    /// A frame has begun: its body will be `body_bytes` long.
    Begun { body_bytes: usize },
    /// A whole frame; the range is its body.
    Frame(Range<usize>),
}

impl Inbox {
    pub(crate) fn new() -> Self {
        Self { bytes: vec![0; FIRST_BYTES], start: 0, end: 0 }
    }

    /// An inbox in which these bytes have arrived.
    pub(crate) fn holding(bytes: Vec<u8>) -> Self {
        if bytes.len() <= FIRST_BYTES {
            let mut inbox = Self::new();
            inbox.bytes[..bytes.len()].copy_from_slice(&bytes);
            inbox.end = bytes.len();
            return inbox;
        }
        let end = bytes.len();
        Self { bytes, start: 0, end }
    }

    /// What has arrived and is not consumed.
    pub(crate) fn unread(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Looks at the front without taking anything.
    ///
    /// # Errors
    /// The prefix is zero or above `limit_bytes`.
    pub(crate) fn front(&self, limit_bytes: u32) -> Result<Front, Malformed> {
        let Some(prefix) = self.unread().first_chunk::<{ frame::PREFIX_BYTES }>() else {
            return Ok(Front::Nothing);
        };
        let body_bytes = frame::parse_prefix(*prefix, limit_bytes)? as usize;
        let begin = self.start + frame::PREFIX_BYTES;
        Ok(if self.end - begin >= body_bytes {
            Front::Frame(begin..begin + body_bytes)
        } else {
            Front::Begun { body_bytes }
        })
    }

    /// A range that [`Front::Frame`] named.
    pub(crate) fn slice(&self, range: Range<usize>) -> &[u8] {
        &self.bytes[range]
    }

    /// The part of a begun body that has arrived.
    pub(crate) fn begun(&self) -> &[u8] {
        self.unread().get(frame::PREFIX_BYTES..).unwrap_or_default()
    }

    /// Forgets everything before `position`, an index as in [`Front::Frame`].
    pub(crate) fn consume_to(&mut self, position: usize) {
        assert!((self.start..=self.end).contains(&position), "consuming what is not there");
        self.start = position;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
            if self.bytes.len() > KEEP_BYTES {
                self.bytes = vec![0; FIRST_BYTES];
            }
        }
    }

    /// Bytes that have arrived and are not consumed.
    pub(crate) fn len(&self) -> usize {
        self.end - self.start
    }

    /// Consumes the prefix and the first `value_at` bytes of a begun body.
    pub(crate) fn skip_to_value(&mut self, value_at: usize) {
        self.consume_to(self.start + frame::PREFIX_BYTES + value_at);
    }

    /// Takes at most `len_bytes` of what has arrived.
    pub(crate) fn take(&mut self, len_bytes: usize) -> &[u8] {
        let begin = self.start;
        let until = self.end.min(begin.saturating_add(len_bytes));
        self.start = until;
        &self.bytes[begin..until]
    }

    /// Reads once from `source` into free room, making some if there is none. 0 = end of stream.
    pub(crate) fn fill(&mut self, source: &mut impl Read) -> io::Result<usize> {
        self.make_room();
        let got = source.read(&mut self.bytes[self.end..])?;
        self.end += got;
        Ok(got)
    }

    /// Free room for a caller that reads by other means; [`Inbox::filled`] says how much it used.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        self.make_room();
        &mut self.bytes[self.end..]
    }

    /// `got` bytes of [`Inbox::room`] hold data now.
    pub(crate) fn filled(&mut self, got: usize) {
        assert!(got <= self.bytes.len() - self.end, "more than the room");
        self.end += got;
    }

    fn make_room(&mut self) {
        if self.end < self.bytes.len() {
            return;
        }
        if self.start > 0 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        if self.end == self.bytes.len() {
            // Doubling what has really come: a claimed length alone allocates nothing. Not beyond the
            // frame in front, so that a body takes no more than was accounted for it.
            let frame_bytes = self
                .unread()
                .first_chunk()
                .map_or(0, |prefix| frame::PREFIX_BYTES + u32::from_be_bytes(*prefix) as usize);
            let doubled = self.bytes.len() * 2;
            let len =
                if frame_bytes > self.bytes.len() { doubled.min(frame_bytes) } else { doubled };
            self.bytes.resize(len, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &[u8]) -> Vec<u8> {
        let mut bytes = frame::prefix(u32::try_from(body.len()).unwrap()).to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    #[test]
    fn frames_come_out_whole_however_they_arrive() {
        let mut stream = framed(b"first");
        stream.extend(framed(&vec![7; 100_000]));
        stream.extend(framed(b"last"));
        for step in [1, 2, 3, 5, 1000, 1 << 20] {
            let mut inbox = Inbox::new();
            let mut bodies = Vec::new();
            for mut piece in stream.chunks(step) {
                while !piece.is_empty() {
                    assert!(inbox.fill(&mut piece).unwrap() > 0);
                    while let Front::Frame(range) = inbox.front(1 << 20).unwrap() {
                        bodies.push(inbox.slice(range.clone()).to_vec());
                        inbox.consume_to(range.end);
                    }
                }
            }
            assert_eq!(bodies, [b"first".to_vec(), vec![7; 100_000], b"last".to_vec()], "{step}");
        }
    }

    #[test]
    fn an_inbox_goes_on_with_what_another_one_held() {
        let mut stream = framed(b"first");
        stream.extend(framed(&vec![7; 100_000]));
        for cut in [0, 3, 9, 12, 50_000, stream.len()] {
            let mut inbox = Inbox::holding(stream[..cut].to_vec());
            assert_eq!(inbox.unread(), &stream[..cut]);
            let (mut rest, mut bodies) = (&stream[cut..], Vec::new());
            loop {
                while let Front::Frame(range) = inbox.front(1 << 20).unwrap() {
                    bodies.push(inbox.slice(range.clone()).to_vec());
                    inbox.consume_to(range.end);
                }
                if inbox.fill(&mut rest).unwrap() == 0 {
                    break;
                }
            }
            assert_eq!(bodies, [b"first".to_vec(), vec![7; 100_000]], "{cut}");
        }
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        let mut inbox = Inbox::new();
        let mut claim: &[u8] = &frame::prefix(2 << 30);
        inbox.fill(&mut claim).unwrap();
        assert_eq!(inbox.front(2 << 30), Ok(Front::Begun { body_bytes: 2 << 30 }));
        assert!(inbox.room().len() < FIRST_BYTES);
        assert!(inbox.front(1 << 20).is_err(), "above the limit");
    }

    #[test]
    fn a_body_takes_no_more_than_its_frame() {
        let stream = framed(&vec![1; (5 << 20) + 3]);
        let mut inbox = Inbox::new();
        let mut rest = &stream[..];
        while !rest.is_empty() {
            inbox.fill(&mut rest).unwrap();
        }
        assert_eq!(inbox.bytes.len(), stream.len());
        assert!(matches!(inbox.front(u32::MAX), Ok(Front::Frame(_))));
    }

    #[test]
    fn a_large_buffer_is_given_back() {
        let mut inbox = Inbox::new();
        let stream = framed(&vec![1; 3 << 20]);
        let mut rest = &stream[..];
        while !rest.is_empty() {
            inbox.fill(&mut rest).unwrap();
        }
        let Front::Frame(range) = inbox.front(u32::MAX).unwrap() else { panic!("whole") };
        inbox.consume_to(range.end);
        assert_eq!(inbox.bytes.len(), FIRST_BYTES);
    }
}
