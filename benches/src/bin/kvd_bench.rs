//! `kvd-bench`: the suites of bars. See [`kvd_benches`].

use std::io::Write as _;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kvd_benches::report::Report;
use kvd_benches::role::Role;
use kvd_benches::suite::Effort;
use kvd_benches::{l2, l3, machine, router};

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
    L2(Chosen),
    /// The disk tier: spills, cold reads, peers, writes for nothing, hits under load, restarts, kills.
    L3(Chosen),
    /// The router's decisions: questions to the index, events into it.
    Router(Chosen),
    /// A process that helps a measurement; started by the suites themselves.
    #[command(hide = true)]
    Role {
        #[command(subcommand)]
        role: Role,
    },
}

#[derive(Debug, clap::Args)]
struct Chosen {
    /// Less of everything: l2 in under 50 s, l3 in some minutes.
    #[arg(long)]
    quick: bool,
    /// Only the parts whose name contains this text; the names are told while they run.
    #[arg(long, default_value = "")]
    only: String,
}

/// A suite: how much of it, and which parts.
type Suite = fn(Effort, &str) -> anyhow::Result<Report>;

fn main() -> ExitCode {
    let done = match Arguments::parse().what {
        What::L2(chosen) => measure(l2::run, &chosen),
        What::L3(chosen) => measure(l3::run, &chosen),
        What::Router(chosen) => measure(router::run, &chosen),
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

fn measure(suite: Suite, chosen: &Chosen) -> anyhow::Result<bool> {
    let mut out = std::io::stdout();
    writeln!(out, "{}", machine::line())?;
    let report = suite(Effort { quick: chosen.quick }, &chosen.only)?;
    writeln!(out, "{report}")?;
    Ok(report.is_met())
}
