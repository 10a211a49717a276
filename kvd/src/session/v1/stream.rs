//! A large `set` whose value goes from the socket straight into the arena.
//!
//! On the wire the key precedes the value, but the class follows it. So room is taken without
//! evicting anything (free space, and the reserve that is kept for this); the commit, which knows
//! the class, evicts by the usual rules or gives the room back. Without room the body is staged.

use std::os::fd::AsFd;
use std::time::Instant;

use kvd_proto::refusal::Refusal;
use kvd_proto::v1::set::{Head, HeadState, SetAck, Tail};
use kvd_proto::v1::ttl::Ttl;
use kvd_store::{Granted, Input, Outcome, Writer};

use super::super::FREE_BODY_BYTES;
use super::super::ended::Ended;
use super::super::inbox::Inbox;
use super::super::service::Service;
use super::super::verdicts::Stored;
use super::set::{Target, cancel, commit, refuse, store};
use crate::meters::Op;

/// Bodies below this size are simply buffered.
pub(in crate::session) const STREAM_BODY_BYTES: usize = 64 << 10;

/// What became of an attempt to stream.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::session) enum Streamed {
    /// The frame is consumed and answered.
    Done,
    /// Its head has not arrived yet: read more and try again.
    NeedMore,
    /// It is not a set, or there is no room: buffer the body.
    No,
}

/// The parts of a streamed set, told by its head.
struct Shape {
    key: Vec<u8>,
    /// Where the value begins in the body.
    value_at: usize,
    value_len: usize,
    /// Bytes that follow the value.
    tail_len: usize,
    fields_left: u32,
}

/// Tries to receive the begun frame as a `set` with a large value.
///
/// # Errors
/// The session must end.
pub(in crate::session) fn stream_set(
    service: &mut Service,
    inbox: &mut Inbox,
    body_bytes: usize,
) -> Result<Streamed, Ended> {
    let body_len = u32::try_from(body_bytes).unwrap_or(u32::MAX);
    if Head::parse(inbox.begun(), body_len) == HeadState::NeedMore {
        return Ok(Streamed::NeedMore);
    }
    let Some(shape) = shape_of(inbox, body_bytes) else {
        return Ok(Streamed::No);
    };
    super::begin(service);
    let room = match service.ask(Input::Reserve {
        session: service.id(),
        len_bytes: shape.value_len as u64,
        class: None,
        writer: Writer::Daemon,
    }) {
        Outcome::Reserved(Ok(granted)) => Ok(granted),
        Outcome::Reserved(Err(Refusal::Oversize | Refusal::ValueLargerThanStore)) => {
            Err(Refusal::ValueLargerThanStore)
        }
        _ => return Ok(Streamed::No),
    };
    take_body(service, inbox, &shape, room)?;
    Ok(Streamed::Done)
}

/// Takes a `set` for which there is no memory at all off the stream, and refuses it: a reference
/// client never comes back after a close. False if the frame is something else.
///
/// # Errors
/// The session must end.
pub(in crate::session) fn decline_set(
    service: &mut Service,
    inbox: &mut Inbox,
    body_bytes: usize,
) -> Result<bool, Ended> {
    let Some(shape) = shape_of(inbox, body_bytes) else {
        return Ok(false);
    };
    take_body(service, inbox, &shape, Err(Refusal::Shed))?;
    Ok(true)
}

/// Receives value and tail within the patience that a body has, and answers.
fn take_body(
    service: &mut Service,
    inbox: &mut Inbox,
    shape: &Shape,
    room: Result<Granted, Refusal>,
) -> Result<(), Ended> {
    inbox.skip_to_value(shape.value_at);
    // What is received into is nobody else's meanwhile, so a peer may not stall in it for ever.
    let patience = service.daemon.settings.limits.write_stall;
    service.stream.set_read_timeout(Some(patience))?;
    match room {
        Ok(granted) => receive_value(service, inbox, &granted, shape.value_len)?,
        Err(_) => drain_value(service, inbox, shape.value_len)?,
    }
    while inbox.len() < shape.tail_len {
        service.fill(inbox)?;
    }
    service.stream.set_read_timeout(None)?;
    service.facts.count_request();
    let started = Instant::now();
    finish(service, shape, room, inbox.take(shape.tail_len))?;
    service.daemon.meters.requests.of(Op::Set).observe(started.elapsed());
    Ok(())
}

/// The parts of a `set` whose head has arrived and whose tail fits the inbox.
fn shape_of(inbox: &Inbox, body_bytes: usize) -> Option<Shape> {
    let body_len = u32::try_from(body_bytes).ok()?;
    let HeadState::Head(head) = Head::parse(inbox.begun(), body_len) else {
        return None;
    };
    let (value_at, value_len) = (head.value_at, head.value_len as usize);
    let tail_len = body_bytes - value_at - value_len;
    (tail_len <= FREE_BODY_BYTES).then(|| Shape {
        key: head.key.to_vec(),
        value_at,
        value_len,
        tail_len,
        fields_left: head.fields_left,
    })
}

/// Copies what has arrived already, then lets the kernel write the rest into the arena.
fn receive_value(
    service: &Service,
    inbox: &mut Inbox,
    granted: &Granted,
    value_len: usize,
) -> Result<(), Ended> {
    let arena = service.daemon.arena.mapping();
    let early = inbox.take(value_len);
    arena.copy_in(granted.payload_offset, early);
    let rest = value_len - early.len();
    let at = granted.payload_offset + early.len() as u64;
    arena.receive_into(service.stream.as_fd(), at, rest).map_err(Ended::while_reading)?;
    service.count_received(rest);
    Ok(())
}

/// Reads a value that nothing can hold, so that the stream stays in step.
fn drain_value(service: &Service, inbox: &mut Inbox, value_len: usize) -> Result<(), Ended> {
    let mut left = value_len - inbox.take(value_len).len();
    while left > 0 {
        service.fill(inbox)?;
        left -= inbox.take(left).len();
    }
    Ok(())
}

/// The value is in place; what follows it says what to do with it.
fn finish(
    service: &mut Service,
    shape: &Shape,
    room: Result<Granted, Refusal>,
    tail: &[u8],
) -> Result<(), Ended> {
    let tail = match Tail::decode(tail, shape.fields_left) {
        Ok(tail) => tail,
        Err(rejected) => {
            if let Ok(granted) = room {
                cancel(service, granted.ticket);
            }
            return super::refuse(service, rejected);
        }
    };
    let target = Target {
        namespace: tail.namespace,
        key: tail.key_again.unwrap_or(&shape.key),
        retention: tail.retention,
        ttl: Ttl::from_seconds(tail.ttl_seconds),
    };
    let stored = decide(service, &target, tail.value_again, room, shape.value_len);
    let outcome = service.settle(stored);
    SetAck::from(outcome).encode(service.outbox.buffer());
    Ok(())
}

fn decide(
    service: &mut Service,
    target: &Target<'_>,
    value_again: Option<&[u8]>,
    room: Result<Granted, Refusal>,
    value_len: usize,
) -> Stored {
    if target.ttl == Ttl::Past {
        if let Ok(granted) = room {
            cancel(service, granted.ticket);
        }
        service.apply(Input::CountSet);
        return Ok(None);
    }
    match (value_again, room) {
        // A field sent twice counts the second time, and that value is in memory.
        (Some(value), room) => {
            if let Ok(granted) = room {
                cancel(service, granted.ticket);
            }
            store(service, target, value)
        }
        (None, Ok(granted)) => commit(service, target, granted.ticket, value_len as u64),
        (None, Err(refusal)) => refuse(service, refusal),
    }
}
