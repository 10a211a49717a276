//! Who a device is: its superblock, found or made.
//!
//! It is written first, under another name, and renamed when it is safe: a directory with a superblock
//! is ours, and whatever else is missing can be made anew. Without one nothing is touched if there are
//! files that look like those of a device.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kvd_store::tablespace::geometry::{
    Fixed, Plan, SUPERBLOCK_NAME, TooSmall, journal_name, snapshot_name,
};
use kvd_store::tablespace::{SUPERBLOCK_BYTES, Superblock};

use super::directory::{DirectoryFault, HALVES, container_number, names, system};
use super::files;

/// Most containers of a new directory: each is an open file.
const CONTAINERS_WANTED_MAX: u64 = 512;

/// Whether our sub-directory holds a device that this release understands.
#[must_use]
pub fn holds_device(folder: &Path) -> bool {
    matches!(read_superblock(folder), Ok(Some(_)))
}

/// The superblock; none if the directory holds no device.
pub(super) fn read_superblock(folder: &Path) -> Result<Option<Superblock>, DirectoryFault> {
    let path = folder.join(SUPERBLOCK_NAME);
    let mut bytes = vec![0; SUPERBLOCK_BYTES];
    let mut file = match files::open(&path, false) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return match names(folder)?.into_iter().find(|name| is_of_a_device(name)) {
                Some(name) => {
                    Err(DirectoryFault::NoSuperblock { path: folder.to_path_buf(), name })
                }
                None => Ok(None),
            };
        }
        Err(error) => return Err(system("opening", &path)(error)),
    };
    files::fill(&mut file, &mut bytes).map_err(system("reading", &path))?;
    Superblock::decode(&bytes)
        .map(Some)
        .map_err(|fault| DirectoryFault::Superblock { path: folder.to_path_buf(), fault })
}

fn is_of_a_device(name: &str) -> bool {
    let records = HALVES.into_iter().flat_map(|half| [journal_name(half), snapshot_name(half)]);
    records.into_iter().any(|known| known == name) || container_number(name).is_some()
}

/// The sizes that a new device keeps for its life.
pub(super) fn fixed_for(cap_bytes: u64, container_bytes: Option<u64>) -> Result<Fixed, TooSmall> {
    let usual = Plan::for_cap(cap_bytes, None)?;
    let least = (cap_bytes / CONTAINERS_WANTED_MAX).next_multiple_of(1 << 20);
    let container_bytes = container_bytes.unwrap_or(usual.container_bytes);
    let is_many = u64::from(usual.containers_max) > CONTAINERS_WANTED_MAX
        || cap_bytes / container_bytes > CONTAINERS_WANTED_MAX;
    let container_bytes = if is_many { container_bytes.max(least) } else { container_bytes };
    Ok(Fixed { container_bytes, journal_bytes: usual.journal_bytes })
}

pub(super) fn make_superblock(
    folder: &Path,
    fixed: Fixed,
    set_id: [u8; 16],
) -> Result<Superblock, DirectoryFault> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let path = folder.join(SUPERBLOCK_NAME);
    let early = folder.join(format!("{SUPERBLOCK_NAME}.new"));
    let make = || {
        let superblock = Superblock {
            set_id,
            device_id: random_id()?,
            container_bytes: fixed.container_bytes,
            journal_bytes: fixed.journal_bytes,
            created_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        };
        let mut file = files::open_or_make(&early, false)?;
        file.set_len(0)?;
        file.write_all(&superblock.encode())?;
        file.sync_all()?;
        fs::rename(&early, &path)?;
        File::open(folder)?.sync_all()?;
        Ok(superblock)
    };
    make().map_err(system("writing", &path))
}

/// 128 random bits.
///
/// # Errors
/// The system's source of them cannot be read.
pub fn random_id() -> io::Result<[u8; 16]> {
    let mut id = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut id)?;
    Ok(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_share_has_few_files() {
        for (cap_bytes, asked) in [(10 << 40, None), (1 << 40, Some(64 << 20)), (32 << 30, None)] {
            let fixed = fixed_for(cap_bytes, asked).unwrap();
            let plan = Plan::for_cap(cap_bytes, Some(fixed)).unwrap();
            assert!(u64::from(plan.containers_max) <= CONTAINERS_WANTED_MAX, "{plan:?}");
        }
        let asked = fixed_for(32 << 30, Some(256 << 20)).unwrap();
        assert_eq!(asked.container_bytes, 256 << 20);
    }
}
