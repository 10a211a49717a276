//! What a figure was measured on.

use std::fs;

/// One line: processor, cores, kernel, memory.
#[must_use]
pub fn line() -> String {
    let processor =
        field("/proc/cpuinfo", "model name").unwrap_or_else(|| "unknown processor".to_owned());
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let memory = field("/proc/meminfo", "MemTotal").unwrap_or_default();
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!("{processor}, {cores} cores, {memory}, Linux {}, load {load}", kernel.trim())
}

/// The value of the first line of a `/proc` file that begins with `name`.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Its own: heap, stacks and touched parts of its binary.
    pub own_bytes: u64,
    /// Shared memory that it has mapped and touched: the arena.
    pub shared_bytes: u64,
}

impl Memory {
    /// Reads it; `None` if there is no such process.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let path = format!("/proc/{pid}/status");
        let bytes = |name: &str| {
            let value = field(&path, name)?;
            Some(value.strip_suffix(" kB")?.trim().parse::<u64>().ok()? << 10)
        };
        Some(Self {
            own_bytes: bytes("RssAnon")? + bytes("RssFile")?,
            shared_bytes: bytes("RssShmem")?,
        })
    }
}

/// Bytes that a process has moved between itself and block devices since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Read.
    pub read_bytes: u64,
    /// Written, or left for the kernel to write.
    pub written_bytes: u64,
}

impl Moved {
    /// Reads them; `None` if there is no such process.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let path = format!("/proc/{pid}/io");
        let bytes = |name: &str| field(&path, name)?.parse().ok();
        Some(Self { read_bytes: bytes("read_bytes")?, written_bytes: bytes("write_bytes")? })
    }

    /// How much since then.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            read_bytes: self.read_bytes - before.read_bytes,
            written_bytes: self.written_bytes - before.written_bytes,
        }
    }
}

/// Share (0 to 1) of the shared memory of a process that is mapped with huge pages; 0 if there is none or it is not
/// known.
#[must_use]
pub fn huge_share(pid: u32) -> f64 {
    let path = format!("/proc/{pid}/smaps_rollup");
    let kilobytes =
        |name: &str| field(&path, name)?.strip_suffix(" kB")?.trim().parse::<u32>().ok();
    let huge = f64::from(kilobytes("ShmemPmdMapped").unwrap_or(0));
    let all = f64::from(kilobytes("Pss_Shmem").unwrap_or(0));
    if all > 0.0 { (huge / all).min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_and_a_machine() {
        assert!(Memory::of(std::process::id()).unwrap().own_bytes > 0);
        assert!(Memory::of(u32::MAX).is_none());
        let moved = Moved::of(std::process::id()).unwrap();
        assert_eq!(moved.since(moved), Moved::default());
        assert!(line().contains("Linux"));
    }
}
