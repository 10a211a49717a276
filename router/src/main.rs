//! The life of the process: read the command line, serve until a signal comes, drain.

#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use infera_router::flags::{self, Invocation, Settings};
use infera_router::life::{self, End};
use infera_router::{descriptors, log};

/// The router could not start or go on.
const FAILURE: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    match flags::load(std::env::args_os(), std::env::vars_os()) {
        Ok(Invocation::Serve(settings)) => serve(*settings),
        Ok(Invocation::Print(text)) => print(&text),
        Err(wrong) => {
            complain(&wrong.to_string());
            ExitCode::from(USAGE)
        }
    }
}

fn serve(settings: Settings) -> ExitCode {
    log::start();
    descriptors::raise_limit();
    for remark in &settings.remarks {
        tracing::warn!("{remark}");
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().thread_name("router-io").enable_all().build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            complain(&format!("starting threads: {error}"));
            return ExitCode::from(FAILURE);
        }
    };
    let ended = runtime.block_on(life::run(settings));
    // What is left has been waited for; nothing waits again.
    runtime.shutdown_background();
    match ended {
        Ok(End::Drained) => {
            tracing::info!("bye");
            ExitCode::SUCCESS
        }
        Ok(End::Hurried | End::Broken) => ExitCode::from(FAILURE),
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(FAILURE)
        }
    }
}

fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout(), "{}", text.trim_end()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_closed) => ExitCode::from(FAILURE),
    }
}

fn complain(text: &str) {
    // Nowhere is left to complain to if standard error is closed.
    drop(writeln!(std::io::stderr(), "infera-router: {}", text.trim_end()));
}
