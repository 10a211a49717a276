//! `POST /v1/quarantine/release?session=`: an operator vouches that the process of a closed session
//! is gone; without `session`, of all closed sessions.

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use kvd_proto::ids::SessionId;
use kvd_store::{Effects, Input, Outcome};
use serde::{Deserialize, Serialize};

use super::answer::{Refused, Shared, with};

/// The query string.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    session: Option<u64>,
}

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Released {
    released_bytes: u64,
}

/// Releases, unless the session is still connected.
pub(super) async fn answer(
    State(daemon): State<Shared>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Released>, Refused> {
    let session = asked?.0.session.map(SessionId);
    let connected = |id: SessionId| daemon.registry.facts().iter().any(|facts| facts.id == id);
    if let Some(id) = session.filter(|id| connected(*id)) {
        let message = format!("session {} is connected; only a closed one can be released", id.0);
        return Err(Refused::conflict(message));
    }
    let outcome = with(daemon, move |daemon| {
        let mut effects = Effects::default();
        daemon.brain.apply(Input::ReleaseQuarantine { session }, &mut effects);
        effects.outcome
    })
    .await?;
    let released_bytes = match outcome {
        Outcome::QuarantineReleased { bytes } => bytes,
        other => unreachable!("a release of quarantine answered {other:?}"),
    };
    tracing::warn!(session = session.map(|id| id.0), released_bytes, "quarantine released by hand");
    Ok(Json(Released { released_bytes }))
}
