//! The door: which paths there are, what each answers, and how connections are accepted (`serve`).

mod openai;
mod probes;
pub mod serve;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post};

use crate::discovery::Standing;
use crate::fleet;
use crate::meters::Meters;
use crate::phase;
use crate::refusal::Refusal;
use crate::relay::{Relay, Route};

/// What all routes share.
#[derive(Debug)]
pub struct App {
    /// The workers.
    pub fleet: fleet::Shared,
    /// The way to them.
    pub relay: Relay,
    /// The figures.
    pub meters: Arc<Meters>,
    /// How well the workers are known.
    pub standing: Arc<Standing>,
    /// How far the process has come.
    pub phase: phase::Current,
    /// Largest request body.
    pub body_bytes_max: usize,
}

/// State of every route.
pub type Shared = Arc<App>;

/// Requests that go to workers.
const RELAYED: [Route; 5] = [
    Route { path: "/v1/chat/completions", has_retention: true, expects_done: true },
    Route { path: "/v1/completions", has_retention: true, expects_done: true },
    Route { path: "/v1/embeddings", has_retention: false, expects_done: false },
    Route { path: "/v1/responses", has_retention: false, expects_done: false },
    Route { path: "/tokenize", has_retention: false, expects_done: false },
];

/// All paths.
pub fn routes(app: Shared) -> Router {
    let relayed = RELAYED.into_iter().fold(Router::new(), |routes, route| {
        routes.route(route.path, post(move |app, request| openai::answer(app, route, request)))
    });
    relayed
        .route("/v1/models", get(views::models))
        .route("/v1/workers", get(views::workers))
        .route("/metrics", get(crate::metrics::answer))
        .route("/health", get(probes::health))
        .route("/live", get(probes::live))
        .route("/ready", get(probes::ready))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .with_state(app)
}

async fn nothing_here(request: Request) -> Refusal {
    Refusal::NotFound(request.uri().path().to_owned())
}

async fn wrong_method() -> Refusal {
    Refusal::WrongMethod
}
