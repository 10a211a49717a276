//! `GET /v1/ls?tier=l3&device=&cursor=&limit=&model=&compat_key=&prefix=`: blocks on disk, device by
//! device in storage order, page by page.

use kvd_store::{DeviceId, EntryCursor, EntryInfo};
use serde::Serialize;

use super::answer::hex;
use super::ls::Filter;
use crate::daemon::Daemon;

/// Blocks looked at under one hold of the store's lock.
const SLICE_ENTRIES: usize = 64;
/// Blocks looked at for one page; a filter that matches little needs several pages.
const SCANNED_MAX: usize = 16_384;
/// A cursor is the device's number in front of the place on it.
const DEVICE_SHIFT: u32 = 32;

/// One page. `next` is the cursor of the next one; the listing is complete when it is null.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    rows: Vec<Entry>,
    next: Option<u64>,
}

/// One block on a device.
#[derive(Debug, Serialize)]
pub(super) struct Entry {
    model: String,
    compat_key: String,
    /// Hexadecimal.
    key: String,
    len_bytes: u64,
    retention: &'static str,
    /// From now; null: no time to live.
    expires_in_ms: Option<u64>,
    device: u8,
    /// Counted through all its containers.
    offset: u64,
    lineage_bytes: u64,
    /// Memory holds a copy.
    in_memory: bool,
}

impl Entry {
    pub(super) fn new(info: EntryInfo, wall_ms: u64) -> Self {
        Self {
            model: info.model,
            compat_key: info.compat_key,
            key: hex(&info.key),
            len_bytes: info.len_bytes.into(),
            retention: info.retention.as_str(),
            expires_in_ms: info.expires_at_ms.map(|at_ms| at_ms.saturating_sub(wall_ms)),
            device: info.device.0,
            offset: info.offset,
            lineage_bytes: info.lineage_bytes,
            in_memory: info.in_memory,
        }
    }
}

/// Reads a page of one device, or of all.
pub(super) fn page(
    daemon: &Daemon,
    only: Option<u8>,
    cursor: u64,
    limit: usize,
    filter: &Filter,
) -> Page {
    let count = u8::try_from(daemon.devices.iter().count()).unwrap_or(u8::MAX);
    let first = only.unwrap_or(0).max(u8::try_from(cursor >> DEVICE_SHIFT).unwrap_or(u8::MAX));
    let last = only.map_or(count, |only| count.min(only + 1));
    let mut place = u32::try_from(cursor & u64::from(u32::MAX)).unwrap_or(0);
    let (mut rows, mut scanned) = (Vec::new(), 0);
    let wall_ms = daemon.brain.wall_ms();
    for device in first..last {
        let mut next = Some(EntryCursor(std::mem::take(&mut place)));
        while let Some(at) = next {
            if rows.len() >= limit || scanned >= SCANNED_MAX {
                let cursor = u64::from(device) << DEVICE_SHIFT | u64::from(at.0);
                return Page { rows, next: Some(cursor) };
            }
            let slice = SLICE_ENTRIES.min(limit - rows.len());
            let read = daemon.brain.inspect(|store, _| store.entries(DeviceId(device), at, slice));
            scanned += slice;
            let wanted = read
                .0
                .into_iter()
                .filter(|info| filter.accepts(&info.model, &info.compat_key, &info.key));
            rows.extend(wanted.map(|info| Entry::new(info, wall_ms)));
            next = read.1;
        }
    }
    Page { rows, next: None }
}
