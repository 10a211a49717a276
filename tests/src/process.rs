//! What `/proc` says of a process: descriptors, memory, threads.

use std::collections::BTreeMap;
use std::fs;

/// One look at a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessFacts {
    /// How many descriptors it holds.
    pub descriptors: usize,
    /// Resident memory that belongs to it alone, in KiB (`RssAnon`).
    pub private_kib: u64,
    /// Resident memory of shared mappings, the arena among them, in KiB (`RssShmem`).
    pub shared_kib: u64,
    /// The names of its threads, each with how many bear it.
    pub threads: BTreeMap<String, usize>,
}

impl ProcessFacts {
    /// Looks at the process `pid`.
    ///
    /// # Panics
    /// If there is no such process, or we may not look.
    #[must_use]
    pub fn of(pid: i32) -> Self {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("reading its status");
        Self {
            descriptors: descriptors(pid).len(),
            private_kib: figure(&status, "RssAnon:"),
            shared_kib: figure(&status, "RssShmem:"),
            threads: threads(pid),
        }
    }

    /// How many threads it has.
    #[must_use]
    pub fn thread_count(&self) -> usize {
        self.threads.values().sum()
    }
}

/// What each descriptor of the process `pid` stands for: `socket:[123]`, `/memfd:…`, a path.
///
/// # Panics
/// If there is no such process, or we may not look.
#[must_use]
pub fn descriptors(pid: i32) -> Vec<String> {
    let folder = fs::read_dir(format!("/proc/{pid}/fd")).expect("reading its descriptors");
    // One that is closed while we look has no target any more.
    let targets = folder.flatten().filter_map(|entry| fs::read_link(entry.path()).ok());
    targets.map(|target| target.to_string_lossy().into_owned()).collect()
}

/// Is there a process `pid` that has not exited? One that waits to be reaped has.
#[must_use]
pub fn is_running(pid: i32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name in brackets may hold anything; the state follows the last bracket.
    state.rsplit(')').next().is_some_and(|rest| {
        rest.split_whitespace().next().is_some_and(|state| state != "Z" && state != "X")
    })
}

fn threads(pid: i32) -> BTreeMap<String, usize> {
    let mut names = BTreeMap::new();
    let folder = fs::read_dir(format!("/proc/{pid}/task")).expect("reading its threads");
    for thread in folder.flatten() {
        if let Ok(name) = fs::read_to_string(thread.path().join("comm")) {
            *names.entry(name.trim_end().to_owned()).or_default() += 1;
        }
    }
    names
}

fn figure(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let figure = line.and_then(|rest| rest.split_whitespace().next());
    figure.and_then(|figure| figure.parse().ok()).unwrap_or_else(|| panic!("no {name} in {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_memory_threads_and_descriptors() {
        let me = i32::try_from(std::process::id()).unwrap();
        let before = ProcessFacts::of(me);
        assert!(before.private_kib > 0 && before.thread_count() > 0);
        let file = fs::File::open("/dev/null").unwrap();
        assert_eq!(ProcessFacts::of(me).descriptors, before.descriptors + 1);
        assert!(descriptors(me).contains(&"/dev/null".to_owned()));
        drop(file);
        assert_eq!(ProcessFacts::of(me).descriptors, before.descriptors);
    }

    #[test]
    fn running_is_told_from_gone_and_from_waiting_to_be_reaped() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(is_running(pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!is_running(pid));
    }
}
