//! Requests that a worker answers: the body is taken in whole, so that it can be sent again.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use hyper::header::{CONTENT_LENGTH, HeaderValue};
use tokio::time::{sleep, timeout};

use super::Shared;
use crate::phase::{self, Phase};
use crate::refusal::Refusal;
use crate::relay::{Ask, Begun, RequestMeter, Route, headers};

/// A client that sends nothing of its body for this long is turned away.
const BODY_PATIENCE: Duration = Duration::from_secs(60);
/// A request that comes before the workers have been looked up waits for that, but not longer; asked again so often.
const SYNC_PATIENCE: Duration = Duration::from_secs(5);
const SYNC_PAUSE: Duration = Duration::from_millis(10);

pub(super) async fn answer(State(app): State<Shared>, route: Route, request: Request) -> Response {
    let mut meter = RequestMeter::start(Arc::clone(&app.meters));
    let id = headers::request_id(request.headers());
    let mut phase = app.phase.clone();
    let begun = tokio::select! {
        begun = begin(&app, route, request, id.clone()) => begun,
        () = phase::reached(&mut phase, Phase::Ending) => Err(Refusal::ShuttingDown),
    };
    match begun {
        Ok((ask, begun)) => app.relay.pass_on(&ask, begun, meter),
        Err(refusal) => {
            // What is wrong with requests is their clients' business; what is wrong with us is ours.
            if refusal.status().is_server_error() {
                tracing::info!(?id, ?refusal, "refused");
            } else {
                tracing::debug!(?id, ?refusal, "refused");
            }
            meter.finished(refusal.status());
            let mut response = refusal.into_response();
            headers::set_id(response.headers_mut(), &id);
            response
        }
    }
}

async fn begin(
    app: &Shared,
    route: Route,
    request: Request,
    id: HeaderValue,
) -> Result<(Ask, Begun), Refusal> {
    if *app.phase.borrow() >= Phase::Closing {
        return Err(Refusal::ShuttingDown);
    }
    let (parts, body) = request.into_parts();
    let announced = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
    let announced = announced.and_then(|length| length.parse().ok()).unwrap_or(0);
    let body = take_in(body, announced, app.body_bytes_max).await?;
    let target = parts.uri.path_and_query().map_or(route.path, |target| target.as_str());
    let ask = Ask { route, target: target.to_owned(), headers: parts.headers, id, body };
    if timeout(SYNC_PATIENCE, synced(app)).await.is_err() {
        tracing::debug!("the workers have not been looked up yet");
    }
    let begun = app.relay.begin(&ask).await?;
    Ok((ask, begun))
}

/// Waits until the workers have been looked up: that is within a moment of the start, if their source answers.
async fn synced(app: &Shared) {
    while !app.standing.is_synced() {
        sleep(SYNC_PAUSE).await;
    }
}

/// All of a body, if it is not larger than allowed. Memory is taken as bytes come, not as announced.
async fn take_in<B>(mut body: B, announced: usize, bytes_max: usize) -> Result<Bytes, Refusal>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    if announced > bytes_max {
        return Err(Refusal::BodyTooLarge(bytes_max));
    }
    let mut taken = BytesMut::new();
    loop {
        let frame =
            timeout(BODY_PATIENCE, body.frame()).await.map_err(|_elapsed| Refusal::BodyTooSlow)?;
        let frame = match frame {
            None => return Ok(taken.freeze()),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => {
                return Err(Refusal::BadRequest(format!("the body broke off: {error}")));
            }
        };
        if let Some(data) = frame.data_ref() {
            if data.len() > bytes_max - taken.len() {
                return Err(Refusal::BodyTooLarge(bytes_max));
            }
            taken.extend_from_slice(data);
        }
    }
}
