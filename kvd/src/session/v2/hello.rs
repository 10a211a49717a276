//! `hello`: who the peer is, what both sides can do, and the arena.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kvd_proto::column::KEYS_MAX;
use kvd_proto::frame::V2_FRAME_BYTES_MAX;
use kvd_proto::ids::Epoch;
use kvd_proto::pack::Array;
use kvd_proto::v2::hello::{Hello, HelloAck, Limits};
use kvd_proto::v2::{PROTOCOL_VERSION, feature};

use super::super::ended::Ended;
use super::super::service::Service;
use crate::daemon::Daemon;

/// Largest value: one extent, addressed with 32 bits in every header.
const VALUE_BYTES_MAX: u64 = 1 << 30;

pub(super) fn answer(service: &mut Service, hello: &Hello<'_>) -> Result<(), Ended> {
    service.facts.protocol.store(2, Ordering::Relaxed);
    let daemon = Arc::clone(&service.daemon);
    let limits = &daemon.settings.limits;
    let features: Vec<_> =
        feature::shared(hello.features).filter(|name| is_of_use(&daemon, name)).collect();
    let offer = service.introduce(hello.client_id, hello.prefers_shared_arena);
    HelloAck {
        server_id: &daemon.status.server_id,
        protocol_version: PROTOCOL_VERSION,
        shared_arena: offer,
        epoch: Epoch(daemon.status.epoch),
        session: service.id(),
        features: Array::Slice(&features),
        limits: Limits {
            keys_max: KEYS_MAX as u64,
            frame_bytes_max: V2_FRAME_BYTES_MAX.into(),
            leases_max: limits.leases_max.into(),
            tickets_max: limits.tickets_max.into(),
            in_flight_bytes_max: limits.in_flight_bytes_max,
            value_bytes_max: VALUE_BYTES_MAX.min(daemon.arena.bytes()),
        },
    }
    .encode(service.outbox.buffer());
    if offer.is_some() {
        service.hand_over_arena()?;
    }
    Ok(())
}

/// Checksums cost the client time, and hints messages: without anybody to look at them they are not asked for. Without
/// a ledger no process is known by its name, and no arena comes back.
fn is_of_use(daemon: &Daemon, feature: &str) -> bool {
    let disk = &daemon.settings.disk;
    match feature {
        feature::CHECKSUM => disk.is_on() || disk.verify_one_in.is_some(),
        feature::PREFETCH => disk.is_on(),
        feature::RESUME => daemon.brain.ledger().is_some(),
        _ => false,
    }
}
