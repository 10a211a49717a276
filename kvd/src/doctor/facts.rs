//! What the system's files say, read under a root that tests lay out. What is not said is `None`.

use std::fs;
use std::path::Path;

use kvd_shm::{memory_limit, numa};

/// The bit of `CAP_IPC_LOCK` among the capabilities.
const CAP_IPC_LOCK: u32 = 14;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Release of the kernel.
    pub(super) kernel: Option<String>,
    /// Bytes that may be locked, if they are limited for this process.
    pub(super) memlock_bytes: Option<u64>,
    /// Descriptors that this process may raise its limit to.
    pub(super) descriptors: Option<u64>,
    /// Memory that can be taken now, control groups considered.
    pub(super) available_bytes: u64,
    /// The same for the host alone.
    pub(super) host_available_bytes: Option<u64>,
    /// Swap space.
    pub(super) swap_bytes: u64,
    /// Memory that may still be promised where the kernel counts promises.
    pub(super) commit_room_bytes: Option<u64>,
    /// The pool of 2 MiB pages.
    pub(super) pool: Option<Pool>,
    /// Which pages shared memory gets at the first touch.
    pub(super) shmem_huge: Option<String>,
    /// Nodes that have memory.
    pub(super) nodes: Option<Vec<u32>>,
    /// `kernel.io_uring_disabled`.
    pub(super) io_uring_disabled: Option<u32>,
    /// Whether a filter of system calls is in force for this process.
    pub(super) is_filtered: bool,
    /// Variables of ours and of others whose names begin with `INFERA_`.
    pub(super) variables: Vec<(String, String)>,
}

/// Pages of the pool of 2 MiB pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pool {
    pub(super) total: u64,
    /// Neither in use nor promised, and those that the pool may take beyond its size.
    pub(super) free: u64,
}

impl Facts {
    pub(super) fn gather(root: &Path, variables: impl Iterator<Item = (String, String)>) -> Self {
        let status = read(root, "proc/self/status").unwrap_or_default();
        let memory = read(root, "proc/meminfo").unwrap_or_default();
        let mut variables: Vec<(String, String)> =
            variables.filter(|(name, _)| name.starts_with("INFERA_")).collect();
        variables.sort();
        Self {
            kernel: read(root, "proc/sys/kernel/osrelease"),
            memlock_bytes: if may_lock_all(&status) {
                None
            } else {
                limit(root, "Max locked memory")
            },
            descriptors: limit(root, "Max open files"),
            available_bytes: memory_limit::available_under(root),
            host_available_bytes: kib(&memory, "MemAvailable:"),
            swap_bytes: kib(&memory, "SwapTotal:").unwrap_or(0),
            commit_room_bytes: commit_room(root, &memory),
            pool: pool(root),
            shmem_huge: read(root, "sys/kernel/mm/transparent_hugepage/shmem_enabled")
                .and_then(|text| chosen(&text)),
            nodes: numa::nodes_with_memory(&root.join("sys")),
            io_uring_disabled: number(root, "proc/sys/kernel/io_uring_disabled")
                .and_then(|value| u32::try_from(value).ok()),
            is_filtered: field(&status, "Seccomp:").is_some_and(|mode| mode != "0"),
            variables,
        }
    }
}

fn read(root: &Path, path: &str) -> Option<String> {
    fs::read_to_string(root.join(path)).ok().map(|text| text.trim().to_owned())
}

fn number(root: &Path, path: &str) -> Option<u64> {
    read(root, path)?.parse().ok()
}

/// The words behind the name of a line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

fn kib(text: &str, name: &str) -> Option<u64> {
    let kib: u64 = field(text, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

fn may_lock_all(status: &str) -> bool {
    let effective = field(status, "CapEff:").and_then(|set| u64::from_str_radix(set, 16).ok());
    effective.is_some_and(|set| set >> CAP_IPC_LOCK & 1 == 1)
}

/// The hard limit of a line of `/proc/self/limits`; `None` without one.
fn limit(root: &Path, name: &str) -> Option<u64> {
    let text = read(root, "proc/self/limits")?;
    // Soft limit, hard limit, unit.
    field(&text, name)?.split_whitespace().nth(1)?.parse().ok()
}

/// Room for promises, where the kernel refuses what it can't keep (`vm.overcommit_memory` 2).
fn commit_room(root: &Path, memory: &str) -> Option<u64> {
    number(root, "proc/sys/vm/overcommit_memory").filter(|mode| *mode == 2)?;
    Some(kib(memory, "CommitLimit:")?.saturating_sub(kib(memory, "Committed_AS:")?))
}

fn pool(root: &Path) -> Option<Pool> {
    let of = |name: &str| number(root, &format!("sys/kernel/mm/hugepages/hugepages-2048kB/{name}"));
    let total = of("nr_hugepages")?;
    let promised = of("resv_hugepages").unwrap_or(0);
    let beyond = of("nr_overcommit_hugepages").unwrap_or(0);
    let surplus = of("surplus_hugepages").unwrap_or(0);
    let free = of("free_hugepages").unwrap_or(0).saturating_sub(promised);
    Some(Pool { total, free: free.saturating_add(beyond.saturating_sub(surplus)) })
}

/// The word in brackets: `always within_size [advise] never`.
fn chosen(text: &str) -> Option<String> {
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}
