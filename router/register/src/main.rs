//! Sidecar that makes an inference engine a worker of `infera-router`.
//!
//! Read in this order: `life.rs` (what happens when), `arguments.rs` (what may be typed), `command_line.rs`, `answers.rs` and
//! `engine.rs` (what an engine says of itself), `record.rs` and `events.rs` (what is made of that), `registrar.rs` and `daemon.rs` (etcd, and
//! this host's cache daemon), `child.rs` and `signals.rs` (the process). `command_line.rs`, `answers.rs`, `record.rs` and `events.rs` do no I/O.

#![forbid(unsafe_code)]

mod answers;
mod arguments;
mod child;
mod command_line;
mod daemon;
mod engine;
mod events;
mod host;
mod http;
mod life;
mod log;
mod record;
mod registrar;
mod signals;

use std::io::{self, Write as _};
use std::process::ExitCode;

use serde_json::Value;

use crate::arguments::Arguments;

/// It could not start or go on.
const FAILURE: u8 = 1;
/// The command line is wrong.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let (arguments, access) = match Arguments::read() {
        Ok(read) => read,
        Err(usage) => {
            // Help is output, wrong usage is an error: clap knows which stream and which code.
            drop(usage.print());
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(USAGE));
        }
    };
    log::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let ended = match runtime {
        Ok(runtime) => {
            runtime.block_on(life::run(arguments, access)).map_err(|error| error.to_string())
        }
        Err(error) => Err(format!("starting: {error}")),
    };
    match ended {
        Ok((code, records)) if print(&records).is_ok() => ExitCode::from(code),
        Ok(_not_printed) => ExitCode::from(FAILURE),
        Err(reason) => {
            tracing::error!("{reason}");
            ExitCode::from(FAILURE)
        }
    }
}

fn print(records: &[Value]) -> io::Result<()> {
    let mut out = io::stdout();
    records.iter().try_for_each(|record| writeln!(out, "{record:#}"))
}
