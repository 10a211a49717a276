//! Every metric: name, type, help, and how it is read. Names are an interface: they are not changed
//! or reused.

use std::sync::atomic::Ordering;

use super::figures::{Figures, Labelled, each, labelled, load};
use crate::succession::estate::Origin;

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

/// How a metric gets its samples.
#[derive(Debug, Clone, Copy)]
pub(super) enum Read {
    /// One sample without label.
    One(fn(&Figures<'_>) -> u64),
    /// One sample for each value of the named label.
    Labelled(&'static str, fn(&Figures<'_>) -> Labelled),
    /// The request histograms, one for each op.
    Durations,
}

/// One metric.
#[derive(Debug)]
pub(super) struct Metric {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) help: &'static str,
    pub(super) read: Read,
}

const fn counter(name: &'static str, help: &'static str, read: fn(&Figures<'_>) -> u64) -> Metric {
    Metric { name, kind: Kind::Counter, help, read: Read::One(read) }
}

const fn counters(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    read: fn(&Figures<'_>) -> Labelled,
) -> Metric {
    Metric { name, kind: Kind::Counter, help, read: Read::Labelled(label, read) }
}

const fn gauge(name: &'static str, help: &'static str, read: fn(&Figures<'_>) -> u64) -> Metric {
    Metric { name, kind: Kind::Gauge, help, read: Read::One(read) }
}

const fn gauges(
    name: &'static str,
    help: &'static str,
    label: &'static str,
    read: fn(&Figures<'_>) -> Labelled,
) -> Metric {
    Metric { name, kind: Kind::Gauge, help, read: Read::Labelled(label, read) }
}

/// All metrics but the figures of the disk tier, in the order of the page.
pub(super) static METRICS: [Metric; 86] = [
    // The daemon.
    gauges("infera_kvd_build_info", "1, labelled with the version that runs.", "version", |_| {
        labelled([(env!("CARGO_PKG_VERSION"), 1)])
    }),
    gauge("infera_kvd_epoch", "Number of this incarnation; it changes with every start.", |f| {
        f.daemon.status.epoch
    }),
    gauge("infera_kvd_uptime_seconds", "Seconds since the start.", |f| {
        f.daemon.status.started.elapsed().as_secs()
    }),
    gauge("infera_kvd_ready", "1 while engines can connect.", |f| {
        f.daemon.status.is_ready().into()
    }),
    gauge("infera_kvd_draining", "1 once the daemon was told to end.", |f| {
        f.daemon.status.draining.load(Ordering::Relaxed).into()
    }),
    gauge("infera_kvd_degradations", "Things the daemon does without; /readyz names them.", |f| {
        crate::admin::devices::degradations(f.daemon).len() as u64
    }),
    // What this life began with.
    gauge(
        "infera_kvd_arena_generation",
        "Lives of the daemon that have served this arena, this one included.",
        |f| f.daemon.origin.generation,
    ),
    gauge("infera_kvd_adopted_rows", "Rows taken over from the life before.", |f| {
        f.daemon.origin.adopted.rows
    }),
    gauge("infera_kvd_adopted_bytes", "Their payload bytes.", |f| f.daemon.origin.adopted.bytes),
    gauges(
        "infera_kvd_adoption_dropped_rows",
        "Rows of the life before that were not taken over.",
        "reason",
        |f| {
            let origin = &f.daemon.origin;
            labelled(Origin::DROP_REASONS.into_iter().zip(origin.dropped_rows()))
        },
    ),
    gauge(
        "infera_kvd_adoption_refused",
        "1 if the life before left an arena that could not be taken over; the log says why.",
        |f| f.daemon.origin.refused.into(),
    ),
    gauge("infera_kvd_adoption_microseconds", "Microseconds that taking over took.", |f| {
        u64::try_from(f.daemon.origin.took.as_micros()).unwrap_or(u64::MAX)
    }),
    counters(
        "infera_kvd_handovers_total",
        "Handovers between two running daemons: this life began with one, or went on after one that was \
         refused or abandoned.",
        "outcome",
        |f| each(&f.daemon.meters.handovers),
    ),
    gauge(
        "infera_kvd_sessions_taken_over",
        "Connections that a running daemon handed over to this one.",
        |f| load(&f.daemon.meters.sessions_taken_over),
    ),
    gauge(
        "infera_kvd_sessions_left_behind",
        "Connections that were closed because they could not be handed over then.",
        |f| load(&f.daemon.meters.sessions_left_behind),
    ),
    // Look-ups and stores.
    counter("infera_kvd_gets_total", "Keys fetched.", |f| f.stats.totals.gets_total),
    counter("infera_kvd_hits_total", "Keys fetched and found.", |f| f.stats.totals.hits_total),
    counters("infera_kvd_misses_total", "Keys fetched and not found.", "reason", |f| f.misses()),
    counter("infera_kvd_sets_total", "Values offered by SET, and accepted commits.", |f| {
        f.stats.totals.sets_total
    }),
    counters(
        "infera_kvd_refusals_total",
        "Reserves, commits, cancels and SETs that were refused.",
        "reason",
        |f| f.refusals(),
    ),
    counters(
        "infera_kvd_evictions_total",
        "Rows dropped to make room, by their retention class.",
        "class",
        |f| f.evictions(),
    ),
    counter("infera_kvd_expirations_total", "Rows whose time to live ended.", |f| {
        f.stats.totals.expirations_total
    }),
    counter("infera_kvd_cleared_rows_total", "Rows removed by clears.", |f| {
        f.stats.totals.cleared_total
    }),
    counter("infera_kvd_promises_total", "Rows reported present and kept for it.", |f| {
        f.stats.totals.promises_total
    }),
    counter(
        "infera_kvd_promises_refused_total",
        "Present keys reported missing because no more may be promised.",
        |f| f.stats.totals.promises_refused_total,
    ),
    counter(
        "infera_kvd_stale_releases_total",
        "Releases of leases that are unknown, finished or another session's.",
        |f| f.stats.totals.stale_releases_total,
    ),
    counter(
        "infera_kvd_hand_outs_refused_total",
        "Protocol-1 hits answered inline because the session was at a cap.",
        |f| f.stats.totals.hand_outs_refused_total,
    ),
    counter(
        "infera_kvd_full_scans_total",
        "Searches for room that had to look at the whole arena.",
        |f| f.stats.totals.full_scans_total,
    ),
    // What is stored.
    gauge("infera_kvd_entries", "Rows in host memory.", |f| f.stats.entries),
    gauge("infera_kvd_host_bytes", "Payload bytes of the rows in host memory.", |f| {
        f.stats.host_bytes
    }),
    gauge("infera_kvd_budget_bytes", "Payload bytes that may be kept in host memory.", |f| {
        f.daemon.settings.memory.budget_bytes
    }),
    gauge("infera_kvd_lineage_bytes", "Bytes of lineage kept with the rows.", |f| {
        f.stats.lineage_bytes
    }),
    gauge("infera_kvd_namespaces", "Pairs of model and compatibility key with rows.", |f| {
        f.stats.namespaces
    }),
    gauge("infera_kvd_promised_rows", "Rows that promises keep.", |f| f.stats.promised_rows),
    gauge("infera_kvd_promised_bytes", "Arena bytes that promises keep.", |f| {
        f.stats.promised_bytes
    }),
    // The arena.
    gauge("infera_kvd_arena_bytes", "Size of the arena.", |f| f.daemon.arena.bytes()),
    gauge(
        "infera_kvd_arena_ready_bytes",
        "Arena bytes touched, so that they can hold blocks.",
        |f| f.stats.space.ready_bytes,
    ),
    gauges(
        "infera_kvd_arena_pages_info",
        "1, labelled with the kind of page that most of the arena is on.",
        "kind",
        |f| labelled([(f.daemon.arena.page_kind().as_str(), 1)]),
    ),
    gauge("infera_kvd_arena_pinned", "1 while all touched arena pages are locked.", |f| {
        f.daemon.arena.is_pinned().into()
    }),
    gauges("infera_kvd_arena_space_bytes", "Ready arena bytes by use.", "state", |f| f.space()),
    gauge("infera_kvd_arena_payload_bytes", "Part of the stored bytes that is payload.", |f| {
        f.stats.space.payload_bytes
    }),
    gauge("infera_kvd_arena_reserve_bytes", "Free bytes that eviction keeps free.", |f| {
        f.stats.space.reserve_bytes
    }),
    gauge("infera_kvd_arena_holes", "Free ranges of the arena.", |f| f.stats.space.holes),
    gauge("infera_kvd_arena_largest_hole_bytes", "Largest free range of the arena.", |f| {
        f.stats.space.largest_hole_bytes
    }),
    // What sessions hold.
    gauge("infera_kvd_sessions_connected", "Connected engine sessions.", |f| {
        f.daemon.registry.len() as u64
    }),
    gauge("infera_kvd_leases", "Read leases held.", |f| f.stats.leases),
    gauge("infera_kvd_hand_outs", "Hand-outs to protocol-1 sessions.", |f| f.stats.hand_outs),
    gauge("infera_kvd_tickets", "Write tickets held.", |f| f.stats.tickets),
    gauge("infera_kvd_leased_bytes", "Arena bytes that leases and hand-outs keep.", |f| {
        f.stats.leased_bytes
    }),
    gauge(
        "infera_kvd_quarantined_bytes",
        "Arena bytes of closed sessions whose process may live.",
        |f| f.stats.quarantined_bytes,
    ),
    gauge("infera_kvd_quarantined_rights", "Leases and tickets of such sessions.", |f| {
        f.stats.quarantined_rights
    }),
    // The disk tier; its own figures follow at the end of the page.
    gauges("infera_kvd_devices", "Directories of the disk tier by health.", "health", |f| {
        f.devices_by_health()
    }),
    gauges("infera_kvd_device_entries", "Blocks on each directory.", "path", |f| {
        f.by_device(|_, info| info.entries)
    }),
    gauges("infera_kvd_device_payload_bytes", "Payload bytes of those blocks.", "path", |f| {
        f.by_device(|_, info| info.payload_bytes)
    }),
    gauges("infera_kvd_device_capacity_bytes", "Bytes of the containers so far.", "path", |f| {
        f.by_device(|_, info| info.capacity_bytes)
    }),
    gauges("infera_kvd_device_free_bytes", "Bytes of them that hold nothing.", "path", |f| {
        f.by_device(|_, info| info.free_bytes)
    }),
    counters("infera_kvd_device_read_bytes_total", "Bytes read for blocks.", "path", |f| {
        f.by_device(|device, _| load(&device.meters.read_bytes))
    }),
    counters(
        "infera_kvd_device_written_bytes_total",
        "Bytes written for blocks, padding included.",
        "path",
        |f| f.by_device(|device, _| load(&device.meters.written_bytes)),
    ),
    counters(
        "infera_kvd_device_record_bytes_total",
        "Bytes written for journals and snapshots.",
        "path",
        |f| f.by_device(|device, _| load(&device.meters.record_bytes)),
    ),
    counters(
        "infera_kvd_device_zeroed_bytes_total",
        "Bytes of new containers, written once before use.",
        "path",
        |f| f.by_device(|device, _| load(&device.meters.zeroed_bytes)),
    ),
    counters(
        "infera_kvd_device_corrupt_total",
        "Blocks that did not fit their checksum when they were read.",
        "path",
        |f| f.by_device(|device, _| load(&device.meters.corrupt)),
    ),
    counters("infera_kvd_device_faults_total", "Operations that failed.", "path", |f| {
        f.by_device(|device, _| load(&device.meters.faults))
    }),
    counters(
        "infera_kvd_device_growth_refused_total",
        "Times that a container could not be made because the file system is full.",
        "path",
        |f| f.by_device(|device, _| load(&device.meters.growth_refused)),
    ),
    counter("infera_kvd_hits_verified_total", "Hits in memory held against their checksum.", |f| {
        load(&f.daemon.meters.hits_verified)
    }),
    // Events.
    counter("infera_kvd_events_total", "Events that were published.", |f| {
        load(&f.daemon.events.meters.events)
    }),
    counter("infera_kvd_events_batches_total", "Messages with events that were published.", |f| {
        load(&f.daemon.events.meters.batches)
    }),
    counter(
        "infera_kvd_events_lost_total",
        "Changes that were not published because too many waited; readers begin again with a snapshot.",
        |f| load(&f.daemon.events.meters.lost),
    ),
    counter(
        "infera_kvd_events_gaps_total",
        "Numbers of messages that were left out so that readers begin again with a snapshot.",
        |f| load(&f.daemon.events.meters.gaps),
    ),
    counter("infera_kvd_events_replays_total", "Replays of events that were asked for.", |f| {
        load(&f.daemon.events.meters.replays)
    }),
    counter(
        "infera_kvd_events_replays_too_old_total",
        "Replays of events that are no longer kept.",
        |f| load(&f.daemon.events.meters.replays_too_old),
    ),
    counter(
        "infera_kvd_events_replays_given_up_total",
        "Replays that the reader did not take within 10 s.",
        |f| load(&f.daemon.events.meters.replays_given_up),
    ),
    counter(
        "infera_kvd_events_snapshots_total",
        "Snapshots of all that is held that were begun.",
        |f| load(&f.daemon.events.meters.snapshots),
    ),
    counter(
        "infera_kvd_events_keys_refused_total",
        "Connections to the sockets of events whose key is not on the list.",
        |f| load(&f.daemon.events.meters.keys_refused),
    ),
    counter(
        "infera_kvd_registrations_failed_total",
        "Attempts to put or renew the record in etcd that failed.",
        |f| load(&f.daemon.events.meters.registrations_failed),
    ),
    gauge("infera_kvd_registered", "1 while the record of this daemon is in etcd.", |f| {
        u64::from(f.daemon.events.meters.is_registered.load(Ordering::Relaxed))
    }),
    // Connections and requests.
    counter("infera_kvd_connections_total", "Engine connections that got a session.", |f| {
        load(&f.daemon.meters.connections_accepted)
    }),
    counters(
        "infera_kvd_connections_refused_total",
        "Engine connections closed at once: user id not allowed, too many sessions, or a process that \
         closed too many (`lost`) without giving back what it holds.",
        "reason",
        |f| f.connections_refused(),
    ),
    counters("infera_kvd_sessions_ended_total", "Sessions that ended.", "reason", |f| {
        each(&f.daemon.meters.sessions_ended)
    }),
    Metric {
        name: "infera_kvd_request_seconds",
        kind: Kind::Histogram,
        help: "Time from the last byte of a request to its reply, by op; unused ops are left out.",
        read: Read::Durations,
    },
    counter("infera_kvd_error_frames_total", "Requests answered with an error frame.", |f| {
        load(&f.daemon.meters.error_frames)
    }),
    counter("infera_kvd_received_bytes_total", "Bytes read from engine sockets.", |f| {
        load(&f.daemon.meters.received_bytes)
    }),
    counter("infera_kvd_sent_bytes_total", "Bytes written to engine sockets.", |f| {
        load(&f.daemon.meters.sent_bytes)
    }),
    gauge("infera_kvd_staging_bytes", "Memory in use for bodies outside the arena.", |f| {
        f.daemon.staging.used_bytes()
    }),
    counter(
        "infera_kvd_staging_refused_total",
        "Bodies refused for want of staging memory.",
        |f| load(&f.daemon.meters.staging_refused),
    ),
    gauge("infera_kvd_sessions_max", "Sessions allowed at once.", |f| {
        f.daemon.settings.limits.sessions_max.into()
    }),
    gauge("infera_kvd_session_in_flight_bytes_max", "Arena bytes one session may pin.", |f| {
        f.daemon.settings.limits.in_flight_bytes_max
    }),
];
