//! How a directory is read and written: what suits the storage under it, and the settings.

use std::path::Path;

use kvd_disk::classify::{self, ClassifyError, FileSystem, Roots, Storage};

use crate::config::IoMode;

/// Operations in flight where nothing is known of the storage.
const DEPTH: usize = 32;

/// How a directory is read and written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mode {
    /// Past the page cache.
    pub direct: bool,
    /// Operations in flight.
    pub depth: usize,
    /// How it came to that.
    pub why: Vec<String>,
}

impl Mode {
    /// What suits the storage under `directory`, and the settings.
    #[must_use]
    pub fn of(directory: &Path, wanted: IoMode) -> Self {
        match storage(directory, wanted) {
            Ok(storage) => Self { direct: storage.direct, depth: storage.depth, why: storage.why },
            Err(error) => Self { direct: false, depth: DEPTH, why: vec![error.to_string()] },
        }
    }

    /// The word for logs.
    #[must_use]
    pub const fn io_mode(&self) -> &'static str {
        if self.direct { "direct" } else { "buffered" }
    }
}

/// What is under `directory`, and how it would be read and written with this setting.
///
/// # Errors
/// As [`classify::classify`].
pub fn storage(directory: &Path, wanted: IoMode) -> Result<Storage, ClassifyError> {
    let classify = |mode| classify::classify(directory, mode, &Roots::default());
    match wanted {
        IoMode::Auto => classify(classify::Mode::Auto),
        IoMode::Direct => classify(classify::Mode::Direct),
        IoMode::Buffered => classify(classify::Mode::Buffered),
        IoMode::ByFileSystem => {
            let storage = classify(classify::Mode::Buffered)?;
            if is_for_direct(&storage.file_system) {
                classify(classify::Mode::Direct)
            } else {
                Ok(storage)
            }
        }
    }
}

/// File systems that the older option uses directly.
fn is_for_direct(file_system: &FileSystem) -> bool {
    ["ext4", "xfs", "btrfs", "nfs", "nfs4"].contains(&file_system.to_string().as_str())
}
