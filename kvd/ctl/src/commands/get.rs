//! `get`: the bytes of one block.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;

use crate::exit::codes;
use crate::key::Key;
use crate::sockets::Sockets;

#[derive(Debug, Args)]
#[command(after_help = codes!("0 found, 1 a miss or no daemon"))]
pub(crate) struct Get {
    #[command(flatten)]
    key: Key,
    /// Write to this file instead of standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(sockets: &Sockets, get: &Get) -> Result<ExitCode> {
    let key = get.key.bytes()?;
    let bytes = sockets.client().get(get.key.space.namespace(), &key)?;
    match &get.output {
        Some(path) => {
            std::fs::write(path, bytes).with_context(|| format!("writing {}", path.display()))?;
        }
        None => {
            let mut out = io::stdout().lock();
            out.write_all(&bytes)?;
            out.flush()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
