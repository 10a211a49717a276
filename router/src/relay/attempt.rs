//! One request to one worker, up to the moment from which its answer is the client's.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Frame;
use hyper::header::{CONTENT_LENGTH, TRANSFER_ENCODING};
use hyper::http::response;
use hyper::{HeaderMap, Request, StatusCode, Uri};
use hyper_util::client::legacy::connect::HttpConnector;
use router_tls::Trust;
use tokio::time::timeout;

use super::headers;
use super::link::Flow;
use super::links::{Failed, Links, Stream};
use super::pieces::Pieces;
use super::watch::{Idle, Watch};
use crate::breaker::Outcome;
use crate::fleet::Leg;
use crate::meters::Retry;

/// How long a worker may take to accept a connection, and to greet if it is encrypted.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
/// A worker that is gone without a word is noticed after three of these.
const KEEPALIVE: Duration = Duration::from_secs(10);
const KEEPALIVE_PROBES: u32 = 3;
/// After this long without a first byte the head goes to the client alone.
const COMMIT_PATIENCE: Duration = Duration::from_secs(5);

/// The way to workers.
pub(super) fn links(trust: &Trust) -> Links {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    connector.set_keepalive(Some(KEEPALIVE));
    connector.set_keepalive_interval(Some(KEEPALIVE));
    connector.set_keepalive_retries(Some(KEEPALIVE_PROBES));
    Links::new(trust.connector(connector, CONNECT_PATIENCE))
}

/// An answer whose head is there.
#[derive(Debug)]
pub struct Begun {
    pub(super) leg: Leg,
    pub(super) watch: Watch,
    pub(super) head: response::Parts,
    /// Read already.
    pub(super) first: Option<Frame<Bytes>>,
    pub(super) body: Flow<Stream>,
}

/// What came of an attempt.
#[derive(Debug)]
pub(super) enum Attempt {
    /// The client's answer.
    Begun(Box<Begun>),
    /// It would be, but somebody else may have a better one.
    Refused(Box<Begun>, Retry),
    /// No answer: why.
    Lost(String),
    /// No connection, so nothing was sent: why.
    Unreached(String),
    /// No answer for too long.
    Idle,
}

/// The request to the worker that `leg` leads to.
pub(super) fn request(
    leg: &Leg,
    target: &str,
    mut headers: HeaderMap,
    body: Vec<Bytes>,
) -> Result<Request<Pieces>, hyper::http::Error> {
    if let Some(rank) = leg.target().rank {
        headers::set_rank(&mut headers, rank);
    }
    let url = leg.target().worker.record.url.trim_end_matches('/');
    let uri: Uri = format!("{url}{target}").parse()?;
    let mut request = Request::post(uri).body(Pieces::from(body))?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Sends `request` and waits until the client's answer begins. Tells the breaker what is known by then.
pub(super) async fn send(
    links: &Links,
    request: Request<Pieces>,
    mut leg: Leg,
    mut watch: Watch,
) -> Attempt {
    let (mut head, body) = match watch.over(links.ask(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(failed)) => {
            leg.settle(Outcome::Fault);
            let why = chain(&failed);
            return match failed {
                Failed::Unreached(_) => Attempt::Unreached(why),
                Failed::Unanswered(_) => Attempt::Lost(why),
            };
        }
        Err(Idle) => {
            leg.settle(Outcome::Fault);
            return Attempt::Idle;
        }
    };
    let status = head.status;
    if status.is_informational() {
        leg.settle(Outcome::Fault);
        return Attempt::Lost(format!("it answers {status}, which nobody asked for"));
    }
    // In chunks, the length is what they are: one that was told besides would cut the client's answer.
    if head.headers.contains_key(TRANSFER_ENCODING) {
        head.headers.remove(CONTENT_LENGTH);
    }
    let begun = Box::new(Begun { leg, watch, head, first: None, body });
    match status.as_u16() {
        ..400 => commit(begun).await,
        code => {
            let mut begun = begun;
            begun.leg.settle(if code < 500 { Outcome::Neutral } else { Outcome::Fault });
            match code {
                429 => Attempt::Refused(begun, Retry::Busy),
                500.. => Attempt::Refused(begun, Retry::Failed),
                _ => Attempt::Begun(begun),
            }
        }
    }
}

/// Waits for the first byte, for a while: until it is there, somebody else may be asked.
async fn commit(mut begun: Box<Begun>) -> Attempt {
    let Begun { leg, watch, head, first, body } = &mut *begun;
    let frame = match timeout(COMMIT_PATIENCE, watch.over(body.frame())).await {
        Err(_elapsed) => return Attempt::Begun(begun),
        Ok(Err(Idle)) => {
            leg.settle(Outcome::Fault);
            return Attempt::Idle;
        }
        Ok(Ok(frame)) => frame,
    };
    match frame {
        Some(Ok(frame)) => {
            watch.first_byte();
            leg.settle(Outcome::Success);
            *first = Some(frame);
            Attempt::Begun(begun)
        }
        Some(Err(error)) => {
            leg.settle(Outcome::Fault);
            Attempt::Lost(chain(&error))
        }
        None if is_event_stream(head) && head.status == StatusCode::OK => {
            leg.settle(Outcome::Fault);
            Attempt::Lost("a stream of events without any".to_owned())
        }
        None => {
            leg.settle(Outcome::Success);
            Attempt::Begun(begun)
        }
    }
}

/// Whether events follow.
pub(super) fn is_event_stream(head: &response::Parts) -> bool {
    let kind = head.headers.get(hyper::header::CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().to_ascii_lowercase().starts_with(b"text/event-stream"))
}

/// What an error says, and what it comes from.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
