//! `ls`: what is stored, in storage order: in memory, or on the devices.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use comfy_table::Table;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exit::codes;
use crate::key::{HexBytes, from_hex, to_hex};
use crate::sockets::Sockets;
use crate::text;

#[derive(Debug, Args)]
#[command(after_help = codes!("0 done, even if nothing is listed, 1 no daemon"))]
pub(crate) struct Ls {
    /// Only blocks of this model
    #[arg(long)]
    model: Option<String>,
    /// Only blocks with this compatibility key
    #[arg(long)]
    compat_key: Option<String>,
    /// Where to look: in memory (l2) or on the disk tier's devices (l3)
    #[arg(long, value_enum, default_value_t = Tier::L2)]
    tier: Tier,
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

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum Tier {
    L2,
    L3,
}

/// Rows asked for at once; the daemon's own limit.
const PAGE_ROWS: usize = 1_000;

/// A page of the daemon's listing.
#[derive(Debug, Deserialize)]
struct Page<R> {
    rows: Vec<R>,
    /// Where to go on, a number or a word; none at the end.
    next: Option<serde_json::Value>,
}

/// What a tier lists.
trait Listed: DeserializeOwned + Serialize {
    const HEAD: &'static [&'static str];
    fn cells(&self) -> Vec<String>;
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

/// A block on a device.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Entry {
    model: String,
    compat_key: String,
    key: String,
    pub(crate) len_bytes: u64,
    pub(crate) retention: String,
    pub(crate) expires_in_ms: Option<u64>,
    pub(crate) device: u32,
    pub(crate) offset: u64,
    lineage_bytes: u64,
    /// Whether there is a copy in memory.
    in_memory: bool,
}

const NUMBERS_FROM: usize = 4;

pub(crate) fn run(sockets: &Sockets, ls: &Ls) -> Result<ExitCode> {
    match ls.tier {
        Tier::L2 => list::<Row>(sockets, ls, &[]),
        Tier::L3 => list::<Entry>(sockets, ls, &[("tier", "l3")]),
    }
}

fn list<R: Listed>(sockets: &Sockets, ls: &Ls, which: &[(&str, &str)]) -> Result<ExitCode> {
    let admin = sockets.admin()?;
    let prefix = ls.prefix.as_ref().map(|HexBytes(bytes)| to_hex(bytes));
    let mut left = ls.limit as usize;
    let mut cursor = Some("0".to_owned());
    while let Some(at) = cursor.as_ref().filter(|_| left > 0) {
        let limit = left.min(PAGE_ROWS).to_string();
        let mut query = vec![("cursor", at.as_str()), ("limit", limit.as_str())];
        query.extend(which);
        let filters = [("model", &ls.model), ("compat_key", &ls.compat_key), ("prefix", &prefix)];
        query.extend(
            filters.into_iter().filter_map(|(name, value)| Some((name, value.as_deref()?))),
        );
        let page: Page<R> = admin.get("/v1/ls", &query)?;
        left = left.saturating_sub(page.rows.len());
        // A page may be empty and not be the last: the daemon looks at so many rows at a time.
        if !page.rows.is_empty() {
            print(&page.rows, ls.json)?;
        }
        cursor =
            page.next.map(|next| next.as_str().map_or_else(|| next.to_string(), str::to_owned));
    }
    if cursor.is_some() && !ls.json {
        writeln!(io::stderr(), "there may be more: give a larger --limit")?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print<R: Listed>(rows: &[R], json: bool) -> Result<()> {
    if json {
        let mut out = io::stdout().lock();
        for row in rows {
            writeln!(out, "{}", serde_json::to_string(row)?)?;
        }
        return Ok(());
    }
    text::print(&table(rows))
}

fn table<R: Listed>(rows: &[R]) -> Table {
    let mut table = text::table(R::HEAD, NUMBERS_FROM);
    rows.iter().for_each(|row| {
        table.add_row(row.cells());
    });
    table
}

impl Listed for Row {
    const HEAD: &'static [&'static str] =
        &["MODEL", "COMPAT KEY", "KEY", "CLASS", "BYTES", "EXPIRES IN", "PROMISED FOR", "PINS"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.model.clone(),
            self.compat_key.clone(),
            self.key.clone(),
            self.retention.clone(),
            text::count(self.len_bytes),
            self.expires_in_ms.map_or_else(String::new, text::millis),
            self.promised_for_ms.map_or_else(String::new, text::millis),
            text::count(self.pins.into()),
        ]
    }
}

impl Listed for Entry {
    const HEAD: &'static [&'static str] = &[
        "MODEL",
        "COMPAT KEY",
        "KEY",
        "CLASS",
        "BYTES",
        "EXPIRES IN",
        "DEVICE",
        "OFFSET",
        "IN MEMORY",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.model.clone(),
            self.compat_key.clone(),
            self.key.clone(),
            self.retention.clone(),
            text::count(self.len_bytes),
            self.expires_in_ms.map_or_else(String::new, text::millis),
            self.device.to_string(),
            text::count(self.offset),
            if self.in_memory { "yes" } else { "no" }.to_owned(),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_of_the_disk_tier_is_a_table() {
        let page = r#"{"rows": [{"model": "m", "compat_key": "c", "key": "00ff", "len_bytes": 5000,
            "retention": "long", "expires_in_ms": null, "device": 1, "offset": 8192,
            "lineage_bytes": 0, "in_memory": true}], "next": "1:7"}"#;
        let page: Page<Entry> = serde_json::from_str(page).expect("a page");
        assert_eq!(page.next, Some("1:7".into()));
        let lines: Vec<String> = table(&page.rows).lines().collect();
        let words: Vec<&str> = lines[1].split_whitespace().collect();
        assert_eq!(words, ["m", "c", "00ff", "long", "5,000", "1", "8,192", "yes"]);
        assert!(lines[0].contains("IN MEMORY"));
    }
}
