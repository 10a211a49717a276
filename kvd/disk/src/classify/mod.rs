//! What is under a directory, and how to do I/O there: direct or through the page cache, with which
//! alignment and how many operations at once.
//!
//! Three sources: the mount (`mount.rs`), the block devices in sysfs (`device.rs`), and a file that is
//! really opened, written and read (`probe.rs`). `decision.rs` weighs them. The first two are read
//! under a root that tests can lay out.
//!
//! **Invariant:** direct I/O is chosen only if a direct write and read in that very directory has
//! just worked.

mod decision;
mod device;
mod mount;
mod probe;
#[cfg(test)]
mod tests;

pub use device::{Device, DeviceKind};
pub use mount::FileSystem;

use std::io;
use std::path::{Path, PathBuf};

use decision::Leaning;
use device::Survey;
use mount::{Mount, Mounts};

/// What the operator wants.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// Direct where it pays and works.
    #[default]
    Auto,
    /// Direct wherever it works.
    Direct,
    /// Through the page cache.
    Buffered,
}

/// Where `proc`, `sys` and `dev` are found.
#[derive(Clone, Debug)]
pub struct Roots {
    root: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self::under("/")
    }
}

impl Roots {
    /// Another root than `/`, for tests.
    pub fn under(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    fn join(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }
}

/// How to use a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Storage {
    /// Where the file system is mounted.
    pub mount_point: PathBuf,
    /// Its kind.
    pub file_system: FileSystem,
    /// The block device under it, with what is under that; `None` if there is none or it is unknown.
    pub device: Option<Device>,
    /// Whether to open files with [`crate::DIRECT`].
    pub direct: bool,
    /// Places in files, lengths and memory are multiples of this, in bytes; 1 if not direct.
    pub alignment_bytes: u32,
    /// How many operations to keep in flight at most: enough to saturate devices of that kind, few enough
    /// that a demand read does not queue for long.
    pub depth: usize,
    /// How it came to that, one sentence each.
    pub why: Vec<String>,
}

impl Storage {
    /// `direct` or `buffered`.
    #[must_use]
    pub fn io_mode(&self) -> &'static str {
        if self.direct { "direct" } else { "buffered" }
    }
}

/// Why nothing can be told about a directory.
#[derive(Debug, thiserror::Error)]
pub enum ClassifyError {
    /// It is not there, or not to be seen.
    #[error("{path}")]
    Path {
        /// The path as given.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// It is something else.
    #[error("{path} is not a directory")]
    NotADirectory {
        /// The path as given.
        path: PathBuf,
    },
    /// The list of mounts cannot be read.
    #[error("reading {path}")]
    Mounts {
        /// Where the list should be.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// No mount contains it.
    #[error("no mount contains {path}")]
    NoMount {
        /// The path, resolved.
        path: PathBuf,
    },
}

/// Looks at the directory, and tries direct I/O on a temporary file in it if it may be used.
///
/// # Errors
/// If the path is no directory, or the system's list of mounts does not cover it. Everything else
/// that cannot be found out is a sentence in [`Storage::why`].
pub fn classify(directory: &Path, mode: Mode, roots: &Roots) -> Result<Storage, ClassifyError> {
    classify_with(directory, mode, roots, probe::probe)
}

/// As [`classify`], with a probe of one's own: the alignment in bytes, or why direct I/O does not work.
fn classify_with(
    directory: &Path,
    mode: Mode,
    roots: &Roots,
    probe: impl FnOnce(&Path) -> Result<u32, String>,
) -> Result<Storage, ClassifyError> {
    let path = directory.canonicalize();
    let path = path.map_err(|source| ClassifyError::Path { path: directory.into(), source })?;
    if !path.is_dir() {
        return Err(ClassifyError::NotADirectory { path: directory.into() });
    }
    let list = roots.join("proc/self/mountinfo");
    let mounts = Mounts::read(&list);
    let mounts = mounts.map_err(|source| ClassifyError::Mounts { path: list, source })?;
    let mount = mounts.containing(&path).ok_or(ClassifyError::NoMount { path: path.clone() })?;
    let mut why = vec![format!(
        "{} is on {} ({}), mounted at {}",
        path.display(),
        mount.file_system,
        mount.source,
        mount.point.display()
    )];
    let device = find_device(roots, &mounts, mount, &mut why);
    let Leaning { tries_direct, depth } =
        decision::lean(mode, &mount.file_system, device.as_ref(), &mut why);
    let alignment_bytes = if tries_direct { try_direct(&path, probe, &mut why) } else { None };
    Ok(Storage {
        mount_point: mount.point.clone(),
        file_system: mount.file_system.clone(),
        device,
        direct: alignment_bytes.is_some(),
        alignment_bytes: alignment_bytes.unwrap_or(1),
        depth,
        why,
    })
}

fn find_device(
    roots: &Roots,
    mounts: &Mounts,
    mount: &Mount,
    why: &mut Vec<String>,
) -> Option<Device> {
    let device = Survey { roots, mounts }.under(mount);
    match &device {
        Some(device) => why.push(format!("the device is {device}")),
        None if mount.file_system.has_device() => {
            why.push(format!("sysfs does not tell the device of {}", mount.source));
        }
        None => {}
    }
    device
}

fn try_direct(
    path: &Path,
    probe: impl FnOnce(&Path) -> Result<u32, String>,
    why: &mut Vec<String>,
) -> Option<u32> {
    match probe(path) {
        Ok(alignment_bytes) => {
            why.push(format!(
                "a direct write and read there worked, in multiples of {alignment_bytes} bytes"
            ));
            Some(alignment_bytes)
        }
        Err(refusal) => {
            why.push(format!("direct I/O does not work there ({refusal}): buffered instead"));
            None
        }
    }
}
