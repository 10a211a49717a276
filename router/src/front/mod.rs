//! The door: which paths there are, what each answers, and how connections are accepted (`serve`).

mod admin;
mod bodies;
mod openai;
mod prewarm;
mod probes;
pub mod serve;
mod views;

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::routing::{get, post};

pub use self::bodies::Bodies;
use crate::discovery::Standing;
use crate::feed::Feeds;
use crate::fleet;
use crate::hints::Hints;
use crate::meters::Meters;
use crate::phase;
use crate::picker::ByCache;
use crate::refusal::Refusal;
use crate::relay::{Relay, Route};

/// What all routes share.
#[derive(Debug)]
pub struct App {
    /// The workers.
    pub fleet: fleet::Shared,
    /// What is heard of their caches, if that is looked at.
    pub feeds: Option<Arc<Feeds>>,
    /// Says where requests would go, if that is wanted.
    pub explainer: Option<Arc<ByCache>>,
    /// Knows where requests would go, if caches are looked at.
    pub by_cache: Option<Arc<ByCache>>,
    /// The way to daemons.
    pub hints: Hints,
    /// The way to workers.
    pub relay: Relay,
    /// The figures.
    pub meters: Arc<Meters>,
    /// How well the workers are known.
    pub standing: Arc<Standing>,
    /// How far the process has come.
    pub phase: phase::Current,
    /// Takes in the bodies of requests.
    pub bodies: Bodies,
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
        .route("/v1/admin/cache-view/{worker_id}", get(admin::cache_view))
        .route("/v1/cache/prewarm", post(prewarm::answer))
        .route("/v1/admin/explain", post(admin::explain))
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
