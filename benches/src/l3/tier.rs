//! The stage of the suite: a directory on a real disk, and daemons that come and go over it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use super::{CONTAINER, DEPTH};
use crate::daemon::Daemon;
use crate::figures::Figures;
use crate::floor::fio::Part;
use crate::patience;

/// How long the disk may take for whatever is waited for.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between two looks at the figures. A look costs some tens of microseconds.
const PAUSE: Duration = Duration::from_micros(250);

/// A directory, and the arguments of every daemon over it.
#[derive(Debug)]
pub struct Tier {
    folder: TempDir,
    arguments: Vec<String>,
}

impl Tier {
    /// An empty directory beside this program: there, unlike in `/tmp`, is a disk.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn new(arguments: &[&str]) -> anyhow::Result<Self> {
        let folder = folder("tier")?;
        let mut all = vec!["--long-path".to_owned(), folder.path().display().to_string()];
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        Ok(Self { folder, arguments: all })
    }

    /// As [`Tier::new`], with the depth that fio gets and containers that it can go over.
    ///
    /// # Errors
    /// As there.
    pub fn beside_fio(arena: &str, region: &str) -> anyhow::Result<Self> {
        let depth = DEPTH.to_string();
        Self::new(&[
            "--max-bytes",
            arena,
            "--long-bytes",
            region,
            "--tablespace-container-bytes",
            CONTAINER,
            "--long-workers-per-shard",
            &depth,
        ])
    }

    /// Starts a daemon and waits until its arena is there and everything is back that the directory holds.
    ///
    /// # Errors
    /// If it does not start or takes too long; with its log.
    pub fn start(&self) -> anyhow::Result<Daemon> {
        let mut daemon = self.launch()?;
        daemon.wait_for_arena()?;
        until(&daemon, "the disk tier to be back", Figures::is_disk_back)?;
        Ok(daemon)
    }

    /// The same without waiting for anything.
    ///
    /// # Errors
    /// If it does not start.
    pub fn launch(&self) -> anyhow::Result<Daemon> {
        let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
        Daemon::launch(&arguments)
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// The daemon's own part of it.
    #[must_use]
    pub fn inside(&self) -> PathBuf {
        self.path().join("infera-kvd")
    }

    /// Parts of its first containers, one for each of so many jobs: the very bytes that the daemon reads and writes.
    ///
    /// # Errors
    /// If there are fewer containers, or they are shorter.
    pub fn parts(&self, jobs: u32, len_bytes: u64) -> anyhow::Result<Vec<Part>> {
        let part = |job| {
            let file = self.inside().join(format!("container-{job:05}"));
            let held = file.metadata().with_context(|| format!("looking at {}", file.display()))?;
            if held.len() < len_bytes {
                bail!("{} has {} bytes, {len_bytes} are needed", file.display(), held.len());
            }
            Ok(Part { file, offset_bytes: 0, len_bytes })
        };
        (0..jobs).map(part).collect()
    }

    /// Bytes that the daemon's part of it takes on the disk, as `du` counts.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn allocated_bytes(&self) -> anyhow::Result<u64> {
        use std::os::unix::fs::MetadataExt as _;
        let mut bytes = 0;
        for entry in self.inside().read_dir().context("listing the directory")? {
            bytes += entry?.metadata()?.blocks() * 512;
        }
        Ok(bytes)
    }
}

/// An empty folder on the disk on which this program lies.
///
/// # Errors
/// If it cannot be made.
pub fn folder(name: &str) -> anyhow::Result<TempDir> {
    let program = std::env::current_exe().context("finding this program")?;
    let beside = program.parent().context("a program without a folder")?;
    tempfile::Builder::new()
        .prefix(&format!("kvd-bench-{name}-"))
        .tempdir_in(beside)
        .context("making a folder on the disk")
}

/// Waits until the figures are as they should be, and tells how long that took.
///
/// # Errors
/// If that takes too long, or the daemon is gone; with its log.
pub fn until(
    daemon: &Daemon,
    what: &str,
    mut is_so: impl FnMut(&Figures) -> bool,
) -> anyhow::Result<Duration> {
    let client = daemon.client("figures");
    let begun = Instant::now();
    loop {
        let figures = Figures::read(&client).with_context(|| daemon.log())?;
        if is_so(&figures) {
            return Ok(begun.elapsed());
        }
        if begun.elapsed() > PATIENCE {
            bail!("waited {PATIENCE:?} for {what}; {figures:?}\n{}", daemon.log());
        }
        patience::pause(PAUSE);
    }
}
