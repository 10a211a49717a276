//! `put`: one block from a file.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use clap::Args;
use kvd_client::Retention;

use crate::exit::codes;
use crate::key::Key;
use crate::sockets::Sockets;
use crate::text;

#[derive(Debug, Args)]
#[command(after_help = codes!("0 stored, 1 refused or no daemon"))]
pub(crate) struct Put {
    #[command(flatten)]
    key: Key,
    /// The file to store; `-` is standard input
    file: PathBuf,
    /// Retention class: none, ephemeral, short or long
    #[arg(long, default_value = "short", value_parser = retention)]
    retention: Retention,
    /// Time to live, in seconds
    #[arg(long, value_name = "SECONDS", value_parser = text::span, allow_negative_numbers = true)]
    ttl: Option<Duration>,
}

pub(crate) fn run(sockets: &Sockets, put: &Put) -> Result<ExitCode> {
    let key = put.key.bytes()?;
    let bytes = read(&put.file).with_context(|| format!("reading {}", put.file.display()))?;
    let namespace = put.key.space.namespace();
    sockets.client().put(namespace, &key, &bytes, put.retention, put.ttl)?;
    Ok(ExitCode::SUCCESS)
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file != Path::new("-") {
        return std::fs::read(file);
    }
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn retention(word: &str) -> Result<Retention> {
    Retention::parse(word).ok_or_else(|| {
        let classes = Retention::ALL.map(Retention::as_str).join(", ");
        anyhow!("expected one of {classes}")
    })
}
