//! `get`: one value, by its place in the arena if the peer maps it, else inline.

use kvd_proto::v1::get::{Get, GetResponse, GetSharedResponse, InlineHit};
use kvd_store::{Found, Held, Hit, Hold, Keys};

use super::super::ended::Ended;
use super::super::loads::Fetching;
use super::super::service::Service;
use super::inline;

pub(super) fn answer(service: &mut Service, get: &Get<'_>) -> Result<(), Ended> {
    service.fetch(&Fetching {
        namespace: get.namespace,
        keys: Keys::one(get.key),
        prefix: false,
        hold: if service.has_arena() { Hold::HandOut } else { Hold::Inline },
        patience: service.daemon.settings.disk.load_deadline,
    });
    match service.found.first().copied() {
        Some(Found::Hit(hit)) if hit.held == Held::HandOut && hit.len_bytes > 0 => {
            GetSharedResponse {
                slot_offset: hit.payload_offset,
                length: hit.len_bytes.into(),
                version: hit.version,
                retention: Some(hit.retention),
                slot_size: 0,
            }
            .encode(service.outbox.buffer());
        }
        Some(Found::Hit(hit)) => send_inline(service, &hit)?,
        Some(Found::Loading | Found::Miss(_)) | None => {
            GetResponse::MISS.encode(service.outbox.buffer())
        }
    }
    Ok(())
}

fn send_inline(service: &mut Service, hit: &Hit) -> Result<(), Ended> {
    let reply = InlineHit { len_bytes: hit.len_bytes, retention: hit.retention };
    let limit = service.daemon.settings.limits.frame_bytes_max;
    if let Err(reason) = reply.encode_head(service.outbox.buffer(), limit) {
        inline::internal_error(service, &reason);
    } else {
        inline::put_value(service, hit)?;
        reply.encode_tail(service.outbox.buffer());
    }
    inline::release(service, &[Found::Hit(*hit)]);
    Ok(())
}
