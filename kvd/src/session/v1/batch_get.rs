//! `batch_get`: several values, by place only if every hit can be read by place; clients take an
//! empty value by place for a miss.

use kvd_proto::malformed::Malformed;
use kvd_proto::v1::batch_get::{
    BatchGet, BatchGetSharedResponse, InlineBatch, SharedHit, SharedRows,
};
use kvd_proto::v1::get::InlineHit;
use kvd_store::{Found, Held, Hold, Keys};

use super::super::ended::Ended;
use super::super::loads::Fetching;
use super::super::service::Service;
use super::inline;

/// Keys of one batch. What is kept of each until the reply is written is many times what the shortest
/// key takes in the frame.
const KEYS_MAX: u64 = 1 << 20;

pub(super) fn answer(service: &mut Service, batch: &BatchGet<'_>) -> Result<(), Ended> {
    let (count, limit) = (batch.keys.len() as u64, KEYS_MAX);
    if count > limit {
        inline::internal_error(service, &Malformed::TooMany { field: "keys", count, limit });
        return Ok(());
    }
    let keys: Vec<&[u8]> = batch.keys.iter().collect();
    let hold = if service.has_arena() { Hold::HandOut } else { Hold::Inline };
    service.fetch(&Fetching {
        namespace: batch.namespace,
        keys: Keys::slices(&keys),
        prefix: false,
        hold,
        patience: service.daemon.settings.disk.load_deadline,
    });
    let found = std::mem::take(&mut service.found);
    if service.has_arena() && found.iter().all(readable_by_place) {
        let rows: Vec<_> = found.iter().map(place).collect();
        BatchGetSharedResponse { rows: SharedRows::Slice(&rows), slot_size: 0 }
            .encode(service.outbox.buffer());
        service.found = found;
        return Ok(());
    }
    send_inline(service, &found)?;
    inline::release(service, &found);
    service.found = found;
    Ok(())
}

fn readable_by_place(found: &Found) -> bool {
    match found {
        Found::Hit(hit) => hit.held == Held::HandOut && hit.len_bytes > 0,
        Found::Loading | Found::Miss(_) => true,
    }
}

fn place(found: &Found) -> Option<SharedHit> {
    match found {
        Found::Hit(hit) => Some(SharedHit {
            offset: hit.payload_offset,
            length: hit.len_bytes.into(),
            version: hit.version,
            retention: Some(hit.retention),
        }),
        Found::Loading | Found::Miss(_) => None,
    }
}

fn send_inline(service: &mut Service, found: &[Found]) -> Result<(), Ended> {
    let items: Vec<Option<InlineHit>> = found.iter().map(inline::hit).collect();
    let reply = InlineBatch { items: &items };
    let limit = service.daemon.settings.limits.frame_bytes_max;
    if let Err(reason) = reply.encode_head(service.outbox.buffer(), limit) {
        inline::internal_error(service, &reason);
        return Ok(());
    }
    for (item, found) in items.iter().zip(found) {
        InlineBatch::encode_item(service.outbox.buffer(), *item);
        if let Found::Hit(hit) = found {
            inline::put_value(service, hit)?;
            if service.outbox.is_full() {
                service.flush()?;
            }
        }
    }
    reply.encode_tail(service.outbox.buffer());
    Ok(())
}
