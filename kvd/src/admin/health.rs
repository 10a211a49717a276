//! `/healthz`: the process lives and its lock can be had. `/readyz`: engines can connect; the body
//! says what the daemon does without.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use tokio::time::timeout;

use super::answer::{Shared, with};
use super::devices;

/// A store whose lock can't be had for this long is stuck: sessions hold it for microseconds.
const LOCK_PATIENCE: Duration = Duration::from_secs(1);

/// `GET /healthz`: 200, or 503 when the store is stuck.
pub(super) async fn healthz(State(daemon): State<Shared>) -> (StatusCode, &'static str) {
    let locked = with(daemon, |daemon| daemon.brain.inspect(|_store, _now| ()));
    match timeout(LOCK_PATIENCE, locked).await {
        Ok(Ok(())) => (StatusCode::OK, "ok\n"),
        Ok(Err(_)) | Err(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, "the store's lock could not be had within 1 s\n")
        }
    }
}

/// Body of `/readyz`.
#[derive(Debug, Serialize)]
pub(super) struct Readiness {
    ready: bool,
    /// Why not.
    reasons: Vec<&'static str>,
    /// What the daemon does without; it serves all the same.
    degraded: Vec<String>,
    /// Arena bytes that can hold blocks already, and all.
    arena_ready_bytes: u64,
    arena_bytes: u64,
}

/// `GET /readyz`: 200 when engines can connect, else 503.
pub(super) async fn readyz(State(daemon): State<Shared>) -> (StatusCode, Json<Readiness>) {
    let status = &daemon.status;
    let ready = status.is_ready();
    let mut reasons = Vec::new();
    if status.draining.load(Ordering::Relaxed) {
        reasons.push("draining");
    } else if !ready {
        reasons.push("starting");
    }
    // A store that is stuck must not make this answer late: what is known without it is enough then.
    let all = with(Arc::clone(&daemon), devices::degradations);
    let degraded = match timeout(LOCK_PATIENCE, all).await {
        Ok(Ok(all)) => all,
        Ok(Err(_)) | Err(_) => status.notes(),
    };
    let readiness = Readiness {
        ready,
        reasons,
        degraded,
        arena_ready_bytes: daemon.warm_up.ready_bytes(),
        arena_bytes: daemon.arena.bytes(),
    };
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(readiness))
}
