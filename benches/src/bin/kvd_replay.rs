//! `kvd-replay`: a request trace through a running daemon. See [`kvd_benches::replay`].

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kvd_benches::replay::dispatch::{self, Plan};
use kvd_benches::replay::engine::Engine;
use kvd_benches::replay::{recall, trace};

/// Replays a request trace through a running infera-kvd and checks every byte that comes back.
///
/// Exit codes: 0 if every byte was right and every request answered, else 1; 2 for bad usage.
#[derive(Debug, Parser)]
#[command(name = "kvd-replay", version)]
struct Arguments {
    /// Socket of the daemon.
    #[arg(long)]
    socket: PathBuf,
    /// The trace: a JSON object a line, with `input_length` and `hash_ids`.
    #[arg(long)]
    trace: PathBuf,
    /// Engine processes that take part.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=64))]
    engines: u16,
    /// Replays nothing, but asks for every block of the trace once: what a restart has left.
    #[arg(long)]
    recall: bool,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, Subcommand)]
enum Role {
    /// One engine; started by the replay itself.
    #[command(hide = true)]
    Engine {
        /// Its number.
        index: usize,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match arguments.role {
        None if arguments.recall => recall(&arguments),
        None => replay(arguments),
        Some(Role::Engine { index }) => serve(arguments, index).map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nowhere is left to complain to if standard error is closed.
            drop(writeln!(std::io::stderr(), "kvd-replay: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn replay(arguments: Arguments) -> anyhow::Result<bool> {
    let Arguments { socket, trace, engines, .. } = arguments;
    let summary = dispatch::run(&Plan { socket, trace, engines: engines.into() })?;
    writeln!(std::io::stdout(), "{summary}")?;
    Ok(summary.is_right())
}

fn recall(arguments: &Arguments) -> anyhow::Result<bool> {
    let recall = recall::run(&arguments.socket, &arguments.trace)?;
    writeln!(std::io::stdout(), "{recall}")?;
    Ok(recall.is_right())
}

fn serve(arguments: Arguments, index: usize) -> anyhow::Result<()> {
    let requests = trace::load(&arguments.trace)?;
    let (input, output) = (std::io::stdin().lock(), std::io::stdout().lock());
    Engine::new(arguments.socket, index).serve(&requests, input, output)
}
