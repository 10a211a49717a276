//! Log lines on standard error, between those of the engine; `RUST_LOG` says which.

use std::io::{IsTerminal as _, stderr};

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging for the whole process.
pub(crate) fn start() {
    let said = std::env::var("RUST_LOG").ok().filter(|said| !said.is_empty());
    let read = said.as_deref().map(str::parse::<Targets>).transpose();
    let (targets, wrong) = match read {
        Ok(targets) => (targets, None),
        Err(error) => (None, Some(error)),
    };
    let targets = targets.unwrap_or_else(|| Targets::new().with_default(LevelFilter::INFO));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .log_internal_errors(false);
    if tracing_subscriber::registry().with(lines).with(targets).try_init().is_err() {
        tracing::debug!("logging had been started before");
    }
    if let Some(error) = wrong {
        tracing::warn!(%error, "RUST_LOG can't be read");
    }
}
