//! A memory control group: what runs in it has only so much memory. Needs root, and says so when it cannot be had.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Where version 1 of the memory controller is mounted, and where version 2 is.
const MOUNTS: [(&str, Files); 2] = [
    (
        "/sys/fs/cgroup/memory",
        Files { limit: "memory.limit_in_bytes", peak: "memory.max_usage_in_bytes" },
    ),
    ("/sys/fs/cgroup", Files { limit: "memory.max", peak: "memory.peak" }),
];

/// The files of a group.
#[derive(Clone, Copy, Debug)]
struct Files {
    limit: &'static str,
    peak: &'static str,
}

/// A group of its own, removed with this value: whatever ran in it must have ended by then.
#[derive(Debug)]
pub struct MemoryGroup {
    folder: PathBuf,
    files: Files,
}

impl MemoryGroup {
    /// A group whose processes get `limit_bytes` of memory in all.
    ///
    /// # Panics
    /// If this machine, or this user, cannot make one.
    #[must_use]
    pub fn new(limit_bytes: u64) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("kvd-tests-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut tried = Vec::new();
        for (mount, files) in MOUNTS {
            let folder = Path::new(mount).join(&name);
            if let Err(trouble) = fs::create_dir(&folder) {
                tried.push(format!("{}: {trouble}", folder.display()));
                continue;
            }
            let group = Self { folder, files };
            match fs::write(group.folder.join(files.limit), limit_bytes.to_string()) {
                Ok(()) => return group,
                Err(trouble) => {
                    tried.push(format!("{}: {trouble}", group.folder.join(files.limit).display()))
                }
            }
        }
        panic!("no memory control group can be made (root?): {tried:?}");
    }

    /// Words that start another program in the group: `sh -c '…' GROUP program…`.
    ///
    /// # Panics
    /// If the folder's name is no text; it is ours.
    #[must_use]
    pub fn wrapper(&self) -> [&str; 4] {
        let folder = self.folder.to_str().expect("a name of ours");
        ["sh", "-c", r#"echo $$ > "$0/cgroup.procs" && exec "$@""#, folder]
    }

    /// The most that was ever in use, in bytes.
    ///
    /// # Panics
    /// If the kernel does not say.
    #[must_use]
    pub fn peak_bytes(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join(self.files.peak)).expect("reading the peak");
        text.trim().parse().expect("a number")
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The kernel takes a moment to see that the last process has left.
        let gone = || fs::remove_dir(&self.folder).is_ok();
        if std::thread::panicking() {
            let _may_be_in_use = gone();
        } else {
            crate::until::until_true("the control group is empty", gone);
        }
    }
}
