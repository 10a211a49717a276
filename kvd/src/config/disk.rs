//! The disk tier's settings, and what follows from the older ways of saying the same.

use std::path::PathBuf;
use std::time::Duration;

use super::disk_options::*;
use super::problem::Source;
use super::validate::Checked;

/// Least share of a directory: journals and snapshots take some MiB of it.
const DIRECTORY_BYTES_MIN: u64 = 16 << 20;
/// Sizes on disk are whole blocks.
const BLOCK_BYTES: u64 = 4096;
/// Most directories, each with a device's number.
const DIRECTORIES_MAX: usize = kvd_store::DEVICES_MAX as usize;
/// Between two syncs when `group` is asked for without an interval.
const GROUP_INTERVAL: Duration = Duration::from_millis(10);

/// The disk tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiskSettings {
    /// Its directories, in the order given; none: no disk tier.
    pub paths: Vec<PathBuf>,
    /// Most bytes in each of them, everything counted; whole blocks.
    pub bytes_each: u64,
    /// Size of a container; `None`: by the share of a directory.
    pub container_bytes: Option<u64>,
    /// Operations in flight for each directory; `None`: by the kind of device.
    pub depth: Option<u32>,
    /// Past the page cache or through it.
    pub io_mode: IoMode,
    /// When the disk is synced.
    pub durability: Durability,
    /// Longest wait of a request for the disk.
    pub load_deadline: Duration,
    /// Bytes that may be written in a second, on average; 0: no bound.
    pub write_budget_bytes: u64,
    /// Whether a block of class short must be asked for before it may go to disk.
    pub second_touch: bool,
    /// Check one in this many hits in memory; `None`: none.
    pub verify_one_in: Option<u32>,
    /// Whether the end writes to disk what only memory holds.
    pub drain_on_stop: bool,
    /// Whether the directories are measured after the start.
    pub self_check: bool,
}

/// How files are read and written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IoMode {
    /// By the kind of device.
    Auto,
    /// Past the page cache, where that is not refused.
    Direct,
    /// Through the page cache.
    Buffered,
    /// By the file system.
    ByFileSystem,
}

/// When what was written is synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// Now and then.
    Relaxed,
    /// After this time at the latest.
    Group(Duration),
    /// Before a long block is acknowledged.
    Strict,
}

impl DiskSettings {
    /// Whether blocks go to disk at all.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.paths.is_empty()
    }

    /// What follows from the options, in words; nothing without a disk tier.
    pub(super) fn derived(&self) -> Vec<String> {
        if !self.is_on() {
            return Vec::new();
        }
        let count = self.paths.len();
        let directories = if count == 1 { "directory" } else { "directories" };
        let sync = match self.durability {
            Durability::Relaxed => "relaxed".to_owned(),
            Durability::Group(interval) => format!("group, every {} ms", interval.as_millis()),
            Durability::Strict => "strict".to_owned(),
        };
        vec![
            format!("disk: {count} {directories}, at most {} bytes in each", self.bytes_each),
            format!("disk: durability {sync}, {:?} I/O", self.io_mode).to_lowercase(),
        ]
    }
}

impl Checked {
    pub(super) fn disk(&mut self) -> DiskSettings {
        let mut paths = self.paths();
        let all_bytes = self.bytes(&LONG_BYTES);
        if all_bytes == 0 {
            paths.clear();
        }
        let bytes_each = self.share(all_bytes, paths.len());
        DiskSettings {
            bytes_each,
            container_bytes: self.container_bytes(bytes_each),
            depth: Some(self.count(&LONG_WORKERS)).filter(|depth| *depth > 0),
            io_mode: self.io_mode(),
            durability: self.durability(),
            load_deadline: self.time(&LOAD_DEADLINE),
            write_budget_bytes: self.bytes(&WRITE_BUDGET),
            second_touch: self.switch(&SECOND_TOUCH),
            verify_one_in: self.one_in(&VERIFY_L2),
            drain_on_stop: self.switch(&DRAIN_ON_STOP),
            self_check: self.switch(&SELF_CHECK),
            paths,
        }
    }

    /// The directories, each once.
    fn paths(&mut self) -> Vec<PathBuf> {
        let (one, several) = (self.source(&LONG_PATH), self.source(&LONG_PATHS));
        if one != Source::Default && several != Source::Default {
            self.problem(several, format!("excludes {one}; keep one of the two"));
            return Vec::new();
        }
        if let Some(path) = self.text(&LONG_PATH) {
            return vec![PathBuf::from(path)];
        }
        let text = self.text(&LONG_PATHS).unwrap_or_default();
        let mut paths: Vec<PathBuf> = Vec::new();
        for path in text.split(',').map(str::trim).filter(|path| !path.is_empty()) {
            if paths.iter().any(|known| known.as_os_str() == path) {
                self.problem(several.clone(), format!("{path} is named twice"));
            }
            paths.push(PathBuf::from(path));
        }
        if paths.len() > DIRECTORIES_MAX {
            let count = paths.len();
            self.problem(several, format!("{count} directories; at most {DIRECTORIES_MAX}"));
        }
        paths
    }

    fn share(&mut self, all_bytes: u64, directories: usize) -> u64 {
        let Some(share) = all_bytes.checked_div(directories as u64) else {
            return 0;
        };
        if share < DIRECTORY_BYTES_MIN {
            let least_bytes = DIRECTORY_BYTES_MIN * directories as u64;
            let message = format!(
                "{all_bytes} bytes are too few for {directories} of the disk tier's directories; \
                 give at least {least_bytes}, or 0 for no disk tier"
            );
            self.problem(self.source(&LONG_BYTES), message);
        }
        share / BLOCK_BYTES * BLOCK_BYTES
    }

    fn container_bytes(&mut self, bytes_each: u64) -> Option<u64> {
        let asked = self.bytes_or_auto(&CONTAINER_BYTES)?;
        // Rounded, and one that is larger than the whole share is the same as no choice: so existing
        // command lines with their default of 1G work with a small share.
        let whole = asked / BLOCK_BYTES * BLOCK_BYTES;
        (bytes_each == 0 || whole < bytes_each / 2).then_some(whole)
    }

    fn io_mode(&self) -> IoMode {
        if self.switch(&BUFFERED_IO) {
            return IoMode::Buffered;
        }
        if self.switch(&AUTO_DETECT_FS) {
            return IoMode::ByFileSystem;
        }
        match self.text(&IO_MODE).as_deref() {
            Some("direct") => IoMode::Direct,
            Some("buffered") => IoMode::Buffered,
            _ => IoMode::Auto,
        }
    }

    /// What `--durability` says; else what the older options mean.
    fn durability(&self) -> Durability {
        let interval = Duration::from_millis(self.count(&FLUSH_INTERVAL).into());
        let group = if interval.is_zero() { GROUP_INTERVAL } else { interval };
        if self.source(&DURABILITY) != Source::Default {
            return match self.text(&DURABILITY).as_deref() {
                Some("strict") => Durability::Strict,
                Some("group") => Durability::Group(group),
                _ => Durability::Relaxed,
            };
        }
        if self.switch(&LONG_FSYNC) {
            Durability::Strict
        } else if interval.is_zero() {
            Durability::Relaxed
        } else {
            Durability::Group(interval)
        }
    }
}
