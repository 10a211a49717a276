//! Directories of the disk tier, and what daemons and clients do with them in tests.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use kvd_client::{Client, ClientError, MissReason, Retention};
use serde_json::Value;
use tempfile::TempDir;

use crate::content::bytes_of;
use crate::engine::NAMESPACE;
use crate::until::{until_true, within};
use crate::{Daemon, Launch, PATIENCE};

/// The daemon's own sub-directory.
pub const OURS: &str = "infera-kvd";

/// A directory of the disk tier that outlives daemons; it is removed with this value.
#[derive(Debug)]
pub struct Directory {
    folder: TempDir,
}

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}

impl Directory {
    /// An empty one.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("kvd-disk-").tempdir_in("/tmp");
        Self { folder: folder.expect("a folder in /tmp") }
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A file of the daemon in it.
    #[must_use]
    pub fn ours(&self, name: &str) -> PathBuf {
        self.path().join(OURS).join(name)
    }

    /// A daemon with 32 MiB of memory and 128 MiB of disk in this directory, and more arguments.
    #[must_use]
    pub fn launch(&self, more: &[&str]) -> Launch {
        launch_in(self.path(), more)
    }
}

/// As [`Directory::launch`], anywhere.
#[must_use]
pub fn launch_in(directory: &Path, more: &[&str]) -> Launch {
    let usual = ["--max-bytes", "32M", "--long-bytes", "128M", "--second-touch=false"];
    Launch::new()
        .args(usual)
        .args(["--long-path".as_ref(), directory.as_os_str()])
        .args(more.iter().copied())
}

/// Stores a block of a class with the bytes that belong to its key.
///
/// # Panics
/// If it is refused.
pub fn put(client: &Client, key: &[u8], len: usize, class: Retention) {
    let stored = client.put(NAMESPACE, key, &bytes_of(key, len), class, None);
    stored.unwrap_or_else(|trouble| panic!("storing {key:?}: {trouble:?}"));
}

/// Fetches a block: whether it is there. What is there must be right.
///
/// # Panics
/// If its bytes are wrong, or the call fails.
#[must_use]
pub fn has(client: &Client, key: &[u8], len: usize) -> bool {
    match client.get(NAMESPACE, key) {
        Ok(bytes) => {
            assert!(bytes == bytes_of(key, len), "wrong bytes of {key:?}");
            true
        }
        Err(ClientError::Miss(_)) => false,
        Err(trouble) => panic!("fetching {key:?}: {trouble:?}"),
    }
}

/// Why a block is not there.
///
/// # Panics
/// If it is there, or the call fails.
#[must_use]
pub fn miss(client: &Client, key: &[u8]) -> MissReason {
    match client.get(NAMESPACE, key) {
        Err(ClientError::Miss(reason)) => reason,
        other => panic!("fetching {key:?}: {other:?}"),
    }
}

/// A figure of the disk tier.
///
/// # Panics
/// If there is none of this name.
#[must_use]
pub fn figure(daemon: &Daemon, name: &str) -> u64 {
    let stats = daemon.admin_json("/v1/stats");
    stats["disk"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", stats["disk"]))
}

/// The only device, as `/v1/stats` shows it.
#[must_use]
pub fn device(daemon: &Daemon) -> Value {
    daemon.admin_json("/v1/stats")["devices"][0].clone()
}

/// Waits until the device is in use and has room.
///
/// # Panics
/// If it does not come to that.
pub fn wait_ready(daemon: &Daemon) {
    until_true("the disk is ready", || {
        let device = device(daemon);
        device["health"] == "ok" && device["capacity_bytes"].as_u64() > Some(0)
    });
}

/// Waits until nothing that belongs on disk is in memory only, and makes sure that it survives anything.
///
/// # Panics
/// If it does not come to that.
pub fn wait_written(daemon: &Daemon) {
    let written = within(PATIENCE, || (figure(daemon, "dirty_rows") == 0).then_some(()));
    assert!(written.is_some(), "not all is on disk: {}", daemon.admin_json("/v1/stats"));
    // The blocks are there, but the journal may not say so yet.
    assert_eq!(daemon.admin_post("/v1/drain").status, 200);
    until_true("the journal is on disk", || daemon.admin_json("/v1/drain")["state"] == "done");
}

/// Bytes that a folder and everything in it take, as `du` counts them.
///
/// # Panics
/// If something cannot be looked at.
#[must_use]
pub fn usage_bytes(path: &Path) -> u64 {
    let found = std::fs::symlink_metadata(path).expect("looking at it");
    let mut bytes = found.blocks() * 512;
    if found.is_dir() {
        let entries = std::fs::read_dir(path).expect("listing it");
        bytes += entries.map(|entry| usage_bytes(&entry.expect("an entry").path())).sum::<u64>();
    }
    bytes
}

/// A file system in memory with a fixed size; unmounted with this value. Needs root.
#[derive(Debug)]
pub struct SmallFileSystem {
    folder: TempDir,
}

impl SmallFileSystem {
    /// Mounts one of `mebibytes`.
    ///
    /// # Panics
    /// If it cannot be mounted.
    #[must_use]
    pub fn new(mebibytes: u32) -> Self {
        let folder = tempfile::Builder::new().prefix("kvd-small-").tempdir_in("/tmp");
        let folder = folder.expect("a folder in /tmp");
        let size = format!("size={mebibytes}M");
        run("mount", &["-t", "tmpfs", "-o", &size, "tmpfs"], folder.path());
        Self { folder }
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Makes it read-only, or writable again.
    ///
    /// # Panics
    /// If that is refused.
    pub fn set_read_only(&self, is_read_only: bool) {
        let how = if is_read_only { "remount,ro" } else { "remount,rw" };
        run("mount", &["-o", how], self.path());
    }
}

impl Drop for SmallFileSystem {
    fn drop(&mut self) {
        let _left_behind = Command::new("umount").arg("-l").arg(self.path()).status();
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) {
    let status = Command::new(program).args(arguments).arg(path).status();
    let status = status.unwrap_or_else(|trouble| panic!("{program}: {trouble}"));
    assert!(status.success(), "{program} {arguments:?} {}: {status}", path.display());
}
