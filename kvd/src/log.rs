//! Log lines on standard error, as text or JSON. Everything the daemon says goes through `tracing`;
//! standard output belongs to `--help`, `--version` and `check-config`.

use std::io::{IsTerminal as _, stderr};

use tracing::level_filters::LevelFilter;

use crate::config::{LogFormat, LogLevel, LogSettings};

/// Starts logging for the whole process. A second call changes nothing.
pub fn start(settings: &LogSettings) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(filter(settings.level))
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .log_internal_errors(false)
        .with_thread_names(true);
    let started = match settings.format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    if started.is_err() {
        tracing::debug!("logging had been started before");
    }
}

const fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warning => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    }
}
