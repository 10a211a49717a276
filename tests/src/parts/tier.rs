//! A daemon with a disk tier on parts, and more of what it says of it than [`crate::disk`] asks for.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::daemon::Daemon;
use crate::disk::OURS;
use crate::launch::Launch;
use crate::until::until_true;

/// A start with 32 MiB of memory and a tier of `bytes` in `directories`, all together. Nothing is measured at the
/// start, and blocks of class short go to disk without having been asked for twice.
///
/// # Panics
/// If a path is no text.
#[must_use]
pub fn launch(directories: &[&Path], bytes: u64) -> Launch {
    launch_with(32 << 20, directories, bytes)
}

/// As [`launch`], with so much memory.
///
/// # Panics
/// If a path is no text.
#[must_use]
pub fn launch_with(memory_bytes: u64, directories: &[&Path], bytes: u64) -> Launch {
    let paths: Vec<&str> = directories.iter().map(|path| path.to_str().expect("text")).collect();
    Launch::new()
        .args(["--second-touch=false", "--max-bytes"])
        .args([memory_bytes.to_string()])
        .args(["--long-paths".to_owned(), paths.join(",")])
        .args(["--long-bytes".to_owned(), bytes.to_string()])
        .env("INFERA_KVD_STORAGE_SELFCHECK", "0")
}

/// Waits until every device has been recovered or refused, those in use have room, and the arena is touched.
///
/// # Panics
/// If that does not happen.
pub fn wait_recovered(daemon: &Daemon) {
    crate::figures::wait_warm(daemon);
    until_true("every device is in use or out of use", || {
        devices(daemon).iter().all(|device| match device["health"].as_str() {
            Some("ok") => number(device, "capacity_bytes") > 0,
            Some("recovering") => false,
            _ => true,
        })
    });
}

/// What `/v1/stats` says of each device.
///
/// # Panics
/// If it says nothing.
#[must_use]
pub fn devices(daemon: &Daemon) -> Vec<Value> {
    let stats = daemon.admin_json("/v1/stats");
    stats["devices"].as_array().unwrap_or_else(|| panic!("no devices in {stats}")).clone()
}

/// A number of one of them.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn number(device: &Value, name: &str) -> u64 {
    device[name].as_u64().unwrap_or_else(|| panic!("no {name} in {device}"))
}

/// Whether the daemon says that it does without something, in a line that holds `part`.
///
/// # Panics
/// If it does not say how it is.
#[must_use]
pub fn is_degraded(daemon: &Daemon, part: &str) -> bool {
    let ready = daemon.admin_json("/readyz");
    let lines = ready["degraded"].as_array().unwrap_or_else(|| panic!("{ready}"));
    lines.iter().any(|line| line.as_str().is_some_and(|line| line.contains(part)))
}

/// A block on disk, as `/v1/ls` lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Its key, in hexadecimal digits.
    pub key: String,
    /// Where it begins in the line of all containers.
    pub offset: u64,
    /// Its bytes.
    pub len_bytes: u64,
}

impl Listed {
    /// Whether it is the block of `key`.
    #[must_use]
    pub fn is(&self, key: &[u8]) -> bool {
        let digits: String = key.iter().map(|byte| format!("{byte:02x}")).collect();
        self.key == digits
    }
}

/// All blocks on a device that has at most a thousand.
///
/// # Panics
/// If the list is not as expected.
#[must_use]
pub fn list(daemon: &Daemon, device: usize) -> Vec<Listed> {
    let answer = daemon.admin_json(&format!("/v1/ls?tier=l3&device={device}&limit=1000"));
    let rows = answer["rows"].as_array().unwrap_or_else(|| panic!("no rows in {answer}"));
    let one = |row: &Value| Listed {
        key: row["key"].as_str().expect("a key").to_owned(),
        offset: number(row, "offset"),
        len_bytes: number(row, "len_bytes"),
    };
    rows.iter().map(one).collect()
}

/// The containers in `directory`, in their order.
///
/// # Panics
/// If there is no such directory.
#[must_use]
pub fn containers(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory.join(OURS)).expect("our sub-directory");
    let names = entries.map(|entry| entry.expect("an entry").path());
    let is_container = |path: &PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("container-"))
    };
    let mut found: Vec<PathBuf> = names.filter(is_container).collect();
    found.sort();
    found
}
