//! Values that travel through the socket, from the arena without a copy in this process.

use kvd_proto::v1::get::InlineHit;
use kvd_shm::mapping::Piece;
use kvd_store::{Found, Hit};

use super::super::ended::Ended;
use super::super::service::Service;

/// Values up to this size are copied behind their head: cheaper than a system call of their own.
const COPY_BYTES: u32 = 32 << 10;

/// What the reply says of a hit.
pub(super) fn hit(found: &Found) -> Option<InlineHit> {
    match found {
        Found::Hit(hit) => Some(InlineHit { len_bytes: hit.len_bytes, retention: hit.retention }),
        Found::Loading | Found::Miss(_) => None,
    }
}

/// Puts a value behind what has gathered, and sends both if the value is large.
pub(super) fn put_value(service: &mut Service, hit: &Hit) -> Result<(), Ended> {
    let len = hit.len_bytes as usize;
    let arena = service.daemon.arena.mapping();
    if hit.len_bytes <= COPY_BYTES {
        let out = service.outbox.buffer();
        let at = out.len();
        out.resize(at + len, 0);
        arena.copy_out(hit.payload_offset, &mut out[at..]);
        return Ok(());
    }
    service.send_with(Piece::Arena { offset: hit.payload_offset, len })?;
    Ok(())
}

/// Gives back what pinned the values of an inline reply; hand-outs end by themselves.
pub(super) fn release(service: &mut Service, found: &[Found]) {
    found.iter().for_each(|found| service.let_go(found));
}

/// Says that a reply would be above the frame limit, or its request above a limit of ours.
pub(super) fn internal_error(service: &mut Service, reason: impl std::fmt::Display) {
    use kvd_proto::v1::error::{ErrorCode, ErrorResponse};
    let message = reason.to_string();
    let reply = ErrorResponse { code: ErrorCode::InternalError.as_str(), message: &message };
    reply.encode(service.outbox.buffer());
    service.count_error_frame();
}
