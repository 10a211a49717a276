//! `GET /v1/ls?tier=&cursor=&limit=&model=&compat_key=&prefix=`: rows in storage order, page by page;
//! with `tier=l3` the blocks on disk (see `entries`).

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use kvd_store::{RowCursor, RowInfo, Timestamp};
use serde::{Deserialize, Serialize};

use super::answer::{Refused, Shared, from_hex, hex, with};
use super::entries;
use crate::daemon::Daemon;

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;
/// Rows read under one hold of the store's lock: about 20 µs.
const SLICE_ROWS: usize = 64;
/// Rows looked at for one page; a filter that matches little needs several pages.
const SCANNED_MAX: usize = 16_384;

/// The query string.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Asked {
    tier: Option<String>,
    device: Option<u8>,
    cursor: Option<u64>,
    limit: Option<usize>,
    model: Option<String>,
    compat_key: Option<String>,
    prefix: Option<String>,
}

/// One page. `next` is the cursor of the next one; the listing is complete when it is null.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Listing {
    Memory(Page),
    Disk(entries::Page),
}

/// A page of rows in memory.
#[derive(Debug, Serialize)]
pub(super) struct Page {
    rows: Vec<Row>,
    next: Option<u32>,
}

/// One row. Times count from now.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    model: String,
    compat_key: String,
    /// Hexadecimal.
    key: String,
    len_bytes: u64,
    retention: &'static str,
    /// Null: no time to live.
    expires_in_ms: Option<u64>,
    /// Null: nobody was promised that it stays.
    promised_for_ms: Option<u64>,
    /// Leases and hand-outs.
    pins: u32,
    payload_offset: u64,
    lineage_bytes: u64,
}

impl Row {
    pub(super) fn new(info: RowInfo, now: Timestamp) -> Self {
        let left = |until: Timestamp| until.0.saturating_sub(now.0);
        Self {
            model: info.model,
            compat_key: info.compat_key,
            key: hex(&info.key),
            len_bytes: u64::from(info.len_bytes),
            retention: info.retention.as_str(),
            expires_in_ms: info.expires_at.map(left),
            promised_for_ms: info.promised_until.map(left).filter(|left_ms| *left_ms > 0),
            pins: info.pins,
            payload_offset: info.payload_offset,
            lineage_bytes: info.lineage_bytes,
        }
    }
}

/// Which rows are wanted.
#[derive(Debug)]
pub(super) struct Filter {
    model: Option<String>,
    compat_key: Option<String>,
    prefix: Vec<u8>,
}

impl Filter {
    pub(super) fn accepts(&self, model: &str, compat_key: &str, key: &[u8]) -> bool {
        self.model.as_ref().is_none_or(|wanted| *wanted == model)
            && self.compat_key.as_ref().is_none_or(|wanted| *wanted == compat_key)
            && key.starts_with(&self.prefix)
    }
}

/// Answers with one page.
pub(super) async fn answer(
    State(daemon): State<Shared>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Result<Json<Listing>, Refused> {
    let Query(asked) = asked?;
    let limit = asked.limit.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Refused::bad_request(format!("limit: {limit}; allowed: 1 to {LIMIT_MAX}")));
    }
    let prefix = from_hex(&asked.prefix.unwrap_or_default())
        .ok_or_else(|| Refused::bad_request("prefix: expected pairs of hexadecimal digits"))?;
    let filter = Filter { model: asked.model, compat_key: asked.compat_key, prefix };
    let (device, cursor) = (asked.device, asked.cursor.unwrap_or(0));
    let listing = match asked.tier.as_deref() {
        None | Some("l2") => {
            let place = u32::try_from(cursor).map(RowCursor);
            let place =
                place.map_err(|_large| Refused::bad_request("cursor: not one of this tier"))?;
            let read = move |daemon: &Daemon| Listing::Memory(page(daemon, place, limit, &filter));
            with(daemon, read).await?
        }
        Some("l3") => {
            let read = move |daemon: &Daemon| {
                Listing::Disk(entries::page(daemon, device, cursor, limit, &filter))
            };
            with(daemon, read).await?
        }
        Some(other) => {
            return Err(Refused::bad_request(format!("tier: {other:?}; allowed: l2, l3")));
        }
    };
    Ok(Json(listing))
}

fn page(daemon: &Daemon, mut cursor: RowCursor, limit: usize, filter: &Filter) -> Page {
    let mut rows = Vec::new();
    let mut scanned = 0;
    while rows.len() < limit && scanned < SCANNED_MAX {
        let slice = SLICE_ROWS.min(limit - rows.len());
        let ((found, next), now) =
            daemon.brain.inspect(|store, now| (store.rows(cursor, slice), now));
        scanned += slice;
        let wanted =
            found.into_iter().filter(|row| filter.accepts(&row.model, &row.compat_key, &row.key));
        rows.extend(wanted.map(|row| Row::new(row, now)));
        match next {
            Some(next) => cursor = next,
            None => return Page { rows, next: None },
        }
    }
    Page { rows, next: Some(cursor.0) }
}
