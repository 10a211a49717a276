//! A panic in the daemon is a broken invariant: no answer after it could be trusted. It is logged
//! with its place and backtrace, then the process aborts; clients see a miss and the supervisor
//! starts a new incarnation.

use std::backtrace::Backtrace;
use std::panic::PanicHookInfo;

/// Makes every panic of this process end it, whichever thread it happens in.
pub fn abort_on_panic() {
    std::panic::set_hook(Box::new(|info| {
        report(info);
        std::process::abort();
    }));
}

fn report(info: &PanicHookInfo<'_>) {
    let thread = std::thread::current();
    let place = info.location().map(ToString::to_string);
    tracing::error!(
        thread = thread.name().unwrap_or("unnamed"),
        place = place.as_deref().unwrap_or("unknown"),
        backtrace = %Backtrace::force_capture(),
        "panic: {}",
        info.payload_as_str().unwrap_or("no message"),
    );
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::Command;

    use super::*;
    use crate::config::{LogFormat, LogLevel, LogSettings};

    const CHILD: &str = "KVD_FATAL_TEST_CHILD";

    /// Runs in a process of its own, started by the test below; does nothing otherwise.
    #[test]
    fn child_that_panics_in_a_thread() {
        if std::env::var_os(CHILD).is_none() {
            return;
        }
        crate::log::start(&LogSettings { level: LogLevel::Info, format: LogFormat::Json });
        abort_on_panic();
        let thread = std::thread::Builder::new().name("kvd-doomed".to_owned());
        let doomed = thread.spawn(|| panic!("the books do not balance")).unwrap();
        drop(doomed.join());
    }

    #[test]
    fn a_panic_in_any_thread_is_logged_and_aborts_the_process() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "fatal::tests::child_that_panics_in_a_thread", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .unwrap();
        assert_eq!(child.status.signal(), Some(6), "{child:?}");
        let log = String::from_utf8_lossy(&child.stderr);
        for wanted in
            ["panic: the books do not balance", "kvd-doomed", "fatal.rs", "\"level\":\"ERROR\""]
        {
            assert!(log.contains(wanted), "{wanted} is not in {log}");
        }
    }
}
