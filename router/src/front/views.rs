//! Who is there and what they serve.

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::Shared;
use crate::breaker;
use crate::fleet::Worker;

/// The models as OpenAI lists them.
pub(super) async fn models(State(app): State<Shared>) -> Json<Value> {
    let fleet = app.fleet.load();
    let created = app.standing.began_unix_s();
    let model =
        |id: &str| json!({"id": id, "object": "model", "created": created, "owned_by": "infera"});
    Json(json!({"object": "list", "data": fleet.models().map(model).collect::<Vec<_>>()}))
}

/// Each worker's record as it came, and what the router knows beside it.
pub(super) async fn workers(State(app): State<Shared>) -> Json<Value> {
    let fleet = app.fleet.load();
    Json(json!({"workers": fleet.workers().map(|worker| view(worker)).collect::<Vec<_>>()}))
}

fn view(worker: &Worker) -> Value {
    let mut view = serde_json::to_value(&*worker.record).unwrap_or_default();
    if let Some(fields) = view.as_object_mut() {
        let life = &worker.life;
        let router = json!({
            "breaker": match life.breaker_state() {
                breaker::State::Closed => "closed",
                breaker::State::HalfOpen => "half-open",
                breaker::State::Open => "open",
            },
            "breaker_trips": life.breaker_trips(),
            "in_flight": life.in_flight(),
            "picks": life.picks(),
        });
        fields.insert("router".to_owned(), router);
    }
    view
}
