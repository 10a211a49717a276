//! How figures look to people: bytes, counts, times, tables; and how people write sizes.

use std::io::{self, Write};
use std::time::Duration;

use anyhow::{Context, Result};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{BinaryBytes, HumanCount};

pub(crate) fn bytes(count: u64) -> String {
    BinaryBytes(count).to_string()
}

pub(crate) fn count(count: u64) -> String {
    HumanCount(count).to_string()
}

/// The two largest units.
pub(crate) fn seconds(total: u64) -> String {
    let (days, hours, minutes) = (total / 86_400, total / 3_600 % 24, total / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{total}s"),
        (0, 0, _) => format!("{minutes}m{:02}s", total % 60),
        (0, _, _) => format!("{hours}h{minutes:02}m"),
        _ => format!("{days}d{hours:02}h"),
    }
}

pub(crate) fn millis(total: u64) -> String {
    if total < 10_000 { format!("{total}ms") } else { seconds(total / 1_000) }
}

/// How long a call took.
pub(crate) fn span_of_call(took: Duration) -> String {
    match took.as_micros() {
        micros @ ..10_000 => format!("{micros} µs"),
        ..10_000_000 => format!("{:.1} ms", took.as_secs_f64() * 1e3),
        _ => format!("{:.1} s", took.as_secs_f64()),
    }
}

/// A table without frames whose columns from `numbers_from` on are numbers.
pub(crate) fn table(head: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head.to_vec());
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= numbers_from {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Prints the table without the blanks that fill its last column.
pub(crate) fn print(table: &Table) -> Result<()> {
    let mut out = io::stdout().lock();
    for line in table.lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

pub(crate) fn print_json(value: &impl serde::Serialize) -> Result<()> {
    writeln!(io::stdout().lock(), "{}", serde_json::to_string_pretty(value)?)?;
    Ok(())
}

/// A size: a number, perhaps with a fraction, and perhaps K, M, G or T (powers of 1024).
pub(crate) fn size(text: &str) -> Result<u64> {
    let (number, shift) = match text.char_indices().next_back() {
        Some((at, 'K' | 'k')) => (&text[..at], 10),
        Some((at, 'M' | 'm')) => (&text[..at], 20),
        Some((at, 'G' | 'g')) => (&text[..at], 30),
        Some((at, 'T' | 't')) => (&text[..at], 40),
        _ => (text, 0),
    };
    let number: f64 = number.parse().context("expected a number, or one with K, M, G or T")?;
    let size = number * f64::from(shift).exp2();
    if !(1.0..=1e15).contains(&size) {
        anyhow::bail!("expected at least 1 byte and at most 1e15");
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 1 and 1e15, and fractions of a byte do not matter"
    )]
    Ok(size as u64)
}

/// A time above zero: a number of seconds, or one with ms, s, m or h.
pub(crate) fn span(text: &str) -> Result<Duration> {
    const UNITS: [(&str, f64); 4] = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)));
    let (number, factor) = unit.unwrap_or((text, &1.0));
    let number: f64 = number.parse().context("expected seconds, or a number with ms, s, m or h")?;
    Duration::try_from_secs_f64(number * factor)
        .ok()
        .filter(|span| !span.is_zero())
        .context("expected more than 0 seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_the_daemon_reads_them() {
        for (text, bytes) in [("10", 10), ("64K", 65_536), ("2.5m", 2_621_440), ("1G", 1 << 30)] {
            assert_eq!(size(text).expect(text), bytes);
        }
        for wrong in ["", "0", "-1", "K", "1Q", "nan", "1e99", "0.1"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn spans_are_positive() {
        for (text, millis) in
            [("0.25", 250), ("60s", 60_000), ("5ms", 5), ("1.5m", 90_000), ("1h", 3_600_000)]
        {
            assert_eq!(span(text).expect(text), Duration::from_millis(millis));
        }
        for wrong in ["0", "-1", "soon", "s", "0ms", "1d", "inf", "nan"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn times_show_their_two_largest_units() {
        let shown = [5, 65, 3_700, 90_000].map(seconds);
        assert_eq!(shown, ["5s", "1m05s", "1h01m", "1d01h"]);
        assert_eq!((millis(9_999), millis(10_000)), ("9999ms".into(), "10s".into()));
    }
}
