//! What operators ask: what is known of a worker's cache, and where a request would go and why.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, Request, State};
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use crate::refusal::Refusal;

const NOT_BY_CACHE: &str = "the router does not look at caches: --router-policy is not kv-aware";

/// Which rank is meant.
#[derive(Debug, Deserialize)]
pub(super) struct Rank {
    dp_rank: Option<u32>,
}

/// What is known of the cache of a worker, or of one of its ranks.
pub(super) async fn cache_view(
    State(app): State<Shared>,
    id: Result<Path<String>, PathRejection>,
    rank: Result<Query<Rank>, QueryRejection>,
) -> Result<Json<Value>, Refusal> {
    let Path(id) = id.map_err(|rejected| Refusal::BadRequest(rejected.body_text()))?;
    let rank = rank.map_err(|rejected| Refusal::BadRequest(rejected.body_text()));
    let Query(Rank { dp_rank }) = rank?;
    let feeds = app.feeds.as_ref().ok_or(Refusal::NotServed(NOT_BY_CACHE))?;
    let fleet = app.fleet.load();
    if !fleet.workers().any(|worker| worker.record.worker_id == id) {
        return Err(Refusal::NotFound(id));
    }
    let tiers: BTreeMap<&str, u64> = feeds
        .blocks_of(&id, dp_rank.unwrap_or(0))
        .map(|(tier, blocks)| (tier.as_str(), blocks))
        .collect();
    let block_count = tiers.get("device").copied().unwrap_or(0);
    let listening = feeds.listening();
    let feed = listening.engines.get(&(id.clone(), dp_rank.unwrap_or(0)));
    Ok(Json(json!({
        "worker_id": id,
        "dp_rank": dp_rank,
        "block_count": block_count,
        "tiers": tiers,
        "block_size": feed.and_then(|feed| feed.block_size()),
        "is_connected": feed.is_some_and(|feed| feed.is_connected()),
        "is_doubted": feed.is_some_and(|feed| feed.is_doubted()),
    })))
}

/// Where a request with this body would go, with the terms of every target. Nothing is sent.
pub(super) async fn explain(
    State(app): State<Shared>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let explainer = app.explainer.as_ref().ok_or(Refusal::NotServed(
        "requests are explained with --router-policy kv-aware and --enable-admin true only",
    ))?;
    let (_, body) = app.bodies.take(request).await?;
    let fields = app.relay.read(&body).await?;
    explainer.explain(&body, &fields).await.map(Json)
}
