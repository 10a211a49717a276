//! The operator's tool for infera-kvd.
//!
//! `arguments.rs` is what may be typed, `commands/` has a file for each command. Commands that move
//! blocks or figures go over the daemon's socket, like any client; those that look inside ask its
//! admin socket (`admin.rs`); those that look at the devices of the disk tier need none (`offline/`).
//!
//! Exit codes (`exit.rs`): 0 done, 1 failed (no daemon, a miss, a refusal), 2 wrong usage, 3 permission denied.

#![forbid(unsafe_code)]

mod admin;
mod advice;
mod arguments;
mod commands;
mod deadline;
mod devices;
mod exit;
mod key;
mod model;
mod offline;
mod permission;
mod sockets;
mod text;
mod wrong_usage;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use arguments::{Arguments, Command};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(usage) => {
            // Help is output, wrong usage is an error: clap knows which stream and which code.
            drop(usage.print());
            return ExitCode::from(u8::try_from(usage.exit_code()).unwrap_or(exit::USAGE));
        }
    };
    match run(arguments) {
        Ok(code) => code,
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            drop(writeln!(io::stderr(), "kvdctl: {}", advice::complaint(&error)));
            if let Some(words) = advice::advice(&error) {
                drop(writeln!(io::stderr(), "hint: {words}"));
            }
            exit::of(&error)
        }
    }
}

fn run(arguments: Arguments) -> Result<ExitCode> {
    let sockets = arguments.sockets;
    match arguments.command {
        Command::Stat(stat) => commands::stat::run(&sockets, &stat),
        Command::Ls(ls) => commands::ls::run(&sockets, &ls),
        Command::Get(get) => commands::get::run(&sockets, &get),
        Command::Put(put) => commands::put::run(&sockets, &put),
        Command::Clear(clear) => commands::clear::run(&sockets, &clear),
        Command::Drain(drain) => commands::drain::run(&sockets, &drain),
        Command::Size(size) => commands::size::run(&size),
        Command::Classify(classify) => commands::classify::run(&classify),
        Command::Verify(verify) => commands::verify::run(&verify),
        Command::DumpJournal(dump) => commands::dump_journal::run(&dump),
        Command::Events(events) => commands::events::run(&sockets, &events),
        Command::Why(why) => commands::why::run(&sockets, &why),
        Command::Bench(bench) => commands::bench::run(&sockets, &bench),
        Command::Top(top) => commands::top::run(&sockets, &top),
    }
}

/// `kvdctl ls | head` is no failure.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.root_cause().downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
