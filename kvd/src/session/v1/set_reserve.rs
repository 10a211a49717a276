//! `set_reserve`: room in the arena that the peer writes by itself.

use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;
use kvd_proto::v1::set_reserve::{SetReserve, SetReserveResponse};
use kvd_store::{Granted, Writer};

use super::super::service::Service;

pub(super) fn answer(service: &mut Service, reserve: SetReserve) {
    match grant(service, reserve.size) {
        Ok(granted) => SetReserveResponse {
            lease_token: granted.ticket,
            // Clients only look at the sign.
            slot_id: 0,
            payload_offset: granted.payload_offset,
            payload_max_size: granted.capacity_bytes,
            reason: "",
        }
        .encode(service.outbox.buffer()),
        Err(refusal) => SetReserveResponse::refused(refusal).encode(service.outbox.buffer()),
    }
}

fn grant(service: &mut Service, size: i64) -> Result<Granted, Refusal> {
    if !service.has_arena() {
        return Err(Refusal::NoArena);
    }
    let len_bytes = match u64::try_from(size) {
        Ok(0) | Err(_) => return Err(Refusal::ArenaFull),
        Ok(len_bytes) => len_bytes,
    };
    // The class comes with the commit; the reference evicts whatever is oldest here.
    service.reserve(len_bytes, Retention::Long, Writer::Client)
}
