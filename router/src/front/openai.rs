//! Requests that a worker answers: the body is taken in whole, so that it can be sent again.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use hyper::header::HeaderValue;
use tokio::time::{sleep, timeout};

use super::Shared;
use crate::phase::{self, Phase};
use crate::refusal::Refusal;
use crate::relay::{Ask, Begun, RequestMeter, Route, headers};

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
    let (parts, body) = app.bodies.take(request).await?;
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
