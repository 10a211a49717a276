//! `fetch`: leases on blocks, with their places in the arena.

use std::time::Duration;

use kvd_proto::ids::LeaseId;
use kvd_proto::miss::MissReason;
use kvd_proto::v2::fetch::{Fetch, FetchedRow, FetchedRows};
use kvd_store::{Found, Held, Hold, Ids, Input, Keys};

use super::super::loads::Fetching;
use super::super::service::{SLICE_KEYS, Service};
use super::lacks_arena;

pub(super) fn answer(service: &mut Service, rows: &mut FetchedRows, fetch: &Fetch<'_>) {
    if lacks_arena(service, fetch.id) {
        return;
    }
    rows.clear();
    let asked = Duration::from_millis(fetch.deadline_ms.into());
    service.fetch(&Fetching {
        namespace: fetch.namespace,
        keys: Keys::column(fetch.keys),
        prefix: fetch.prefix,
        hold: Hold::Lease,
        patience: asked.min(service.daemon.settings.disk.load_deadline),
    });
    service.found.iter().for_each(|found| rows.push(row(found)));
    if service.found.len() > SLICE_KEYS {
        // Each slice touched its keys last to first; this puts the slices in that order too.
        let leases: Vec<LeaseId> = service.found.iter().filter_map(lease).collect();
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
