//! `stat`: the daemon's figures, over the socket that engines use, and its devices, where the admin socket may be asked.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde_json::{Map, Value};

use crate::devices::{self, Devices};
use crate::sockets::Sockets;
use crate::text;

#[derive(Debug, Args)]
pub(crate) struct Stat {
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
        let mut table = text::table(&["figure", "value", ""], 1);
        for (name, value) in figures {
            let readable = if name.ends_with("bytes") { text::bytes(value) } else { String::new() };
            table.add_row([name, text::count(value), readable]);
        }
        text::print(&table)?;
        // Figures are for everybody, devices for whoever may ask the admin socket.
        if let Ok(found) = sockets.admin()?.get::<Devices>("/v1/stats", &[]) {
            print_devices(&found)?;
        }
    }
    Ok(ExitCode::SUCCESS)
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
