//! `prefetch`: blocks are brought into memory ahead of need. One-way, so a client never waits for it.

use kvd_proto::v2::prefetch::Prefetch;
use kvd_store::{Input, Keys};

use super::super::service::{SLICE_KEYS, Service};

pub(super) fn serve(service: &mut Service, prefetch: &Prefetch<'_>) {
    let all = Keys::column(prefetch.keys);
    for from in (0..all.len()).step_by(SLICE_KEYS) {
        let to = all.len().min(from + SLICE_KEYS);
        service.apply(Input::Prefetch {
            session: Some(service.id()),
            namespace: prefetch.namespace,
            keys: all.part(from..to),
            deadline_ms: prefetch.deadline_ms.into(),
        });
    }
}
