//! The store's figures by name, for replies that are read by people and scripts.

use kvd_proto::miss::MissReason;
use kvd_proto::retention::Retention;
use kvd_store::{DeviceHealth, DeviceInfo, Stats};

use crate::disk_figures::DISK_FIGURES;

/// Names and values. Names are stable; new ones are added at the end of their group.
#[must_use]
pub fn of(stats: &Stats) -> Vec<(&'static str, u64)> {
    let (totals, space) = (&stats.totals, &stats.space);
    let mut figures = vec![
        ("entries", stats.entries),
        ("host_bytes", stats.host_bytes),
        ("gets_total", totals.gets_total),
        ("hits_total", totals.hits_total),
        ("misses_total", totals.misses_total),
        ("sets_total", totals.sets_total),
        ("evictions_total", totals.evictions_total),
        ("expirations_total", totals.expirations_total),
        ("cleared_total", totals.cleared_total),
        ("sessions", stats.sessions),
        ("namespaces", stats.namespaces),
        ("leases", stats.leases),
        ("tickets", stats.tickets),
        ("leased_bytes", stats.leased_bytes),
        ("promised_bytes", stats.promised_bytes),
        ("promises_refused_total", totals.promises_refused_total),
        ("quarantined_bytes", stats.quarantined_bytes),
        ("lineage_bytes", stats.lineage_bytes),
        ("arena_bytes", space.arena_bytes),
        ("arena_ready_bytes", space.ready_bytes),
        ("arena_free_bytes", space.free_bytes),
        ("arena_stored_bytes", space.stored_bytes),
        ("arena_payload_bytes", space.payload_bytes),
    ];
    let disk = DISK_FIGURES.iter();
    figures.extend(disk.map(|figure| (figure.short_name(), (figure.read)(&stats.disk))));
    let reasons = MissReason::ALL.iter().zip(totals.misses_by_reason_total);
    figures.extend(reasons.map(|(reason, count)| (misses(*reason), count)));
    let classes = Retention::ALL.iter().zip(totals.evictions_by_class_total);
    figures.extend(classes.map(|(class, count)| (evictions(*class), count)));
    figures
}

/// What there is of the devices, added to what [`of`] says.
#[must_use]
pub fn of_devices(infos: &[DeviceInfo]) -> [(&'static str, u64); 5] {
    let count =
        |is: fn(DeviceHealth) -> bool| infos.iter().filter(|info| is(info.health)).count() as u64;
    [
        ("disk_devices", infos.len() as u64),
        ("disk_devices_ready", count(|health| health == DeviceHealth::Ready)),
        ("disk_devices_failed", count(|health| matches!(health, DeviceHealth::Failed(_)))),
        ("disk_capacity_bytes", infos.iter().map(|info| info.capacity_bytes).sum()),
        ("disk_free_bytes", infos.iter().map(|info| info.free_bytes).sum()),
    ]
}

const fn misses(reason: MissReason) -> &'static str {
    match reason {
        MissReason::NeverStored => "misses_never_stored_total",
        MissReason::Evicted(Retention::None) => "misses_evicted_none_total",
        MissReason::Evicted(Retention::Ephemeral) => "misses_evicted_ephemeral_total",
        MissReason::Evicted(Retention::Short) => "misses_evicted_short_total",
        MissReason::Evicted(Retention::Long) => "misses_evicted_long_total",
        MissReason::Expired => "misses_expired_total",
        MissReason::Cleared => "misses_cleared_total",
        MissReason::OtherNamespace => "misses_other_namespace_total",
        MissReason::Corrupt => "misses_corrupt_total",
        MissReason::Deadline => "misses_deadline_total",
        MissReason::Shed => "misses_shed_total",
    }
}

const fn evictions(class: Retention) -> &'static str {
    match class {
        Retention::None => "evictions_none_total",
        Retention::Ephemeral => "evictions_ephemeral_total",
        Retention::Short => "evictions_short_total",
        Retention::Long => "evictions_long_total",
    }
}
