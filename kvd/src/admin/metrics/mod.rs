//! `GET /metrics`: figures of store and daemon in the Prometheus text format, read at scrape time.
//! The rows are in [`table`]; `docs/metrics.md` repeats them and a test compares the two.

mod figures;
mod table;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::IntoResponse;

use self::figures::Figures;
pub(super) use self::figures::load;
use self::table::{Kind, METRICS, Metric, Read};
use super::answer::{Refused, Shared, with};
use crate::daemon::Daemon;
use crate::disk_figures::{DISK_FIGURES, DiskFigure};
use crate::meters::{Histogram, Label as _, Op};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers with all metrics.
pub(super) async fn answer(State(daemon): State<Shared>) -> Result<impl IntoResponse, Refused> {
    let text = with(daemon, render).await?;
    Ok(([(CONTENT_TYPE, TEXT_FORMAT)], text))
}

fn render(daemon: &Daemon) -> String {
    let figures = Figures::of(daemon);
    let mut text = String::new();
    for metric in &METRICS {
        let Metric { name, kind, help, read } = metric;
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str()));
        match read {
            Read::One(read) => text.push_str(&format!("{name} {}\n", read(&figures))),
            Read::Labelled(label, read) => {
                for (value, count) in read(&figures) {
                    text.push_str(&format!("{name}{{{label}=\"{value}\"}} {count}\n"));
                }
            }
            Read::Durations => {
                for op in Op::ALL {
                    durations(&mut text, name, *op, daemon.meters.requests.of(*op));
                }
            }
        }
    }
    for figure in &DISK_FIGURES {
        let DiskFigure { name, help, read } = figure;
        let (kind, value) = (kind_of(name).as_str(), read(&figures.stats.disk));
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n"));
    }
    text
}

fn kind_of(name: &str) -> Kind {
    if name.ends_with("_total") { Kind::Counter } else { Kind::Gauge }
}

/// The series of one op. An op that nobody used has none.
fn durations(text: &mut String, name: &str, op: Op, histogram: &Histogram) {
    let (cumulative, sum_us) = histogram.read();
    let [within @ .., count] = cumulative;
    if count == 0 {
        return;
    }
    let op = op.as_str();
    for (bound_us, below) in Histogram::BOUNDS_US.iter().zip(within) {
        let bound = seconds(*bound_us);
        text.push_str(&format!("{name}_bucket{{op=\"{op}\",le=\"{bound}\"}} {below}\n"));
    }
    text.push_str(&format!("{name}_bucket{{op=\"{op}\",le=\"+Inf\"}} {count}\n"));
    text.push_str(&format!("{name}_sum{{op=\"{op}\"}} {}\n", seconds(sum_us)));
    text.push_str(&format!("{name}_count{{op=\"{op}\"}} {count}\n"));
}

/// Microseconds as decimal seconds, exactly.
fn seconds(us: u64) -> String {
    let text = format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::Duration;

    use super::*;

    #[test]
    fn seconds_are_exact() {
        for (us, wanted) in
            [(0, "0"), (10, "0.00001"), (1_500_000, "1.5"), (10_000_000, "10"), (100, "0.0001")]
        {
            assert_eq!(seconds(us), wanted);
        }
    }

    #[test]
    fn a_histogram_is_cumulative_and_unused_ops_have_no_series() {
        let histogram = Histogram::default();
        let mut text = String::new();
        durations(&mut text, "x_seconds", Op::Fetch, &histogram);
        assert_eq!(text, "");
        histogram.observe(Duration::from_micros(20));
        histogram.observe(Duration::from_secs(60));
        durations(&mut text, "x_seconds", Op::Fetch, &histogram);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "x_seconds_bucket{op=\"fetch\",le=\"0.00001\"} 0");
        assert_eq!(lines[1], "x_seconds_bucket{op=\"fetch\",le=\"0.00003\"} 1");
        assert_eq!(lines[9], "x_seconds_bucket{op=\"fetch\",le=\"10\"} 1");
        assert_eq!(lines[10], "x_seconds_bucket{op=\"fetch\",le=\"+Inf\"} 2");
        assert_eq!(lines[11], "x_seconds_sum{op=\"fetch\"} 60.00002");
        assert_eq!(lines[12], "x_seconds_count{op=\"fetch\"} 2");
    }

    #[test]
    fn names_follow_the_rule_and_are_unique() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        for metric in &METRICS {
            let words = metric.name.strip_prefix("infera_kvd_").unwrap_or_default();
            assert!(!words.is_empty() && !words.contains("__"), "{}", metric.name);
            let counts = metric.kind == Kind::Counter;
            assert_eq!(counts, metric.name.ends_with("_total"), "{}", metric.name);
            assert!(metric.help.ends_with('.') && !metric.help.contains('\n'), "{}", metric.name);
        }
        for figure in &DISK_FIGURES {
            assert!(figure.help.ends_with('.'), "{}", figure.name);
            assert!(figure.name.starts_with("infera_kvd_disk_"), "{}", figure.name);
            names.push(figure.name);
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for Metric { name, kind, help, read } in &METRICS {
            let label = match read {
                Read::One(_) => "–".to_owned(),
                Read::Labelled(label, _) => format!("`{label}`"),
                Read::Durations => "`op`".to_owned(),
            };
            table.push_str(&format!("| `{name}` | {} | {label} | {help} |\n", kind.as_str()));
        }
        for DiskFigure { name, help, .. } in &DISK_FIGURES {
            table.push_str(&format!("| `{name}` | {} | – | {help} |\n", kind_of(name).as_str()));
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/metrics.md");
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains(&table), "docs/metrics.md should contain:\n{table}");
    }
}
