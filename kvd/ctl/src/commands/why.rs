//! `why`: whether a key is found, and if not, why. Leaves no trace in the daemon.

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use serde::Deserialize;

use super::ls::{Entry, Row};
use crate::exit::codes;
use crate::key::{Key, to_hex};
use crate::sockets::Sockets;
use crate::text;

#[derive(Debug, Args)]
#[command(after_help = codes!("0 explained, whether found or not, 1 no daemon"))]
pub(crate) struct Why {
    #[command(flatten)]
    key: Key,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

/// The daemon's answer: a row, or a reason.
#[derive(Debug, Default, Deserialize)]
struct Answer {
    /// In memory.
    row: Option<Row>,
    /// On a device.
    entry: Option<Entry>,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    explanation: String,
    elsewhere: Option<Elsewhere>,
}

/// A namespace that holds the key.
#[derive(Debug, Deserialize)]
struct Elsewhere {
    model: String,
    compat_key: String,
}

pub(crate) fn run(sockets: &Sockets, why: &Why) -> Result<ExitCode> {
    let key = to_hex(&why.key.bytes()?);
    let space = &why.key.space;
    let query = [("key", &*key), ("model", &*space.model), ("compat_key", &*space.compat_key)];
    let answer: serde_json::Value = sockets.admin()?.get("/v1/why", &query)?;
    if why.json {
        text::print_json(&answer)?;
    } else {
        writeln!(io::stdout(), "{}", in_words(&serde_json::from_value(answer)?))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn in_words(answer: &Answer) -> String {
    let on_device =
        |entry: &Entry| format!("on device {} at {}", entry.device, text::count(entry.offset));
    let (row, entry) = match (&answer.row, &answer.entry) {
        (Some(row), entry) => (row, entry),
        (None, Some(entry)) => {
            let mut words = present(entry.len_bytes, &entry.retention, entry.expires_in_ms);
            words += &format!(", only {}: a fetch loads it", on_device(entry));
            return words;
        }
        (None, None) => return missing(answer),
    };
    let mut words = present(row.len_bytes, &row.retention, row.expires_in_ms);
    if let Some(left_ms) = row.promised_for_ms {
        words += &format!(", promised for {}", text::millis(left_ms));
    }
    if row.pins > 0 {
        words += &format!(", held by {}", row.pins);
    }
    if let Some(entry) = entry {
        words += &format!(", also {}", on_device(entry));
    }
    words
}

fn present(len_bytes: u64, retention: &str, expires_in_ms: Option<u64>) -> String {
    let mut words = format!("present: {} bytes, class {retention}", text::count(len_bytes));
    if let Some(left_ms) = expires_in_ms {
        words += &format!(", expires in {}", text::millis(left_ms));
    }
    words
}

fn missing(answer: &Answer) -> String {
    let mut words = format!("missing ({}): {}", answer.reason, answer.explanation);
    if let Some(Elsewhere { model, compat_key }) = &answer.elsewhere {
        words += &format!("\nfound under model {model:?}, compatibility key {compat_key:?}");
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_and_a_reason_are_put_in_words() {
        let present = r#"{"present": true, "row": {"model": "m", "compat_key": "", "key": "00",
            "len_bytes": 4096, "retention": "long", "expires_in_ms": 1500, "promised_for_ms": null,
            "pins": 2, "payload_offset": 64, "lineage_bytes": 0}}"#;
        let answer = serde_json::from_str(present).expect("an answer");
        assert_eq!(
            in_words(&answer),
            "present: 4,096 bytes, class long, expires in 1500ms, held by 2"
        );
        let entry = r#"{"model": "m", "compat_key": "", "key": "00", "len_bytes": 4096,
            "retention": "long", "expires_in_ms": null, "device": 1, "offset": 8192,
            "lineage_bytes": 0, "in_memory": false}"#;
        let both = present.replace("\"row\"", &format!("\"entry\": {entry}, \"row\""));
        let answer = serde_json::from_str(&both).expect("an answer");
        assert!(in_words(&answer).ends_with("held by 2, also on device 1 at 8,192"));
        let on_disk = format!(r#"{{"present": true, "row": null, "entry": {entry}}}"#);
        let answer = serde_json::from_str(&on_disk).expect("an answer");
        assert_eq!(
            in_words(&answer),
            "present: 4,096 bytes, class long, only on device 1 at 8,192: a fetch loads it"
        );
        let missing = r#"{"present": false, "reason": "other_namespace", "explanation": "compare",
            "elsewhere": {"model": "m", "compat_key": "tp1"}}"#;
        let answer = serde_json::from_str(missing).expect("an answer");
        assert_eq!(
            in_words(&answer),
            "missing (other_namespace): compare\nfound under model \"m\", compatibility key \"tp1\""
        );
    }
}
