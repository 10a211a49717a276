//! Log lines on standard error; `RUST_LOG` says which. Standard output belongs to `--help` and `--version`.

use std::io::{IsTerminal as _, stderr};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging for the whole process. A second call changes nothing. What `RUST_LOG` says wrongly is left
/// aside, and named in the log.
pub fn start() {
    let said = std::env::var("RUST_LOG").ok().filter(|said| !said.is_empty());
    let targets = said.as_deref().map(str::parse::<Targets>);
    let default = || Targets::new().with_default(LevelFilter::INFO);
    let (targets, wrong) = match targets {
        None => (default(), None),
        Some(Ok(targets)) => (targets, None),
        Some(Err(error)) => (default(), Some(error)),
    };
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .log_internal_errors(false);
    let started = tracing_subscriber::registry().with(lines).with(targets).try_init();
    if started.is_err() {
        tracing::debug!("logging had been started before");
    }
    if let Some(error) = wrong {
        tracing::warn!(%error, "RUST_LOG can't be read");
    }
}
