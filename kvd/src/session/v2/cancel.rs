//! `cancel`: tickets are given back unused.

use kvd_proto::v2::cancel::{Cancel, Cancelled};
use kvd_store::{Input, Outcome};

use super::super::service::Service;
use super::is_stale;

pub(super) fn answer(service: &mut Service, cancel: &Cancel<'_>) {
    if is_stale(service, cancel.id, cancel.epoch) {
        return;
    }
    let mut cancelled = 0;
    for ticket in cancel.ticket_ids() {
        let session = service.id();
        let outcome = service.ask(Input::Cancel { session, ticket, linger: false });
        cancelled += u32::from(outcome == Outcome::Cancelled(Ok(())));
    }
    Cancelled { id: cancel.id, cancelled }.encode(service.outbox.buffer());
}
