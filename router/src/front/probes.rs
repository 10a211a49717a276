//! What load balancers and service managers ask: is it alive, can it serve.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use hyper::StatusCode;
use serde_json::{Value, json};

use super::{App, Shared};
use crate::phase::Phase;

/// How long after the start events are waited for.
const EVENTS_PATIENCE: Duration = Duration::from_secs(10);

pub(super) async fn health(State(app): State<Shared>) -> Json<Value> {
    Json(json!({"status": "ok", "active_workers": app.fleet.load().active(None)}))
}

pub(super) async fn live() -> Json<Value> {
    Json(json!({"status": "ok"}))
}

/// A router that has just started takes requests when it knows what is cached, or has waited long enough for that.
fn are_events_heard(app: &App) -> bool {
    let is_late = app.meters.started.elapsed() >= EVENTS_PATIENCE;
    is_late || app.feeds.as_ref().is_none_or(|feeds| feeds.are_connected())
}

/// 200 if a request would find a worker, else 503 with what is missing.
pub(super) async fn ready(State(app): State<Shared>) -> Response {
    let missing = [
        (*app.phase.borrow() == Phase::Serving, "the router is shutting down"),
        (app.standing.is_synced(), "workers have not been looked up yet"),
        (app.fleet.load().serves_something(), "no model has an active worker"),
        (are_events_heard(&app), "events of workers or daemons are not heard yet"),
    ];
    let reasons: Vec<&str> =
        missing.iter().filter(|(is_so, _)| !is_so).map(|(_, why)| *why).collect();
    if reasons.is_empty() {
        return Json(json!({"status": "ready"})).into_response();
    }
    let answer = Json(json!({"status": "not ready", "reasons": reasons}));
    (StatusCode::SERVICE_UNAVAILABLE, answer).into_response()
}
