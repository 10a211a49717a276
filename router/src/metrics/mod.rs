//! `GET /metrics`: the figures of router and workers in the Prometheus text format, read at scrape time. The
//! rows are in `table`; `docs/router.md` repeats them and a test compares the two. What is said of a worker is
//! read from the worker, so that its series leave with it.

mod samples;
mod table;

use axum::extract::State;
use axum::response::IntoResponse;
use hyper::header::CONTENT_TYPE;

use self::samples::Samples;
use self::table::{METRICS, Metric};
use crate::front::{App, Shared};

const TEXT_FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Answers with all metrics.
pub async fn answer(State(app): State<Shared>) -> impl IntoResponse {
    ([(CONTENT_TYPE, TEXT_FORMAT)], render(&app))
}

fn render(app: &App) -> String {
    let fleet = app.fleet.load_full();
    let mut text = String::new();
    for Metric { name, kind, labels, help, read } in &METRICS {
        text.push_str(&format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.as_str()));
        read(app, &fleet, &mut Samples::new(name, labels, &mut text));
    }
    text
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::table::Kind;
    use super::*;

    #[test]
    fn names_follow_the_rule_and_are_unique() {
        let mut names: Vec<&str> = METRICS.iter().map(|metric| metric.name).collect();
        for Metric { name, kind, help, .. } in &METRICS {
            assert!(name.starts_with("infera_"), "{name}");
            assert_eq!(*kind == Kind::Counter, name.ends_with("_total"), "{name}");
            assert!(help.ends_with('.') && !help.contains('\n'), "{name}");
        }
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), METRICS.len());
    }

    #[test]
    fn the_documentation_has_the_same_table() {
        let mut table = "| metric | type | labels | meaning |\n|---|---|---|---|\n".to_owned();
        for Metric { name, kind, labels, help, .. } in &METRICS {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
            table.push_str(&format!("| `{name}` | {} | {labels} | {help} |\n", kind.as_str()));
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/router.md");
        let page = std::fs::read_to_string(&path).unwrap();
        assert!(page.contains(&table), "docs/router.md should contain:\n{table}");
    }
}
