//! `stats`: counters and gauges by name.

use kvd_proto::pack::Pairs;
use kvd_proto::v2::stats::{Stats, StatsReply};

use super::super::service::Service;
use crate::figures;

pub(super) fn answer(service: &mut Service, stats: Stats) {
    let (figures_now, devices) =
        service.daemon.brain.inspect(|store, _| (store.stats(), store.devices()));
    let mut values = figures::of(&figures_now);
    values.extend(figures::of_devices(&devices));
    StatsReply { id: stats.id, values: Pairs::Slice(&values) }.encode(service.outbox.buffer());
}
