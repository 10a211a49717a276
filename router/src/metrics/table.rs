//! Every metric: name, type, labels, help, and how it is read. Names are an interface: they are not changed or
//! reused. Those without `_router_` are names that dashboards know already.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kvd_proto::events::CacheTier;
use router_core::index;
use router_core::record::DisaggMode;

use super::samples::Samples;
use crate::breaker;
use crate::feed::Status;
use crate::fleet::{Fleet, Life};
use crate::front::App;
use crate::meters::{Counters, Heard, Label, Outcome};

/// Prometheus types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One metric.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) labels: &'static [&'static str],
    pub(super) help: &'static str,
    pub(super) read: fn(&App, &Fleet, &mut Samples<'_>),
}

/// All metrics, in the order of the page.
pub(super) static METRICS: [Metric; 38] = [
    Metric {
        name: "infera_router_build_info",
        kind: Kind::Gauge,
        labels: &["version"],
        help: "1, labelled with the version that runs.",
        read: |_, _, out| out.add(&[env!("CARGO_PKG_VERSION")], 1),
    },
    Metric {
        name: "infera_router_uptime_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "Seconds since the start.",
        read: |app, _, out| out.add(&[], app.meters.started.elapsed().as_secs()),
    },
    Metric {
        name: "infera_router_active_workers",
        kind: Kind::Gauge,
        labels: &[],
        help: "Workers that say that they are active.",
        read: |_, fleet, out| out.add(&[], fleet.active(None)),
    },
    Metric {
        name: "infera_active_workers",
        kind: Kind::Gauge,
        labels: &["disagg_mode"],
        help: "The same, by their part of a request.",
        read: |_, fleet, out| {
            for (mode, name) in [
                (DisaggMode::Mixed, "mixed"),
                (DisaggMode::Prefill, "prefill"),
                (DisaggMode::Decode, "decode"),
            ] {
                out.add(&[name], fleet.active(Some(mode)));
            }
        },
    },
    Metric {
        name: "infera_router_discovery_stale_seconds",
        kind: Kind::Gauge,
        labels: &[],
        help: "How long etcd has not been heard of; 0 while it is.",
        read: |app, _, out| out.add(&[], app.standing.stale_for().as_secs_f64()),
    },
    Metric {
        name: "infera_router_discovery_losses_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Times that etcd was lost.",
        read: |app, _, out| out.add(&[], app.standing.losses()),
    },
    Metric {
        name: "infera_router_discovery_bad_records_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Records of workers that could not be used; the log names them.",
        read: |app, _, out| out.add(&[], load(&app.meters.bad_records)),
    },
    Metric {
        name: "infera_request_inflight",
        kind: Kind::Gauge,
        labels: &["router"],
        help: "Requests whose last byte has not gone out.",
        read: |app, _, out| out.add(&["mixed"], load(&app.meters.in_flight)),
    },
    Metric {
        name: "infera_request_duration_seconds",
        kind: Kind::Histogram,
        labels: &["router", "outcome"],
        help: "Time to the last byte. error: it broke off, or the client left.",
        read: |app, _, out| {
            for outcome in Outcome::ALL {
                out.histogram(&["mixed", outcome.as_str()], &app.meters.durations[outcome.index()]);
            }
        },
    },
    Metric {
        name: "infera_router_ttft_seconds",
        kind: Kind::Histogram,
        labels: &[],
        help: "Time to the first byte of a worker's answer.",
        read: |app, _, out| out.histogram(&[], &app.meters.first_bytes),
    },
    Metric {
        name: "infera_router_pick_seconds",
        kind: Kind::Histogram,
        labels: &[],
        help: "Time that choosing a worker took.",
        read: |app, _, out| out.histogram(&[], &app.meters.picks),
    },
    Metric {
        name: "infera_router_pick_request_blocks",
        kind: Kind::Histogram,
        labels: &["role"],
        help: "Whole blocks of the prompts that workers were chosen for by cache.",
        read: |app, _, out| out.numbers(&["mixed"], &app.meters.pick_blocks),
    },
    Metric {
        name: "infera_router_pick_cache_hits",
        kind: Kind::Histogram,
        labels: &["role"],
        help: "Those of them that the chosen worker is known to have on its device, from the first one on.",
        read: |app, _, out| out.numbers(&["mixed"], &app.meters.pick_hits),
    },
    Metric {
        name: "infera_router_picks_total",
        kind: Kind::Counter,
        labels: &["role", "worker_id"],
        help: "Requests sent to a worker.",
        read: |_, fleet, out| {
            for worker in fleet.workers() {
                out.add(&["mixed", &worker.record.worker_id], worker.life.picks());
            }
        },
    },
    Metric {
        name: "infera_router_worker_in_flight",
        kind: Kind::Gauge,
        labels: &["worker_id"],
        help: "Requests at a worker whose last byte has not gone out.",
        read: |_, fleet, out| each_worker(fleet, out, |life| life.in_flight().into()),
    },
    Metric {
        name: "infera_router_worker_breaker_state",
        kind: Kind::Gauge,
        labels: &["worker_id"],
        help: "0: requests go through; 1: one may try; 2: the worker is left alone.",
        read: |_, fleet, out| {
            each_worker(fleet, out, |life| match life.breaker_state() {
                breaker::State::Closed => 0,
                breaker::State::HalfOpen => 1,
                breaker::State::Open => 2,
            });
        },
    },
    Metric {
        name: "infera_router_worker_breaker_trips_total",
        kind: Kind::Counter,
        labels: &["worker_id"],
        help: "Times that a worker was begun to be left alone.",
        read: |_, fleet, out| each_worker(fleet, out, Life::breaker_trips),
    },
    Metric {
        name: "infera_router_retries_total",
        kind: Kind::Counter,
        labels: &["reason"],
        help: "Requests sent to another worker, by what became of them at the one before.",
        read: |app, _, out| counters(out, &app.meters.retries),
    },
    Metric {
        name: "infera_router_interrupted_total",
        kind: Kind::Counter,
        labels: &["reason"],
        help: "Answers that had begun and were not finished. Clients that leave are not counted.",
        read: |app, _, out| counters(out, &app.meters.interruptions),
    },
    Metric {
        name: "infera_router_silences_total",
        kind: Kind::Counter,
        labels: &["phase"],
        help: "Long silences of workers that the log tells of, before and after the first byte.",
        read: |app, _, out| counters(out, &app.meters.silences),
    },
    Metric {
        name: "infera_cache_control_seen_total",
        kind: Kind::Counter,
        labels: &["retention"],
        help: "Requests that say how long their blocks are to be kept.",
        read: |app, _, out| counters(out, &app.meters.retention_seen),
    },
    Metric {
        name: "infera_cache_locality_skipped_total",
        kind: Kind::Counter,
        labels: &["reason"],
        help: "Requests sent without regard to what is cached, by why.",
        read: |app, _, out| counters(out, &app.meters.locality_skipped),
    },
    Metric {
        name: "infera_router_tokenize_seconds",
        kind: Kind::Histogram,
        labels: &[],
        help: "Time that the tokens of a prompt took.",
        read: |app, _, out| out.histogram(&[], &app.meters.tokens),
    },
    Metric {
        name: "infera_router_credit_tokens_total",
        kind: Kind::Counter,
        labels: &["tier"],
        help: "Tokens of prompts that were expected to be cached where the requests went.",
        read: |app, _, out| counters(out, &app.meters.credit_tokens),
    },
    Metric {
        name: "infera_router_cached_tokens_observed_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Tokens of prompts that workers say were cached.",
        read: |app, _, out| out.add(&[], load(&app.meters.cached_tokens)),
    },
    Metric {
        name: "infera_router_ettft_ratio",
        kind: Kind::Gauge,
        labels: &["worker_id"],
        help: "What times to the first token are of the expected ones, 0.5 to 2; 1 until a worker has answered.",
        read: |app, fleet, out| {
            for worker in fleet.workers().filter(|_| app.feeds.is_some()) {
                out.add(&[&worker.record.worker_id], worker.life.speed().gamma);
            }
        },
    },
    Metric {
        name: "infera_router_render_parity",
        kind: Kind::Gauge,
        labels: &["worker_id", "model"],
        help: "1 if the worker makes the router's tokens, as far as is known; 0 if it has another tokenizer, or three answers in a row counted other numbers of tokens in prompts: it then gets no credit.",
        read: |app, fleet, out| {
            for worker in fleet.workers().filter(|_| app.feeds.is_some()) {
                let labels = [&*worker.record.worker_id, &*worker.record.model_name];
                out.add(&labels, u8::from(worker.life.has_same_tokens()));
            }
        },
    },
    Metric {
        name: "infera_router_kv_events_total",
        kind: Kind::Counter,
        labels: &["source", "type"],
        help: "Events that workers and the daemons of their hosts published.",
        read: |app, _, out| {
            for (source, heard) in publishers(app) {
                for kind in [Heard::Stored, Heard::Removed, Heard::Cleared] {
                    out.add(&[source, kind.as_str()], heard.get(kind));
                }
            }
        },
    },
    Metric {
        name: "infera_router_kv_gaps_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Times that messages of a publisher were missing.",
        read: |app, _, out| heard(app, Heard::Gap, out),
    },
    Metric {
        name: "infera_router_kv_decode_errors_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Messages and events that could not be read.",
        read: |app, _, out| heard(app, Heard::Malformed, out),
    },
    Metric {
        name: "infera_router_kv_unknown_medium_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Events that name a medium without a meaning; they give no credit.",
        read: |app, _, out| heard(app, Heard::UnknownMedium, out),
    },
    Metric {
        name: "infera_router_kv_digest_mismatch_total",
        kind: Kind::Counter,
        labels: &[],
        help: "Times that what is known of a daemon was not what it has; it is then read anew.",
        read: |app, _, out| heard(app, Heard::DigestMismatch, out),
    },
    Metric {
        name: "infera_router_kv_feeds",
        kind: Kind::Gauge,
        labels: &["source", "state"],
        help: "Publishers that are listened to: connected or not, and doubted if something may have been missed.",
        read: |app, _, out| {
            let Some(listening) = app.feeds.as_ref().map(|feeds| feeds.listening()) else { return };
            let engines: Vec<&Arc<Status>> = listening.engines.values().collect();
            let hosts: Vec<&Arc<Status>> = listening.hosts.values().collect();
            for (source, all) in [("engine", engines), ("host", hosts)] {
                let connected = all.iter().filter(|feed| feed.is_connected()).count();
                let doubted = all.iter().filter(|feed| feed.is_doubted()).count();
                out.add(&[source, "connected"], connected);
                out.add(&[source, "disconnected"], all.len() - connected);
                out.add(&[source, "doubted"], doubted);
            }
        },
    },
    Metric {
        name: "infera_router_index_entries",
        kind: Kind::Gauge,
        labels: &["tier"],
        help: "Blocks and chunks that are known to be cached, over all who have them.",
        read: |app, _, out| {
            let Some(feeds) = &app.feeds else { return };
            for tier in CacheTier::ALL {
                out.add(&[tier.as_str()], feeds.entries(tier));
            }
        },
    },
    Metric {
        name: "infera_router_lineage",
        kind: Kind::Gauge,
        labels: &["mode"],
        help: "Places of hosts' daemons with known blocks, by what these are called: by the router's hashes, SGLang's pages, vLLM's digests, or keys of chunks alone.",
        read: |app, _, out| {
            let Some(feeds) = &app.feeds else { return };
            let roster = feeds.index.roster();
            for (kind, mode) in [
                (index::Kind::Router, "router"),
                (index::Kind::Sglang, "sglang"),
                (index::Kind::Vllm, "vllm"),
                (index::Kind::ChunkKey, "key"),
            ] {
                let lower = roster.holders.iter().map(|(_, holder)| holder);
                let is_meant = |holder: &&index::Holder| {
                    holder.tier != CacheTier::Device && holder.kind == kind
                };
                out.add(&[mode], lower.filter(is_meant).count());
            }
        },
    },
    Metric {
        name: "infera_router_prefetch_total",
        kind: Kind::Counter,
        labels: &["result"],
        help: "Hints to daemons, which blocks will be asked for.",
        read: |app, _, out| counters(out, &app.meters.prefetches),
    },
    Metric {
        name: "infera_policy_active_blocks",
        kind: Kind::Gauge,
        labels: &["worker_id"],
        help: "Blocks of prompts in flight at a worker. --score reference counts those that several share once.",
        read: |app, fleet, out| {
            for worker in fleet.workers().filter(|_| app.feeds.is_some()) {
                out.add(&[&worker.record.worker_id], worker.life.blocks());
            }
        },
    },
    Metric {
        name: "infera_policy_cache_view_size",
        kind: Kind::Gauge,
        labels: &["worker_id"],
        help: "Blocks known to be on a worker's device. A rank is WORKER#dpN.",
        read: |app, fleet, out| {
            let Some(feeds) = &app.feeds else { return };
            let views = feeds.device_blocks();
            for worker in fleet.workers() {
                let ranks = worker.record.ranks();
                for rank in ranks.clone().unwrap_or(0..1) {
                    let id = &worker.record.worker_id;
                    let key = if ranks.is_some() { format!("{id}#dp{rank}") } else { id.clone() };
                    let blocks = views.get(&(id.as_str().into(), rank));
                    out.add(&[&key], blocks.copied().unwrap_or(0));
                }
            }
        },
    },
];

fn publishers(app: &App) -> [(&'static str, &Counters<Heard>); 2] {
    [("engine", &app.meters.engine_events), ("host", &app.meters.host_events)]
}

fn heard(app: &App, what: Heard, out: &mut Samples<'_>) {
    let counts = publishers(app).map(|(_, heard)| heard.get(what));
    out.add(&[], counts.iter().sum::<u64>());
}

fn load(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn each_worker(fleet: &Fleet, out: &mut Samples<'_>, read: impl Fn(&Life) -> u64) {
    for worker in fleet.workers() {
        out.add(&[&worker.record.worker_id], read(&worker.life));
    }
}

fn counters<L: Label>(out: &mut Samples<'_>, counters: &Counters<L>) {
    for value in L::ALL {
        out.add(&[value.as_str()], counters.get(*value));
    }
}
