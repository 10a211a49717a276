//! `fetch`: leases on blocks, with their places in the arena.

use kvd_proto::ids::LeaseId;
use kvd_proto::miss::MissReason;
use kvd_proto::v2::fetch::{Fetch, FetchedRow, FetchedRows};
use kvd_store::{Found, Held, Hold, Ids, Input, Keys};

use super::super::service::{SLICE_KEYS, Service};
use super::lacks_arena;

pub(super) fn answer(service: &mut Service, rows: &mut FetchedRows, fetch: &Fetch<'_>) {
    if lacks_arena(service, fetch.id) {
        return;
    }
    rows.clear();
    let all = Keys::column(fetch.keys);
    let mut leases = Vec::new();
    let mut from = 0;
    while from < all.len() {
        let to = all.len().min(from + SLICE_KEYS);
        service.apply(Input::Fetch {
            session: service.id(),
            namespace: fetch.namespace,
            keys: all.part(from..to),
            prefix: fetch.prefix,
            hold: Hold::Lease,
        });
        let found = &service.effects.found;
        found.iter().for_each(|found| rows.push(row(found)));
        if all.len() > SLICE_KEYS {
            leases.extend(found.iter().filter_map(lease));
        }
        if fetch.prefix && matches!(found.last(), Some(Found::Loading | Found::Miss(_))) {
            break;
        }
        from = to;
    }
    if !leases.is_empty() {
        // Each slice touched its keys last to first; this puts the slices in that order too.
        let session = service.id();
        for slice in leases.rchunks(SLICE_KEYS) {
            service.apply(Input::Touch { session, leases: Ids::Slice(slice) });
        }
    }
    rows.reply(fetch.id).encode(service.outbox.buffer());
}

fn row(found: &Found) -> FetchedRow {
    match *found {
        Found::Hit(hit) => FetchedRow::Hit {
            lease: lease(found).unwrap_or_default(),
            offset: hit.payload_offset,
            len_bytes: hit.len_bytes.into(),
        },
        Found::Loading => FetchedRow::Miss(MissReason::Deadline),
        Found::Miss(reason) => FetchedRow::Miss(reason),
    }
}

fn lease(found: &Found) -> Option<LeaseId> {
    match *found {
        Found::Hit(kvd_store::Hit { held: Held::Lease(lease), .. }) => Some(lease),
        Found::Hit(_) | Found::Loading | Found::Miss(_) => None,
    }
}
