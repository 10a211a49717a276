//! `GET /v1/stats`: all figures as one JSON object.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_store::{Adopted, DiskStats, SpaceStats, Stats, Totals};
use serde_json::{Map, Value, json};

use super::answer::{Refused, Shared, with};
use super::devices;
use crate::daemon::Daemon;
use crate::disk_figures::DISK_FIGURES;
use crate::succession::estate::Origin;

/// Answers with all figures.
pub(super) async fn answer(State(daemon): State<Shared>) -> Result<Json<Value>, Refused> {
    with(daemon, stats).await.map(Json)
}

fn stats(daemon: &Daemon) -> Value {
    let stats = daemon.brain.inspect(|store, _now| store.stats());
    let status = &daemon.status;
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "server_id": status.server_id,
        "epoch": status.epoch,
        "uptime_seconds": status.started.elapsed().as_secs(),
        "succession": succession(&daemon.origin),
        "draining": status.draining.load(Ordering::Relaxed),
        "degraded": devices::degradations(daemon),
        "totals": totals(&stats.totals),
        "misses_by_reason": by_label(
            MissReason::ALL.iter().map(|reason| reason.as_str()),
            stats.totals.misses_by_reason_total,
        ),
        "evictions_by_class": by_label(
            Retention::ALL.iter().map(|class| class.as_str()),
            stats.totals.evictions_by_class_total,
        ),
        "refusals": by_label(
            Refusal::ALL.iter().map(|refusal| refusal.as_str()),
            stats.totals.refusals_total,
        ),
        "tiers": {"host": {
            "entries": stats.entries,
            "payload_bytes": stats.host_bytes,
            "budget_bytes": daemon.settings.memory.budget_bytes,
        }},
        "disk": disk(&stats.disk),
        "devices": devices::all(daemon),
        "memory": memory(daemon, &stats.space),
        "held": held(&stats),
        "sessions_connected": daemon.registry.len(),
        "namespaces": stats.namespaces,
        "lineage_bytes": stats.lineage_bytes,
    })
}

/// What this life began with.
fn succession(origin: &Origin) -> Value {
    let Adopted { rows, bytes, rights, .. } = &origin.adopted;
    json!({
        "generation": origin.generation,
        "adopted_rows": rows,
        "adopted_bytes": bytes,
        "adopted_rights": rights,
        "adopted_sessions": origin.adopted.sessions.len(),
        "dropped_rows": by_label(
            Origin::DROP_REASONS.into_iter(),
            origin.dropped_rows(),
        ),
        "refused": origin.refused,
        "seconds": origin.took.as_secs_f64(),
    })
}

fn totals(totals: &Totals) -> Value {
    json!({
        "gets": totals.gets_total,
        "hits": totals.hits_total,
        "misses": totals.misses_total,
        "sets": totals.sets_total,
        "evictions": totals.evictions_total,
        "expirations": totals.expirations_total,
        "cleared": totals.cleared_total,
        "promises": totals.promises_total,
        "promises_refused": totals.promises_refused_total,
        "stale_releases": totals.stale_releases_total,
        "hand_outs_refused": totals.hand_outs_refused_total,
        "full_scans": totals.full_scans_total,
    })
}

fn memory(daemon: &Daemon, space: &SpaceStats) -> Value {
    json!({
        "arena_bytes": space.arena_bytes,
        "arena_ready_bytes": space.ready_bytes,
        "shared": daemon.settings.memory.shared,
        "page_kind": daemon.arena.page_kind().as_str(),
        "pinned": daemon.arena.is_pinned(),
        "free_bytes": space.free_bytes,
        "ticketed_bytes": space.ticketed_bytes,
        "stored_bytes": space.stored_bytes,
        "orphaned_bytes": space.orphaned_bytes,
        "payload_bytes": space.payload_bytes,
        "overhead_bytes": space.overhead_bytes(),
        "reserve_bytes": space.reserve_bytes,
        "holes": space.holes,
        "largest_hole_bytes": space.largest_hole_bytes,
        "staging_bytes": daemon.staging.used_bytes(),
    })
}

/// The tier below memory, all devices together.
fn disk(disk: &DiskStats) -> Value {
    let pairs = DISK_FIGURES.iter().map(|figure| (figure.bare_name(), (figure.read)(disk)));
    let pairs = pairs.map(|(name, value)| (name.to_owned(), Value::from(value)));
    Value::Object(pairs.collect::<Map<_, _>>())
}

/// What sessions hold at this moment.
fn held(stats: &Stats) -> Value {
    json!({
        "sessions": stats.sessions,
        "leases": stats.leases,
        "hand_outs": stats.hand_outs,
        "tickets": stats.tickets,
        "leased_bytes": stats.leased_bytes,
        "promised_rows": stats.promised_rows,
        "promised_bytes": stats.promised_bytes,
        "quarantined_rights": stats.quarantined_rights,
        "quarantined_bytes": stats.quarantined_bytes,
    })
}

fn by_label(
    labels: impl Iterator<Item = &'static str>,
    counts: impl IntoIterator<Item = u64>,
) -> Value {
    let pairs = labels.zip(counts).map(|(label, count)| (label.to_owned(), Value::from(count)));
    Value::Object(pairs.collect::<Map<_, _>>())
}
