//! `ls`: what is stored, in storage order.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::key::{HexBytes, from_hex, to_hex};
use crate::sockets::Sockets;
use crate::text;

#[derive(Debug, Args)]
pub(crate) struct Ls {
    /// Only blocks of this model
    #[arg(long)]
    model: Option<String>,
    /// Only blocks with this compatibility key
    #[arg(long)]
    compat_key: Option<String>,
    /// Only keys that begin with these bytes, in hexadecimal
    #[arg(long, value_name = "HEX", value_parser = from_hex)]
    prefix: Option<HexBytes>,
    /// Print at most so many blocks
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print one JSON object per line
    #[arg(long)]
    json: bool,
}

/// Rows asked for at once; the daemon's own limit.
const PAGE_ROWS: usize = 1_000;

/// A page of the daemon's listing.
#[derive(Debug, Deserialize)]
struct Page {
    rows: Vec<Row>,
    /// Where to go on; none at the end.
    next: Option<u32>,
}

/// A stored block.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    pub(crate) model: String,
    pub(crate) compat_key: String,
    pub(crate) key: String,
    pub(crate) len_bytes: u64,
    pub(crate) retention: String,
    pub(crate) expires_in_ms: Option<u64>,
    pub(crate) promised_for_ms: Option<u64>,
    pub(crate) pins: u32,
    pub(crate) payload_offset: u64,
    pub(crate) lineage_bytes: u64,
}

const HEAD: [&str; 8] =
    ["MODEL", "COMPAT KEY", "KEY", "CLASS", "BYTES", "EXPIRES IN", "PROMISED FOR", "PINS"];
const NUMBERS_FROM: usize = 4;

pub(crate) fn run(sockets: &Sockets, ls: &Ls) -> Result<ExitCode> {
    let admin = sockets.admin()?;
    let prefix = ls.prefix.as_ref().map(|HexBytes(bytes)| to_hex(bytes));
    let mut left = ls.limit as usize;
    let mut cursor = Some(0);
    while let Some(at) = cursor.filter(|_| left > 0) {
        let (at, limit) = (at.to_string(), left.min(PAGE_ROWS).to_string());
        let mut query = vec![("cursor", at.as_str()), ("limit", limit.as_str())];
        let filters = [("model", &ls.model), ("compat_key", &ls.compat_key), ("prefix", &prefix)];
        query.extend(
            filters.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))),
        );
        let page: Page = admin.get("/v1/ls", &query)?;
        left = left.saturating_sub(page.rows.len());
        // A page may be empty and not be the last: the daemon looks at so many rows at a time.
        if !page.rows.is_empty() {
            print(&page.rows, ls.json)?;
        }
        cursor = page.next;
    }
    if cursor.is_some() && !ls.json {
        writeln!(io::stderr(), "there may be more: give a larger --limit")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(rows: &[Row], json: bool) -> Result<()> {
    if json {
        let mut out = io::stdout().lock();
        for row in rows {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
        }
        return Ok(());
    }
    let mut table = text::table(&HEAD, NUMBERS_FROM);
    for row in rows {
        table.add_row([
            row.model.clone(),
            row.compat_key.clone(),
            row.key.clone(),
            row.retention.clone(),
            text::count(row.len_bytes),
            row.expires_in_ms.map_or_else(String::new, text::millis),
            row.promised_for_ms.map_or_else(String::new, text::millis),
            text::count(row.pins.into()),
        ]);
    }
    text::print(&table)
}
