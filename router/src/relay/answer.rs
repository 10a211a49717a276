//! The body of an answer on its way to the client as it comes: what has come at once goes out at once. Little is read
//! ahead of what the client takes, so a slow client costs little; and if the client leaves, this value is dropped, and with
//! it the connection to the worker.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::{Body, Frame};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH};

use super::attempt::{Begun, chain, is_event_stream};
use super::events::Tail;
use super::link::Flow;
use super::links::Stream;
use super::request_meter::RequestMeter;
use super::usage;
use super::watch::Watch;
use crate::breaker::Outcome;
use crate::fleet::Leg;
use crate::meters::Interruption;
use crate::phase::{self, Phase};

/// The worker broke off where no event can say so: the connection to the client is cut.
#[derive(Debug, thiserror::Error)]
#[error("the worker's answer broke off")]
pub(super) struct BrokenOff;

/// The client's part of an answer.
pub(super) struct Answer(Left);

/// What is left of an answer.
enum Left {
    /// There may be more of it.
    Open(Box<Rest>),
    /// It is cut as soon as what was passed on has gone out.
    Cut,
    Over,
}

/// What is left of it, and everything that lives as long.
struct Rest {
    first: Option<Frame<Bytes>>,
    body: Flow<Stream>,
    status: StatusCode,
    /// Kept if events can be added.
    tail: Option<Tail>,
    usage: usage::Reader,
    is_stream: bool,
    expects_done: bool,
    leg: Leg,
    watch: Watch,
    meter: RequestMeter,
    ending: Pin<Box<dyn Future<Output = ()> + Send>>,
    has_begun: bool,
    /// Bytes that are still to come, of an answer whose length was announced.
    left: Option<u64>,
}

/// What comes next, and then nothing more.
enum Last {
    Interrupted(Interruption, String),
    Whole,
}

impl Answer {
    /// Goes on with `begun`. `expects_done`: if these are events, the last one is `[DONE]`.
    pub(super) fn new(
        begun: Begun,
        meter: RequestMeter,
        expects_done: bool,
        mut phase: phase::Current,
    ) -> Self {
        let Begun { leg, watch, head, first, body } = begun;
        // An answer of a length that was announced, or that came encoded although that was not asked for, takes no more.
        let can_add = is_event_stream(&head)
            && head.status == StatusCode::OK
            && !head.headers.contains_key(CONTENT_LENGTH)
            && !head.headers.contains_key(CONTENT_ENCODING);
        let length = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let rest = Box::new(Rest {
            first,
            body,
            status: head.status,
            tail: can_add.then(Tail::default),
            usage: usage::Reader::default(),
            is_stream: is_event_stream(&head),
            expects_done,
            leg,
            watch,
            meter,
            ending: Box::pin(async move { phase::reached(&mut phase, Phase::Ending).await }),
            has_begun: false,
            left: length.and_then(|length| length.parse().ok()),
        });
        let mut answer = Self(Left::Open(rest));
        answer.end_if_whole();
        answer
    }

    /// Of an answer whose length was announced nobody asks for the end.
    fn end_if_whole(&mut self) {
        if let Left::Open(rest) = &mut self.0
            && rest.left == Some(0)
        {
            rest.finish();
            self.0 = Left::Over;
        }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        let rest = match &mut self.0 {
            Left::Open(rest) => rest,
            Left::Cut => {
                self.0 = Left::Over;
                return Poll::Ready(Some(Err(BrokenOff)));
            }
            Left::Over => return Poll::Ready(None),
        };
        let last = match rest.poll(context) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(frame)) => {
                self.end_if_whole();
                return Poll::Ready(Some(Ok(frame)));
            }
            Poll::Ready(Err(last)) => last,
        };
        let (next, end) = match last {
            Last::Interrupted(why, message) => match rest.interrupt(why, &message) {
                Some(event) => (Left::Over, Poll::Ready(Some(Ok(Frame::data(event))))),
                None => {
                    // The server writes while it is not told what comes next.
                    context.waker().wake_by_ref();
                    (Left::Cut, Poll::Pending)
                }
            },
            Last::Whole => {
                rest.finish();
                (Left::Over, Poll::Ready(None))
            }
        };
        self.0 = next;
        end
    }
}

impl Rest {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Frame<Bytes>, Last>> {
        if let Some(first) = self.first.take() {
            self.pass(&first);
            return Poll::Ready(Ok(first));
        }
        let interrupted = |why, message: &str| Err(Last::Interrupted(why, message.to_owned()));
        // First: a worker that always has something to say must not keep the router from ending.
        if self.ending.as_mut().poll(context).is_ready() {
            let message = "the router is shutting down";
            return Poll::Ready(interrupted(Interruption::Ending, message));
        }
        let Poll::Ready(next) = Pin::new(&mut self.body).poll_frame(context) else {
            return self.watch.poll_silence(context).map(|_idle| {
                interrupted(Interruption::Idle, "the worker was silent for too long")
            });
        };
        self.watch.heard();
        Poll::Ready(match next {
            Some(Ok(frame)) => {
                self.pass(&frame);
                Ok(frame)
            }
            Some(Err(error)) => interrupted(Interruption::Worker, &chain(&error)),
            None if self.expects_done && self.tail.as_ref().is_some_and(|tail| !tail.is_done()) => {
                interrupted(Interruption::Worker, "the stream ended before its end")
            }
            None => Err(Last::Whole),
        })
    }

    /// Notes a frame that goes to the client.
    fn pass(&mut self, frame: &Frame<Bytes>) {
        if !self.has_begun {
            self.has_begun = true;
            self.watch.first_byte();
            self.meter.first_byte();
            self.leg.settle(Outcome::Success);
            // In one piece, the first byte comes with the last token.
            if self.is_stream && self.status == StatusCode::OK {
                self.leg.first_token();
            }
        }
        if let Some(data) = frame.data_ref() {
            self.usage.see(data);
            self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        }
        if let (Some(tail), Some(data)) = (&mut self.tail, frame.data_ref()) {
            tail.see(data);
        }
    }

    /// Notes that all of it has passed.
    fn finish(&mut self) {
        self.leg.settle(Outcome::Success);
        self.leg.used(self.usage.usage());
        self.meter.finished(self.status);
    }

    /// Ends the answer before its end, with an event that says so if that can be said.
    fn interrupt(&mut self, why: Interruption, message: &str) -> Option<Bytes> {
        if !self.has_begun && why != Interruption::Ending {
            self.leg.settle(Outcome::Fault);
        }
        self.meter.meters().interruptions.count(why);
        let worker = &self.leg.target().worker.record.worker_id;
        tracing::warn!(worker, reason = message, "an answer was not finished");
        self.tail.as_ref().map(|tail| tail.interruption(message))
    }
}
