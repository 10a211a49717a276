//! What a suite has found: rows for people, bars for scripts.

use std::fmt;

use comfy_table::{Table, presets};

use crate::bar::Bar;

/// Rows and bars in the order in which they were found.
#[derive(Clone, Debug, Default)]
pub struct Report {
    rows: Vec<[String; 4]>,
    bars: Vec<Bar>,
}

impl Report {
    /// A figure beside the floor that it is compared with.
    pub fn compare(&mut self, what: impl Into<String>, ours: String, floor: String, ratio: f64) {
        self.rows.push([what.into(), ours, floor, format!("{ratio:.2}")]);
    }

    /// A figure that stands by itself.
    pub fn note(&mut self, what: impl Into<String>, figure: impl Into<String>) {
        self.rows.push([what.into(), figure.into(), String::new(), String::new()]);
    }

    /// A figure that has a bound.
    pub fn bar(&mut self, bar: Bar) {
        self.bars.push(bar);
    }

    /// Whether there are bars and all are met.
    #[must_use]
    pub fn is_met(&self) -> bool {
        !self.bars.is_empty() && self.bars.iter().all(Bar::is_met)
    }
}

/// The table, then a line for each bar.
impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_header(["figure", "ours", "floor", "ratio"]);
        for row in &self.rows {
            table.add_row(row);
        }
        write!(out, "{table}")?;
        for bar in &self.bars {
            write!(out, "\n{bar}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_short_bar_spoils_it_and_so_does_none_at_all() {
        let mut report = Report::default();
        assert!(!report.is_met());
        report.bar(Bar::at_most("a", 1.0, 2.0));
        assert!(report.is_met());
        report.bar(Bar::at_least("b", 1.0, 2.0));
        assert!(!report.is_met());
        assert!(report.to_string().ends_with("BAR a 1.000 <=2 ok\nBAR b 1.000 >=2 short"));
    }
}
