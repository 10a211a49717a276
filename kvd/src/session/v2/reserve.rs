//! `reserve`: room to write, one ticket a value.

use kvd_proto::v2::reserve::{Reserve, ReservedRow, ReservedRows};
use kvd_store::Writer;

use super::super::service::Service;
use super::lacks_arena;

pub(super) fn answer(service: &mut Service, rows: &mut ReservedRows, reserve: &Reserve<'_>) {
    if lacks_arena(service, reserve.id) {
        return;
    }
    rows.clear();
    for len_bytes in reserve.lens.iter() {
        rows.push(match service.reserve(len_bytes, reserve.retention, Writer::Client) {
            Ok(granted) => {
                ReservedRow::Granted { ticket: granted.ticket, offset: granted.payload_offset }
            }
            Err(refusal) => ReservedRow::Refused(refusal),
        });
    }
    rows.reply(reserve.id).encode(service.outbox.buffer());
}
