//! `reserve`: room to write, one ticket a value.

use kvd_proto::refusal::Refusal;
use kvd_proto::v2::reserve::{Reserve, ReservedRow, ReservedRows};
use kvd_store::{Input, Outcome, Writer};

use super::super::service::Service;
use super::lacks_arena;

pub(super) fn answer(service: &mut Service, rows: &mut ReservedRows, reserve: &Reserve<'_>) {
    if lacks_arena(service, reserve.id) {
        return;
    }
    rows.clear();
    for len_bytes in reserve.lens.iter() {
        let outcome = service.ask(Input::Reserve {
            session: service.id(),
            len_bytes,
            class: Some(reserve.retention),
            writer: Writer::Client,
        });
        rows.push(match outcome {
            Outcome::Reserved(Ok(granted)) => ReservedRow::Granted {
                ticket: granted.ticket,
                offset: granted.payload_offset,
            },
            Outcome::Reserved(Err(refusal)) => ReservedRow::Refused(refusal),
            _ => ReservedRow::Refused(Refusal::Shed),
        });
    }
    rows.reply(reserve.id).encode(service.outbox.buffer());
}
