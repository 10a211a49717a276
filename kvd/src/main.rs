//! The life of the process: read the configuration, start, wait for a signal, drain.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use infera_kvd::config::{self, Invocation, Settings};
use infera_kvd::life::{Event, HandOver, Running};
use infera_kvd::signals::Signals;
use infera_kvd::succession::Succession;
use infera_kvd::{descriptors, doctor, fatal, log};
use kvd_shm::nudge;

/// The daemon could not start or go on.
const FAILURE: u8 = 1;
/// The command line or the configuration is wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    // First of all: whatever is open now came from outside.
    let succession = Succession::of_process();
    match config::from_process() {
        Ok(Invocation::Serve(settings)) => serve(*settings, succession),
        Ok(Invocation::CheckConfig(settings)) => report(&settings),
        Ok(Invocation::Doctor { settings, json }) => examine(&settings, json),
        Ok(Invocation::Print(text)) => print(&text),
        Err(problems) => {
            complain(&problems.to_string());
            ExitCode::from(USAGE)
        }
    }
}

fn serve(settings: Settings, succession: Succession) -> ExitCode {
    // Blocked before the first thread exists, so that every thread inherits it and only this one
    // hears the signals.
    let signals = match Signals::block(succession.manager.is_there()) {
        Ok(signals) => signals,
        Err(error) => {
            complain(&format!("blocking signals: {error}"));
            return ExitCode::from(FAILURE);
        }
    };
    log::start(&settings.log);
    fatal::abort_on_panic();
    succession.heritage.log_remarks();
    descriptors::raise_limit(settings.limits.sessions_max, settings.disk.paths.len());
    for remark in settings.report.remarks() {
        tracing::warn!("{remark}");
    }
    // Before the first session thread: a nudge would end the process.
    if let Err(error) = nudge::listen() {
        tracing::error!(%error, "a signal handler could not be set");
        return ExitCode::from(FAILURE);
    }
    let running = match Running::start(settings, succession) {
        Ok(running) => running,
        Err(error) => {
            tracing::error!("{error}");
            return ExitCode::from(FAILURE);
        }
    };
    tracing::info!(
        socket = %running.daemon().settings.socket.display(),
        epoch = running.daemon().status.epoch,
        arena_bytes = running.daemon().arena.bytes(),
        "serving"
    );
    serve_on(running, signals)
}

/// Until a signal ends the daemon, or a successor has taken over.
fn serve_on(mut running: Running, signals: Signals) -> ExitCode {
    loop {
        let outcome = match running.wait(&signals) {
            Ok(Event::End(signal)) => {
                tracing::info!(signal, "draining; a second signal exits at once");
                signals.exit_on_next(FAILURE);
                running.drain();
                tracing::info!("bye");
                return ExitCode::SUCCESS;
            }
            Ok(Event::Reload) => running.reload(),
            Ok(Event::Successor(line)) => running.hand_over(line, None),
            Err(error) => {
                tracing::error!(%error, "waiting for signals failed");
                running.drain();
                return ExitCode::from(FAILURE);
            }
        };
        match outcome {
            HandOver::Done => {
                tracing::info!("handed over to a successor; bye");
                return ExitCode::SUCCESS;
            }
            HandOver::Stays(goes_on) => running = *goes_on,
        }
    }
}

fn report(settings: &Settings) -> ExitCode {
    let mut text = settings.report.to_string();
    for disk in doctor::disks_too_small(settings) {
        text += &format!("warning: {disk}\n");
    }
    print(&text)
}

fn examine(settings: &Settings, json: bool) -> ExitCode {
    let report = doctor::examine(settings);
    let printed = print(&if json { report.as_json() } else { report.to_string() });
    if report.has_failed() { ExitCode::from(FAILURE) } else { printed }
}

fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_closed) => ExitCode::from(FAILURE),
    }
}

fn complain(text: &str) {
    // Nowhere is left to complain to if standard error is closed.
    drop(writeln!(std::io::stderr(), "infera-kvd: {}", text.trim_end()));
}
