//! `top`: who holds and does what, refreshed until `q`; with `--once`, printed a single time.
//!
//! `picture.rs` asks the daemon and turns two consecutive answers into what is shown; `screen.rs`
//! shows it on a terminal, and `columns.rs` knows what fits there.

mod columns;
mod picture;
mod screen;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use ratatui::crossterm::terminal;

use crate::exit::codes;
use crate::sockets::Sockets;
use crate::text;
use crate::wrong_usage::WrongUsage;
use columns::broken;
use picture::{HEAD, NUMBERS_FROM, Observer, Picture};

#[derive(Debug, Args)]
#[command(after_help = codes!("0 done, 1 no daemon"))]
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
        print(&first, width())?;
    } else if io::stdout().is_terminal() {
        screen::show(first, top.interval, || observer.look())?;
    } else {
        let problem = "the live view needs a terminal: give --once";
        return Err(WrongUsage(problem.to_owned()).into());
    }
    Ok(ExitCode::SUCCESS)
}

/// How many characters fit beside each other: all of them where no terminal says otherwise.
fn width() -> usize {
    let is_terminal = io::stdout().is_terminal();
    let size = is_terminal.then(terminal::size).and_then(Result::ok);
    let columns = size.map(|(columns, _)| usize::from(columns)).filter(|columns| *columns > 0);
    columns.unwrap_or(usize::MAX)
}

fn print(picture: &Picture, width: usize) -> Result<()> {
    let mut out = io::stdout().lock();
    for line in picture.summary.iter().flat_map(|line| broken(line, width)) {
        writeln!(out, "{line}")?;
    }
    drop(out);
    let columns: Vec<usize> =
        picture.columns(width).into_iter().map(|(column, _)| column).collect();
    let head: Vec<&str> = columns.iter().map(|column| HEAD[*column]).collect();
    let numbers_from = columns.iter().filter(|column| **column < NUMBERS_FROM).count();
    let mut table = text::table(&head, numbers_from);
    for session in &picture.sessions {
        table.add_row(columns.iter().map(|column| &session.cells[*column]));
    }
    text::print(&table)
}
