//! Log lines on standard error, as text or JSON. Everything the daemon says goes through `tracing`;
//! standard output belongs to `--help`, `--version`, `check-config` and `doctor`.
//!
//! Where standard error leads to systemd's journal, each line begins with its priority (`<4>`, see
//! `sd-daemon(3)`), which the journal takes off again, and bears no time, for the journal has its own.

use std::fmt;
use std::io::{IsTerminal as _, stderr};

use nix::sys::stat::fstat;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::{DefaultFields, Format, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::{LogFormat, LogLevel, LogSettings};

/// Starts logging for the whole process. A second call changes nothing.
pub fn start(settings: &LogSettings) {
    let builder = tracing_subscriber::fmt()
        .with_max_level(filter(settings.level))
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .log_internal_errors(false);
    let plain = Format::default().with_thread_names(true);
    let json = plain.clone().json().flatten_event(true);
    let started = match (settings.format, leads_to_journal()) {
        (LogFormat::Text, false) => builder.event_format(plain).try_init(),
        (LogFormat::Text, true) => builder
            .fmt_fields(DefaultFields::new())
            .event_format(ForJournal(plain.without_time()))
            .try_init(),
        (LogFormat::Json, false) => {
            builder.fmt_fields(JsonFields::new()).event_format(json).try_init()
        }
        (LogFormat::Json, true) => builder
            .fmt_fields(JsonFields::new())
            .event_format(ForJournal(json.without_time()))
            .try_init(),
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

/// Whether standard error is the stream that the service manager connected to the journal: it says so
/// by device and inode, for the variable is inherited by processes whose streams lead elsewhere.
fn leads_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(stderr()).is_ok_and(|file| stream == format!("{}:{}", file.st_dev, file.st_ino))
}

/// Another format with the priority in front of each line: what a backtrace breaks into lines stays
/// an error.
struct ForJournal<F>(F);

impl<S, N, F> FormatEvent<S, N> for ForJournal<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut text = String::new();
        self.0.format_event(context, Writer::new(&mut text), event)?;
        let priority = priority(*event.metadata().level());
        text.lines().try_for_each(|line| writeln!(writer, "<{priority}>{line}"))
    }
}

/// As `syslog(3)` numbers them.
fn priority(level: Level) -> u8 {
    match level {
        Level::ERROR => 3,
        Level::WARN => 4,
        Level::INFO => 6,
        _ => 7,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;
    use std::process::Command;

    use super::*;

    /// Which format the child logs in; without it the child does nothing.
    const CHILD: &str = "KVD_LOG_TEST_CHILD";

    /// Runs in a process of its own, started by the tests below.
    #[test]
    fn child_that_logs() {
        let Ok(format) = std::env::var(CHILD) else { return };
        let format = if format == "json" { LogFormat::Json } else { LogFormat::Text };
        start(&LogSettings { level: LogLevel::Debug, format });
        tracing::error!(path = "/data", "one line\nand another");
        tracing::warn!(left = 3, "careful");
        tracing::info!("serving");
        tracing::debug!("details");
    }

    /// What a child writes whose standard error is, or is not, what `JOURNAL_STREAM` names.
    fn logged(format: &str, is_journal: bool) -> Vec<String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = File::create(&path).unwrap();
        let known = file.metadata().unwrap();
        let inode = if is_journal { known.ino() } else { known.ino() + 1 };
        let status = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "log::tests::child_that_logs", "--nocapture"])
            .env(CHILD, format)
            .env("JOURNAL_STREAM", format!("{}:{inode}", known.dev()))
            .stderr(file)
            .status();
        assert!(status.unwrap().success());
        std::fs::read_to_string(&path).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn the_journal_gets_a_priority_on_each_line_and_no_time() {
        let lines = logged("text", true);
        let priorities: Vec<&str> = lines.iter().map(|line| &line[..3]).collect();
        assert_eq!(priorities, ["<3>", "<3>", "<4>", "<6>", "<7>"], "{lines:#?}");
        assert!(lines[0].starts_with("<3>ERROR"), "{lines:#?}");
        assert!(lines[1].contains("path=\"/data\""), "fields are part of the line: {lines:#?}");
        assert!(lines[2].contains("careful left=3"), "{lines:#?}");
    }

    #[test]
    fn json_stays_json_behind_its_priority() {
        let lines = logged("json", true);
        let warning = lines[1].strip_prefix("<4>").expect("its priority");
        let warning: serde_json::Value = serde_json::from_str(warning).unwrap();
        assert_eq!((&warning["left"], &warning["level"]), (&3.into(), &"WARN".into()));
        assert_eq!((&warning["message"], warning.get("timestamp")), (&"careful".into(), None));
    }

    #[test]
    fn any_other_stream_gets_times_and_no_priorities() {
        for format in ["text", "json"] {
            let lines = logged(format, false);
            assert!(lines.iter().all(|line| !line.starts_with('<')), "{lines:#?}");
            assert!(
                lines[0].contains("T0") || lines[0].contains("T1") || lines[0].contains("T2"),
                "{lines:#?}"
            );
        }
    }
}
