//! Workers that were named at start: always there as far as discovery goes; breakers see to the rest.

use std::sync::Arc;
use std::time::Instant;

use hyper::Uri;
use router_core::record::WorkerRecord;
use serde_json::json;

use super::Tools;
use crate::flags::FixedWorker;
use crate::fleet::Origin;
use crate::phase::{self, Phase};

pub(super) async fn run(workers: &[FixedWorker], mut tools: Tools) {
    let records = workers.iter().filter_map(record).collect();
    tools.keeper.publish(records, Origin::Named, Instant::now());
    let _was_never_known_before = tools.standing.confirm();
    phase::reached(&mut tools.phase, Phase::Closing).await;
}

/// The record that such a worker would register, as far as it is known.
fn record(worker: &FixedWorker) -> Option<Arc<WorkerRecord>> {
    let uri: Uri = worker.url.parse().ok()?;
    let id = uri.authority()?.as_str();
    let raw = json!({"worker_id": id, "url": worker.url, "model_name": worker.model});
    WorkerRecord::parse(raw.to_string().as_bytes()).ok().map(Arc::new)
}
