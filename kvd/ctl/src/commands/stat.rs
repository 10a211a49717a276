//! `stat`: the daemon's figures, over the socket that engines use, and its devices, where the admin socket may be asked.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value};

use crate::devices::{self, Devices};
use crate::exit::codes;
use crate::sockets::Sockets;
use crate::text;

#[derive(Debug, Args)]
#[command(after_help = codes!("0 done, 1 no daemon"))]
pub(crate) struct Stat {
    /// Show figures that are zero too
    #[arg(long)]
    all: bool,
    /// Print all figures as one JSON object
    #[arg(long, conflicts_with = "reference")]
    json: bool,
    /// Print the nine figures of protocol 1 as JSON, as `statctl` does
    #[arg(long)]
    reference: bool,
}

/// The figures of protocol 1, in its order.
const REFERENCE: [&str; 9] = [
    "entries",
    "host_bytes",
    "spillover_bytes",
    "long_bytes",
    "gets_total",
    "sets_total",
    "hits_total",
    "misses_total",
    "evictions_total",
];

pub(crate) fn run(sockets: &Sockets, stat: &Stat) -> Result<ExitCode> {
    let figures = sockets.lean_client().stats()?;
    if stat.reference {
        text::print_json(&Ordered(&as_reference(&figures)))?;
    } else if stat.json {
        let pairs = figures.into_iter().map(|(name, value)| (name, Value::from(value)));
        text::print_json(&pairs.collect::<Map<_, _>>())?;
    } else {
        print_figures(&figures, stat.all)?;
        // Figures are for everybody, devices for whoever may ask the admin socket.
        if let Ok(found) = sockets.admin()?.get::<Devices>("/v1/stats", &[]) {
            print_devices(&found)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Groups of figures in the order in which they are shown, each with what its names begin with; what belongs to none comes
/// last.
const GROUPS: [(&str, &[&str]); 6] = [
    ("BLOCKS", &["entries", "host_bytes", "namespaces", "lineage_bytes"]),
    ("REQUESTS", &["gets_", "hits_", "sets_", "misses_"]),
    ("FORGOTTEN", &["evictions_", "expirations_", "cleared_"]),
    ("HELD", &["sessions", "leases", "leased_", "tickets", "promise", "quarantined_"]),
    ("ARENA", &["arena_"]),
    ("DISK", &["disk_"]),
];
const OTHERS: &str = "OTHERS";

fn group_of(name: &str) -> &'static str {
    let mut mine =
        GROUPS.iter().filter(|(_, begins)| begins.iter().any(|begin| name.starts_with(begin)));
    mine.next().map_or(OTHERS, |(title, _)| title)
}

/// The figures of each group that has one to show, in the daemon's order.
fn grouped(figures: &[(String, u64)], all: bool) -> Vec<(&'static str, Vec<&(String, u64)>)> {
    let titles = GROUPS.iter().map(|(title, _)| *title).chain([OTHERS]);
    let groups = titles.map(|title| {
        let is_shown =
            |figure: &&(String, u64)| group_of(&figure.0) == title && (all || figure.1 > 0);
        (title, figures.iter().filter(is_shown).collect())
    });
    groups.filter(|(_, shown): &(_, Vec<_>)| !shown.is_empty()).collect()
}

fn print_figures(figures: &[(String, u64)], all: bool) -> Result<()> {
    let mut table = text::table(&["FIGURE", "VALUE", ""], 1);
    let mut shown = 0;
    for (title, group) in grouped(figures, all) {
        table.add_row([title, "", ""]);
        for (name, value) in group {
            let is_bytes = name.ends_with("_bytes") || name.ends_with("_bytes_total");
            let readable = if is_bytes { text::bytes(*value) } else { String::new() };
            table.add_row([format!("  {name}"), text::count(*value), readable]);
            shown += 1;
        }
    }
    text::print(&table)?;
    let zeros = figures.len() - shown;
    if zeros > 0 {
        writeln!(io::stdout(), "\n{zeros} figures are zero: --all shows them")?;
    }
    Ok(())
}

fn print_devices(found: &Devices) -> Result<()> {
    if found.devices.is_empty() {
        return Ok(());
    }
    let mut table = text::table(&devices::HEAD, devices::NUMBERS_FROM);
    for device in &found.devices {
        table.add_row(device.cells());
    }
    writeln!(io::stdout())?;
    text::print(&table)
}

/// The nine figures; a tier that this daemon does not have holds nothing.
fn as_reference(figures: &[(String, u64)]) -> Vec<(&'static str, u64)> {
    let value_of = |wanted: &str| {
        figures.iter().find(|(name, _)| name == wanted).map_or(0, |(_, value)| *value)
    };
    REFERENCE.iter().map(|name| (*name, value_of(name))).collect()
}

/// A JSON object whose entries stay in order.
struct Ordered<'a>(&'a [(&'static str, u64)]);

impl serde::Serialize for Ordered<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_grouped_and_zeros_are_left_out() {
        let figures =
            [("entries", 2), ("gets_total", 0), ("disk_entries", 0), ("new", 7), ("hits_total", 3)];
        let figures = figures.map(|(name, value)| (name.to_owned(), value));
        let names = |all| -> Vec<(&str, Vec<&str>)> {
            let groups = grouped(&figures, all).into_iter();
            groups
                .map(|(title, group)| (title, group.iter().map(|(name, _)| &**name).collect()))
                .collect()
        };
        let some = [
            ("BLOCKS", vec!["entries"]),
            ("REQUESTS", vec!["hits_total"]),
            ("OTHERS", vec!["new"]),
        ];
        assert_eq!(names(false), some);
        assert_eq!(names(true)[1], ("REQUESTS", vec!["gets_total", "hits_total"]));
        assert_eq!(names(true)[2], ("DISK", vec!["disk_entries"]));
    }

    #[test]
    fn the_reference_form_has_nine_figures_in_order() {
        let figures = [("hits_total".to_owned(), 3), ("entries".into(), 2), ("new".into(), 9)];
        let json = serde_json::to_string_pretty(&Ordered(&as_reference(&figures)));
        assert_eq!(
            json.expect("serializes"),
            "{\n  \"entries\": 2,\n  \"host_bytes\": 0,\n  \"spillover_bytes\": 0,\n  \
             \"long_bytes\": 0,\n  \"gets_total\": 0,\n  \"sets_total\": 0,\n  \
             \"hits_total\": 3,\n  \"misses_total\": 0,\n  \"evictions_total\": 0\n}"
        );
    }
}
