//! `release`: leases end. One-way, so a client never waits for it.

use kvd_proto::v2::release::Release;
use kvd_store::{Ids, Input};

use super::super::service::Service;

pub(super) fn serve(service: &mut Service, release: &Release<'_>) {
    // Leases of another epoch ended with that daemon; the numbers may mean others here.
    if release.epoch.0 != service.daemon.status.epoch {
        return;
    }
    service.apply(Input::Release { session: service.id(), leases: Ids::Column(release.leases) });
}
