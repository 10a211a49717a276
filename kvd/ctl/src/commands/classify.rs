//! `classify`: what is under a directory, and how the daemon would do I/O there. Needs no daemon.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use kvd_disk::classify::{Mode, Roots, Storage, classify};
use kvd_store::tablespace::geometry::DIRECTORY;
use nix::errno::Errno;
use nix::unistd::{AccessFlags, access};
use serde_json::{Value, json};

use crate::exit::codes;
use crate::permission::{Barrier, Forbidden};
use crate::text;

/// Tell what is under a directory and how the daemon would do I/O there
///
/// Run it on a directory that is to become one of --long-paths, as the user that the daemon runs as. It looks at the mount and
/// at the devices under it, and tries direct I/O on a temporary file of a few KiB. The daemon decides the same way when
/// it starts.
#[derive(Debug, Args)]
#[command(after_help = codes!("0 told, 1 no directory, or one that cannot be written to"))]
pub(crate) struct Classify {
    /// The directory
    path: PathBuf,
    /// As the daemon's --io-mode
    #[arg(long, value_enum, default_value_t = IoMode::Auto, value_name = "MODE")]
    io_mode: IoMode,
    /// Print the decision as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum IoMode {
    /// Direct where it pays and works
    Auto,
    /// Direct wherever it works
    Direct,
    /// Through the page cache
    Buffered,
}

pub(crate) fn run(asked: &Classify) -> Result<ExitCode> {
    // What a daemon has made there already is what it uses: only that must be its own.
    let own = asked.path.join(DIRECTORY);
    let path = if own.is_dir() { &own } else { &asked.path };
    look_at(path)?;
    let mode = match asked.io_mode {
        IoMode::Auto => Mode::Auto,
        IoMode::Direct => Mode::Direct,
        IoMode::Buffered => Mode::Buffered,
    };
    let storage = classify(path, mode, &Roots::default())?;
    if asked.json {
        text::print_json(&as_json(&storage))?;
    } else {
        print(&storage)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a daemon of this user could use the directory at all: what is tried there would fail for that reason only.
fn look_at(path: &Path) -> Result<()> {
    match access(path, AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK) {
        Ok(()) => Ok(()),
        Err(Errno::EACCES) => Err(Forbidden(Barrier::before(path)).into()),
        Err(errno) => Err(io::Error::from(errno)).with_context(|| path.display().to_string()),
    }
}

fn as_json(storage: &Storage) -> Value {
    json!({
        "io": storage.io_mode(),
        "alignment_bytes": storage.alignment_bytes,
        "depth": storage.depth,
        "file_system": storage.file_system.to_string(),
        "mount_point": storage.mount_point.display().to_string(),
        "device": storage.device.as_ref().map(ToString::to_string),
        "device_kind": storage.device.as_ref().map(|device| device.worst().as_str()),
        "why": storage.why,
    })
}

fn print(storage: &Storage) -> io::Result<()> {
    let mut out = io::stdout().lock();
    write!(out, "{} I/O", storage.io_mode())?;
    if storage.direct {
        write!(out, " in multiples of {} bytes", storage.alignment_bytes)?;
    }
    writeln!(out, ", at most {} operations at once", storage.depth)?;
    storage.why.iter().try_for_each(|reason| writeln!(out, "- {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvd_disk::classify::{Device, DeviceKind};

    #[test]
    fn a_decision_has_a_form_for_scripts() {
        let drive = |name: &str| Device {
            name: name.to_owned(),
            kind: DeviceKind::Nvme,
            below: Vec::new(),
        };
        let array =
            Device { name: "md0".into(), kind: DeviceKind::Md, below: vec![drive("nvme0n1")] };
        let here = classify(&std::env::temp_dir(), Mode::Buffered, &Roots::default());
        let here = here.expect("a directory");
        let storage = Storage { device: Some(array), depth: 64, why: vec!["so".into()], ..here };
        let shown = as_json(&storage);
        assert_eq!((&shown["io"], &shown["depth"]), (&json!("buffered"), &json!(64)));
        assert_eq!(shown["device_kind"], "nvme");
        assert_eq!(shown["device"], "md0 (md) over nvme0n1 (nvme)");
        assert_eq!(shown["why"], json!(["so"]));
    }
}
