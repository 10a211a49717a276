//! What is served where.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post};
use tokio::time::timeout;

use super::answer::{Refused, Shared};
use super::{drain, health, ls, metrics, prefetch, quarantine, snapshot, stats, top, why};

/// A request is answered within this time, one way or the other.
const REQUEST_DEADLINE: Duration = Duration::from_secs(10);

/// Everything: for the Unix socket.
pub(super) fn all(daemon: Shared) -> Router {
    let routes = open_to_all()
        .route("/v1/stats", get(stats::answer))
        .route("/v1/ls", get(ls::answer))
        .route("/v1/why", get(why::answer))
        .route("/v1/top", get(top::answer))
        .route("/v1/drain", post(drain::begin).get(drain::progress))
        .route("/v1/quarantine/release", post(quarantine::answer))
        .route("/v1/events", get(snapshot::places))
        .route("/v1/events/snapshot", get(snapshot::answer))
        .route("/v1/prefetch", take_hints());
    finish(routes, daemon)
}

/// Health and metrics: for the TCP address, which anybody may reach.
pub(super) fn public(daemon: Shared) -> Router {
    finish(open_to_all(), daemon)
}

/// Snapshots and hints: for the TCP address of routers, which takes a token if there is one.
pub(super) fn for_routers(daemon: Shared, token: Option<Arc<str>>) -> Router {
    let mut routes = Router::new()
        .route("/v1/events/snapshot", get(snapshot::answer))
        .route("/v1/prefetch", take_hints());
    if let Some(token) = token {
        routes = routes.layer(from_fn(move |request, next| {
            snapshot::admit(Arc::clone(&token), request, next)
        }));
    }
    finish(routes, daemon)
}

fn take_hints() -> MethodRouter<Shared> {
    post(prefetch::answer).layer(DefaultBodyLimit::max(prefetch::BODY_BYTES_MAX))
}

fn open_to_all() -> Router<Shared> {
    Router::new()
        .route("/healthz", get(health::healthz))
        .route("/readyz", get(health::readyz))
        .route("/metrics", get(metrics::answer))
}

fn finish(routes: Router<Shared>, daemon: Shared) -> Router {
    routes.fallback(nothing_here).layer(from_fn(within_deadline)).with_state(daemon)
}

async fn nothing_here(request: Request) -> Refused {
    Refused::not_found(format!("there is no {} here", request.uri().path()))
}

async fn within_deadline(request: Request, next: Next) -> Response {
    timeout(REQUEST_DEADLINE, next.run(request))
        .await
        .unwrap_or_else(|_elapsed| Refused::too_late().into_response())
}
