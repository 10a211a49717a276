//! `POST /v1/drain?deadline_ms=`: begin to write to disk what only memory holds, or join the drain
//! that runs. `GET /v1/drain`: how far it is.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use serde::Deserialize;

use super::answer::{Refused, Shared, with};
use crate::drain::Progress;

/// Without a deadline in the query.
const DEADLINE_MS: u64 = 60_000;
/// Longest deadline: a day.
const DEADLINE_MS_MAX: u64 = 86_400_000;

/// The query string.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    deadline_ms: Option<u64>,
}

/// Begins.
pub(super) async fn begin(
    State(daemon): State<Shared>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Progress>, Refused> {
    let deadline_ms = asked?.0.deadline_ms.unwrap_or(DEADLINE_MS);
    if deadline_ms > DEADLINE_MS_MAX {
        let message = format!("deadline_ms: {deadline_ms}; allowed: up to {DEADLINE_MS_MAX}");
        return Err(Refused::bad_request(message));
    }
    check(&daemon)?;
    let patience = Duration::from_millis(deadline_ms);
    with(daemon, move |daemon| daemon.drain.begin(daemon, patience)).await.map(Json)
}

/// Tells.
pub(super) async fn progress(State(daemon): State<Shared>) -> Result<Json<Progress>, Refused> {
    check(&daemon)?;
    with(daemon, |daemon| daemon.drain.progress()).await.map(Json)
}

fn check(daemon: &Shared) -> Result<(), Refused> {
    if daemon.devices.is_empty() {
        return Err(Refused::conflict("there is no disk tier: start the daemon with --long-path"));
    }
    Ok(())
}
