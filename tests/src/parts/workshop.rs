//! Where a case works with parts.

use std::env;
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, unshare};
use tempfile::TempDir;

use super::tool;

/// What the parts are made with, and the Debian package that brings it.
const TOOLS: [(&str, &str); 8] = [
    ("mount", "mount"),
    ("umount", "mount"),
    ("losetup", "mount"),
    ("setpriv", "util-linux"),
    ("mkfs.ext4", "e2fsprogs"),
    ("filefrag", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("qemu-storage-daemon", "qemu-utils"),
];

/// What the kernel must offer.
const DEVICES: [(&str, &str); 2] =
    [("/dev/loop-control", "loop devices"), ("/dev/fuse", "file systems in user space (FUSE)")];

/// A folder, and a mount namespace for the calling thread and whatever it starts. Both end with this value and that
/// thread; mounts end with the namespace, loop devices with their mounts.
#[derive(Debug)]
pub struct Workshop {
    folder: TempDir,
}

impl Workshop {
    /// Opens one.
    ///
    /// # Panics
    /// If this machine, or this user, has not got what it takes; the message says what.
    #[must_use]
    pub fn open() -> Self {
        let missing = missing();
        assert!(
            missing.is_empty(),
            "this machine cannot run the tests on real storage parts: {}",
            missing.join("; ")
        );
        unshare(CloneFlags::CLONE_NEWNS).expect("a mount namespace of our own");
        tool::run("mount", ["--make-rprivate", "/"]);
        let folder = tempfile::Builder::new().prefix("kvd-parts-").tempdir_in("/tmp");
        Self { folder: folder.expect("a folder in /tmp") }
    }

    /// The folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in the folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// What is not there, in words.
fn missing() -> Vec<String> {
    let mut missing = Vec::new();
    if !nix::unistd::geteuid().is_root() {
        missing.push("it needs root".to_owned());
    }
    for (device, what) in DEVICES {
        if let Err(trouble) = OpenOptions::new().read(true).write(true).open(device) {
            missing.push(format!("no {what}: {device}: {trouble}"));
        }
    }
    for (name, package) in TOOLS {
        if !is_there(name) {
            missing.push(format!("no {name} (package {package})"));
        }
    }
    missing
}

fn is_there(name: &str) -> bool {
    let folders = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&folders).any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_found_in_the_path() {
        assert!(is_there("sh"));
        assert!(!is_there("no-tool-is-called-so"));
    }
}
