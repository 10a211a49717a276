//! `top`: who holds and does what, refreshed until `q`; with `--once`, printed a single time.
//!
//! `picture.rs` asks the daemon and turns two consecutive answers into what is shown; `screen.rs`
//! shows it on a terminal.

mod picture;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use crate::sockets::Sockets;
use crate::text;
use crate::wrong_usage::WrongUsage;
use picture::Observer;

#[derive(Debug, Args)]
pub(crate) struct Top {
    /// Print once and end
    #[arg(long)]
    once: bool,
    /// Seconds between two looks
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = text::span)]
    interval: Duration,
}

pub(crate) fn run(sockets: &Sockets, top: &Top) -> Result<ExitCode> {
    let mut observer = Observer::new(sockets.admin()?);
    let first = observer.look()?;
    if top.once {
        let mut out = io::stdout().lock();
        for line in &first.summary {
            writeln!(out, "{line}")?;
        }
        drop(out);
        let mut table = text::table(&picture::HEAD, picture::NUMBERS_FROM);
        for session in first.sessions {
            table.add_row(session.cells);
        }
        text::print(&table)?;
    } else if io::stdout().is_terminal() {
        screen::show(first, top.interval, || observer.look())?;
    } else {
        let problem = "the live view needs a terminal: give --once";
        return Err(WrongUsage(problem.to_owned()).into());
    }
    Ok(ExitCode::SUCCESS)
}
