//! The body of an answer on its way to the client as it comes (`gather`). Little is read ahead of what the client
//! takes, so a slow client costs little; and if the client leaves, this value is dropped, and with it the connection
//! to the worker.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use futures_util::Stream;
use futures_util::stream::unfold;
use hyper::StatusCode;
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_ENCODING, CONTENT_LENGTH};

use super::attempt::{Begun, chain, is_event_stream};
use super::events::Tail;
use super::gather::Gathered;
use super::request_meter::RequestMeter;
use super::usage;
use super::watch::{Idle, Watch};
use crate::breaker::Outcome;
use crate::fleet::Leg;
use crate::meters::Interruption;
use crate::phase::{self, Phase};

/// The worker broke off where no event can say so: the connection to the client is cut.
#[derive(Debug, thiserror::Error)]
#[error("the worker's answer broke off")]
pub(super) struct BrokenOff;

/// What is left of an answer, and everything that lives as long.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Rest {
    first: Option<Frame<Bytes>>,
    body: Gathered<Incoming>,
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
    is_over: bool,
    has_begun: bool,
}

/// The frames of `begun`. `expects_done`: if these are events, the last one is `[DONE]`.
pub(super) fn frames(
    begun: Begun,
    meter: RequestMeter,
    expects_done: bool,
    mut phase: phase::Current,
) -> impl Stream<Item = Result<Frame<Bytes>, BrokenOff>> + Send + 'static {
    let Begun { leg, watch, head, first, body } = begun;
    // An answer of a length that was announced, or that came encoded although that was not asked for, takes no more.
    let can_add = is_event_stream(&head)
        && head.status == StatusCode::OK
        && !head.headers.contains_key(CONTENT_LENGTH)
        && !head.headers.contains_key(CONTENT_ENCODING);
    let rest = Rest {
        first,
        body: Gathered::new(body),
        status: head.status,
        tail: can_add.then(Tail::default),
        usage: usage::Reader::default(),
        is_stream: is_event_stream(&head),
        expects_done,
        leg,
        watch,
        meter,
        ending: Box::pin(async move { phase::reached(&mut phase, Phase::Ending).await }),
        is_over: false,
        has_begun: false,
    };
    unfold(rest, next)
}

async fn next(mut rest: Rest) -> Option<(Result<Frame<Bytes>, BrokenOff>, Rest)> {
    if rest.is_over {
        return None;
    }
    if let Some(first) = rest.first.take() {
        rest.pass(&first);
        return Some((Ok(first), rest));
    }
    let Rest { body, watch, ending, .. } = &mut rest;
    let heard = tokio::select! {
        biased;
        // First: a worker that always has something to say must not keep the router from ending.
        () = ending => return rest.interrupt(Interruption::Ending, "the router is shutting down"),
        heard = watch.over(body.frame()) => heard,
    };
    match heard {
        Ok(Some(Ok(frame))) => {
            rest.pass(&frame);
            Some((Ok(frame), rest))
        }
        Ok(Some(Err(error))) => rest.interrupt(Interruption::Worker, &chain(&error)),
        Err(Idle) => rest.interrupt(Interruption::Idle, "the worker was silent for too long"),
        Ok(None) => {
            let is_cut =
                rest.expects_done && rest.tail.as_ref().is_some_and(|tail| !tail.is_done());
            if is_cut {
                return rest.interrupt(Interruption::Worker, "the stream ended before its end");
            }
            rest.leg.settle(Outcome::Success);
            rest.leg.used(rest.usage.usage());
            rest.meter.finished(rest.status);
            None
        }
    }
}

impl Rest {
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
        }
        if let (Some(tail), Some(data)) = (&mut self.tail, frame.data_ref()) {
            tail.see(data);
        }
    }

    /// Ends the answer before its end, and says so if that can be said.
    fn interrupt(
        mut self,
        why: Interruption,
        message: &str,
    ) -> Option<(Result<Frame<Bytes>, BrokenOff>, Self)> {
        self.is_over = true;
        if !self.has_begun && why != Interruption::Ending {
            self.leg.settle(Outcome::Fault);
        }
        self.meter.meters().interruptions.count(why);
        let worker = &self.leg.target().worker.record.worker_id;
        tracing::warn!(worker, reason = message, "an answer was not finished");
        let last = match &self.tail {
            Some(tail) => Ok(Frame::data(tail.interruption(message))),
            None => Err(BrokenOff),
        };
        Some((last, self))
    }
}
