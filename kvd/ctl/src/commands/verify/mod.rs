//! `verify`: reads every block of a device and compares its checksum.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use kvd_client::Namespace;
use kvd_disk::{Config, Disk, Engine, FileId};
use kvd_store::tablespace::Tablespace;
use kvd_store::tablespace::recovery::Report;
use serde::Serialize;
use serde_json::json;

use crate::exit::codes;
use crate::key::to_hex;
use crate::offline::folder::Folder;
use crate::offline::recover::{recover, write_repairs};
use crate::offline::sweep::{Verdict, Wanted, sweep};
use crate::text;

/// Read every block of a device and compare its checksum
///
/// For a device that no daemon uses: it is locked meanwhile, and a daemon's lock is respected. Journals and snapshots are read as
/// a starting daemon reads them; then every block is read from the containers, in the order of the device.
///
/// Nothing is written, unless --drop-bad asks for it. A daemon finds bad blocks too, when somebody asks for them: they are
/// misses then, never wrong bytes.
#[derive(Debug, Args)]
#[command(after_help = codes!("0 no bad block is left, 1 one is, or the device is in use"))]
pub(crate) struct Verify {
    /// The device's directory, one of the daemon's --long-paths
    dir: PathBuf,
    /// Forget the bad blocks: the journal gets a record of each
    #[arg(long)]
    drop_bad: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    json: bool,
}

/// Reads in flight: enough for any device, few enough for the memory of a small host.
const DEPTH: usize = 32;

/// A block that is not what was stored.
#[derive(Debug, Serialize)]
struct Bad {
    model: String,
    compat_key: String,
    key: String,
    len_bytes: u64,
    offset: u64,
    what: String,
    #[serde(skip)]
    raw_key: Box<[u8]>,
}

#[derive(Debug, Default)]
struct Found {
    blocks: u64,
    bytes: u64,
    bad: Vec<Bad>,
}

const HEAD: [&str; 6] = ["MODEL", "COMPAT KEY", "KEY", "WHAT", "BYTES", "OFFSET"];
const NUMBERS_FROM: usize = 4;

pub(crate) fn run(verify: &Verify) -> Result<ExitCode> {
    let folder = Folder::open(&verify.dir)?;
    let lock = folder.lock()?;
    let began = Instant::now();
    if verify.drop_bad {
        folder.settle()?;
    }
    let containers = folder.containers()?;
    let (mut tablespace, report) = recover(&folder, containers.len())?;
    let config = Config { engine: Engine::Auto, depth: DEPTH, arena: None, name: "verify".into() };
    let mut disk = kvd_disk::open(config)?.disk;
    for (number, container) in (0..).zip(containers) {
        if let Some(container) = container {
            disk.attach(FileId(number), container);
        }
    }
    let found = check(disk.as_mut(), folder.superblock.container_bytes, &tablespace)?;
    disk.shut_down();
    let mut dropped = 0;
    if verify.drop_bad {
        for bad in &found.bad {
            let namespace = Namespace { model: &bad.model, compat_key: &bad.compat_key };
            dropped += u64::from(tablespace.drop_corrupt(namespace, &bad.raw_key));
        }
        write_repairs(&folder, &mut tablespace)?;
    }
    drop(lock);
    let outcome = Outcome { folder, report, found, dropped, took: began.elapsed() };
    if verify.json {
        outcome.print_json()?
    } else {
        outcome.print()?
    }
    let is_clean = outcome.found.bad.len() as u64 == dropped;
    Ok(if is_clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Looks at every block that the tablespace knows.
fn check(disk: &mut dyn Disk, container_bytes: u64, tablespace: &Tablespace) -> Result<Found> {
    let wanted = tablespace.blocks().map(|block| Wanted {
        start: block.start,
        len_bytes: block.len_bytes.into(),
        checksum: block.checksum,
        key: block.key.into(),
    });
    let mut wanted: Vec<Wanted> = wanted.collect();
    wanted.sort_unstable_by_key(|block| block.start);
    let blocks = wanted.len() as u64;
    let bytes = wanted.iter().map(|block| block.len_bytes).sum();
    let style = ProgressStyle::with_template(
        "verify   {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}",
    )?;
    let bar = ProgressBar::new(bytes).with_style(style);
    let mut wrong = BTreeMap::new();
    sweep(disk, container_bytes, &wanted, |block, verdict| {
        bar.inc(block.len_bytes);
        let what = match verdict {
            Verdict::Good => return Ok(()),
            Verdict::Corrupt(found) => {
                format!("corrupt: checksum {found:016x} instead of {:016x}", block.checksum)
            }
            Verdict::Unreadable(fault) => format!("unreadable: {fault}"),
        };
        wrong.insert(block.start, what);
        Ok(())
    })?;
    bar.finish_and_clear();
    let bad = tablespace.blocks().filter_map(|block| {
        Some(Bad {
            model: block.namespace.model.to_owned(),
            compat_key: block.namespace.compat_key.to_owned(),
            key: to_hex(block.key),
            len_bytes: block.len_bytes.into(),
            offset: block.start,
            what: wrong.remove(&block.start)?,
            raw_key: block.key.into(),
        })
    });
    Ok(Found { blocks, bytes, bad: bad.collect() })
}

/// All there is to say.
struct Outcome {
    folder: Folder,
    report: Report,
    found: Found,
    dropped: u64,
    took: Duration,
}

impl Outcome {
    fn print(&self) -> Result<()> {
        let Self { folder, report, found, .. } = self;
        let mut out = io::stdout().lock();
        writeln!(out, "{}: {}", folder.path().display(), folder.superblock)?;
        writeln!(out, "journal and snapshot: {report}")?;
        if report.is_damaged() {
            writeln!(out, "parts of them are damaged: blocks that only those knew are forgotten")?;
        }
        writeln!(
            out,
            "{} blocks read, {} in {}: {} bad",
            text::count(found.blocks),
            text::bytes(found.bytes),
            text::span_of_call(self.took),
            text::count(found.bad.len() as u64),
        )?;
        if found.bad.is_empty() {
            return Ok(());
        }
        let mut table = text::table(&HEAD, NUMBERS_FROM);
        for bad in &found.bad {
            table.add_row([
                bad.model.clone(),
                bad.compat_key.clone(),
                bad.key.clone(),
                bad.what.clone(),
                text::count(bad.len_bytes),
                text::count(bad.offset),
            ]);
        }
        drop(out);
        text::print(&table)?;
        match self.dropped {
            0 => writeln!(io::stderr(), "nothing was changed; --drop-bad forgets the bad blocks")?,
            dropped => writeln!(io::stdout(), "forgotten: {}", text::count(dropped))?,
        }
        Ok(())
    }

    fn print_json(&self) -> Result<()> {
        text::print_json(&json!({
            "path": self.folder.path().display().to_string(),
            "blocks": self.found.blocks,
            "bytes": self.found.bytes,
            "bad": self.found.bad,
            "dropped": self.dropped,
            "recovery": self.report.to_string(),
            "recovery_damaged": self.report.is_damaged(),
        }))
    }
}

#[cfg(test)]
pub(crate) mod tests;
