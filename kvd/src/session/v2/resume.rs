//! `resume`: a process that lost a connection goes on with what it has, and lets go of the rest.

use kvd_proto::column::{U64Column, Word};
use kvd_proto::ids::SessionId;
use kvd_proto::v2::resume::{Resume, Resumed};
use kvd_store::{Ids, Input, Outcome};

use super::super::service::{SLICE_KEYS, Service};

pub(super) fn answer(service: &mut Service, resume: &Resume<'_>) {
    let session = service.id();
    let rights = take_up(service, resume.leases) + take_up(service, resume.tickets);
    let mut sessions = 0;
    for earlier in resume.sessions.iter().map(SessionId) {
        let outcome = service.ask(Input::Renounce { session, earlier });
        sessions += u32::from(outcome == Outcome::Renounced(true));
    }
    Resumed { id: resume.id, rights, sessions }.encode(service.outbox.buffer());
}

/// How many of these rights are the session's now.
fn take_up(service: &mut Service, rights: U64Column<'_>) -> u32 {
    let (session, mut all) = (service.id(), 0);
    let slices = rights.as_bytes().chunks(SLICE_KEYS * u64::BYTES);
    for slice in slices.filter_map(U64Column::new) {
        if let Outcome::TakenUp { taken, .. } =
            service.ask(Input::TakeUp { session, rights: Ids::Column(slice) })
        {
            all += taken;
        }
    }
    all
}
