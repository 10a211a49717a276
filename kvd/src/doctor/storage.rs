//! What is under the directories of the disk tier, and whether there is room.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use kvd_disk::classify::Storage;
use kvd_store::tablespace::geometry::DIRECTORY;
use nix::sys::statvfs::statvfs;
use nix::unistd::{AccessFlags, access};

use super::door::nearest;
use crate::config::Settings;
use crate::devices::{claim::Obstacle, mode};

/// One directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) path: PathBuf,
    /// What is under it, or under the folder that it would be made in.
    pub(super) storage: Result<Storage, String>,
    /// What stands in its place.
    pub(super) obstacle: Option<Obstacle>,
    /// Why it can't be written to.
    pub(super) barred: Option<String>,
    /// How much fits there.
    pub(super) room: Room,
    /// Which file system it is on.
    pub(super) file_system: Option<u64>,
}

/// What a directory has for a daemon.
#[derive(Debug)]
pub(super) struct Room {
    /// Bytes that may still be written there.
    pub(super) free_bytes: Option<u64>,
    /// Bytes that an earlier daemon has taken there.
    pub(super) taken_bytes: u64,
}

impl Room {
    pub(super) fn of(path: &Path) -> Self {
        let free = statvfs(nearest(path)).ok();
        Self {
            free_bytes: free
                .map(|room| room.blocks_available().saturating_mul(room.fragment_size())),
            taken_bytes: taken(&path.join(DIRECTORY)),
        }
    }
}

/// Looks at each.
pub(super) fn look(settings: &Settings) -> Vec<Directory> {
    settings.disk.paths.iter().map(|path| directory(path, settings)).collect()
}

fn directory(path: &Path, settings: &Settings) -> Directory {
    let there = nearest(path);
    let barred = access(there, AccessFlags::W_OK | AccessFlags::X_OK).err();
    Directory {
        path: path.to_path_buf(),
        storage: mode::storage(there, settings.disk.io_mode).map_err(|error| error.to_string()),
        obstacle: Obstacle::on_the_way_to(path),
        barred: barred.map(|errno| format!("{}: {errno}", there.display())),
        room: Room::of(path),
        file_system: fs::metadata(there).ok().map(|found| found.dev()),
    }
}

/// What our own files take; nothing where they can't be seen.
fn taken(folder: &Path) -> u64 {
    let Ok(files) = fs::read_dir(folder) else { return 0 };
    let sizes = files.filter_map(|file| Some(file.ok()?.metadata().ok()?.blocks()));
    sizes.sum::<u64>().saturating_mul(512)
}
