//! `stats`: the nine figures of the reference.

use kvd_proto::v1::stats::StatsResponse;

use super::super::service::Service;

pub(super) fn answer(service: &mut Service) {
    let stats = service.daemon.brain.inspect(|store, _| store.stats());
    StatsResponse {
        entries: stats.entries,
        host_bytes: stats.host_bytes,
        spillover_bytes: 0,
        long_bytes: stats.disk.payload_bytes,
        gets_total: stats.totals.gets_total,
        sets_total: stats.totals.sets_total,
        hits_total: stats.totals.hits_total,
        misses_total: stats.totals.misses_total,
        evictions_total: stats.totals.evictions_total,
    }
    .encode(service.outbox.buffer());
}
