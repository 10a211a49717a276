//! `kvd-bench`: the suites of bars. See [`kvd_benches`].

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kvd_benches::l2::{self, Effort};
use kvd_benches::machine;
use kvd_benches::role::Role;

/// Measures infera-kvd against floors on the same machine, in the same run.
///
/// The last lines are `BAR <id> <value> <bound> ok|short`. Exit codes: 0 if every bar is met, else 1; 2 for bad usage.
#[derive(Debug, Parser)]
#[command(name = "kvd-bench", version)]
struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The shared arena: round trips, copies, many clients, growth, waste, memory.
    L2 {
        /// Less of everything: under 50 s.
        #[arg(long)]
        quick: bool,
        /// Only the parts whose name contains this text; the names are told while they run.
        #[arg(long, default_value = "")]
        only: String,
    },
    /// A process that helps a measurement; started by the suites themselves.
    #[command(hide = true)]
    Role {
        #[command(subcommand)]
        role: Role,
    },
}

fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        What::L2 { quick, only } => measure(Effort { quick }, &only),
        What::Role { role } => role.play().map(|()| true),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            // Nowhere is left to complain to if standard error is closed.
            drop(writeln!(std::io::stderr(), "kvd-bench: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn measure(effort: Effort, only: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", machine::line())?;
    let report = l2::run(effort, only)?;
    writeln!(out, "{report}")?;
    Ok(report.is_met())
}
