//! `resume`: a process that lost a connection goes on with what it has, and lets go of the rest.

use kvd_proto::ids::SessionId;
use kvd_proto::v2::resume::{Resume, Resumed};
use kvd_store::{Ids, Input, Outcome};

use super::super::service::Service;

pub(super) fn answer(service: &mut Service, resume: &Resume<'_>) {
    let session = service.id();
    let mut rights = 0;
    for column in [resume.leases, resume.tickets] {
        let outcome = service.ask(Input::TakeUp { session, rights: Ids::Column(column) });
        if let Outcome::TakenUp { taken, .. } = outcome {
            rights += taken;
        }
    }
    let mut sessions = 0;
    for earlier in resume.sessions.iter().map(SessionId) {
        let outcome = service.ask(Input::Renounce { session, earlier });
        sessions += u32::from(outcome == Outcome::Renounced(true));
    }
    Resumed { id: resume.id, rights, sessions }.encode(service.outbox.buffer());
}
