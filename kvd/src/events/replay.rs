//! Who missed messages asks for them, and gets them as fast as it takes them.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use kvd_proto::events::frames::{self, EVENTS_TOPIC};
use zmq::{DONTWAIT, SNDMORE, Socket};

use super::Meters;
use super::stream::Stream;

/// Replays at once; one more is told that it is too late, and takes a snapshot.
const OPEN_MAX: usize = 32;
/// Who takes nothing for so long is left alone.
const PATIENCE: Duration = Duration::from_secs(10);
/// Requests that are read, and answers that are sent, in one turn.
const TURN: usize = 64;
/// Frames of a request at most: identity, delimiter, number.
const FRAMES_MAX: usize = 3;

/// Replays that are not over.
#[derive(Debug, Default)]
pub struct Replays {
    open: VecDeque<Replaying>,
}

#[derive(Debug)]
struct Replaying {
    identity: Vec<u8>,
    is_delimited: bool,
    next: u64,
    end: End,
    /// The first answer names the life of the publisher.
    is_first: bool,
    deadline: Instant,
}

/// How the answer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Behind this message.
    Whole(u64),
    TooOld,
}

/// Why an answer was not sent.
enum Unsent {
    /// The reader's queue is full.
    Later,
    /// There is no such reader any more.
    Gone,
}

impl Replays {
    /// Whether there is nothing to send.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Reads what was asked for.
    pub fn listen(&mut self, socket: &Socket, stream: &Stream, meters: &Meters) {
        for _ in 0..TURN {
            let Ok(frames) = socket.recv_multipart(DONTWAIT) else {
                return;
            };
            let [identity, rest @ ..] = frames.as_slice() else {
                continue;
            };
            let parts: Vec<&[u8]> = rest.iter().map(Vec::as_slice).collect();
            let Ok(start) = frames::parse_replay_request(&parts) else {
                continue;
            };
            if frames.len() > FRAMES_MAX {
                continue;
            }
            meters.replays.fetch_add(1, Ordering::Relaxed);
            let known = self.open.len() < OPEN_MAX
                && (start == stream.last() + 1 || stream.kept(start).is_some());
            let end = if known { End::Whole(stream.last()) } else { End::TooOld };
            self.open.push_back(Replaying {
                identity: identity.clone(),
                is_delimited: rest.len() > 1,
                next: start,
                end,
                is_first: true,
                deadline: Instant::now() + PATIENCE,
            });
        }
    }

    /// Sends as much as readers take.
    pub fn answer(&mut self, socket: &Socket, stream: &Stream, meters: &Meters) {
        for _ in 0..self.open.len() {
            let Some(mut replaying) = self.open.pop_front() else {
                return;
            };
            match replaying.go_on(socket, stream, meters) {
                Ok(true) | Err(Unsent::Gone) => {}
                Ok(false) | Err(Unsent::Later) if Instant::now() < replaying.deadline => {
                    self.open.push_back(replaying);
                }
                Ok(false) | Err(Unsent::Later) => {
                    meters.replays_given_up.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

impl Replaying {
    /// Whether it is over.
    fn go_on(&mut self, socket: &Socket, stream: &Stream, meters: &Meters) -> Result<bool, Unsent> {
        for _ in 0..TURN {
            match self.end {
                End::Whole(last) if self.next <= last => match stream.kept(self.next) {
                    Some(message) => {
                        self.send(socket, stream, message.seq, &message.payload)?;
                        self.next += 1;
                        self.deadline = Instant::now() + PATIENCE;
                    }
                    // It left while others were sent.
                    None => self.end = End::TooOld,
                },
                End::Whole(_) => {
                    self.send(socket, stream, frames::END, &[])?;
                    return Ok(true);
                }
                End::TooOld => {
                    self.send(socket, stream, frames::TOO_OLD, &[])?;
                    meters.replays_too_old.fetch_add(1, Ordering::Relaxed);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    fn send(
        &mut self,
        socket: &Socket,
        stream: &Stream,
        seq: u64,
        payload: &[u8],
    ) -> Result<(), Unsent> {
        let unsent = |error| match error {
            zmq::Error::EAGAIN => Unsent::Later,
            _ => Unsent::Gone,
        };
        // Only the first frame can be refused: the rest of a message goes where its beginning went.
        socket.send(self.identity.as_slice(), DONTWAIT | SNDMORE).map_err(unsent)?;
        let (seq, epoch) = (seq.to_be_bytes(), stream.epoch().to_be_bytes());
        let mut parts: Vec<&[u8]> = Vec::with_capacity(5);
        if self.is_delimited {
            parts.push(&[]);
        }
        parts.extend([EVENTS_TOPIC.as_bytes(), &seq, payload]);
        if self.is_first {
            parts.push(&epoch);
        }
        socket.send_multipart(parts, DONTWAIT).map_err(unsent)?;
        self.is_first = false;
        Ok(())
    }
}
