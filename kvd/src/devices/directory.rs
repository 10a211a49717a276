//! What is in our sub-directory: made once, and found again at every start.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kvd_store::Half;
use kvd_store::tablespace::geometry::{
    Plan, SUPERBLOCK_NAME, TooSmall, container_name, journal_name, snapshot_name,
};
use kvd_store::tablespace::snapshot::SnapshotHead;
use kvd_store::tablespace::{SEGMENTS_OFFSET, SUPERBLOCK_BYTES, Superblock, SuperblockFault};

use super::claim::{Claim, is_gone};
use super::files::{self, Sized};
use super::identity::{fixed_for, make_superblock, read_superblock};
use super::marker;
use crate::config::DiskSettings;

/// Both files that take turns.
pub const HALVES: [Half; 2] = [Half::A, Half::B];

/// Why a directory cannot be used. Its files are as they were.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryFault {
    /// The superblock is damaged, or of another release.
    #[error(
        "{fault} in {}: use the release that wrote it, or move that directory away to begin with \
         an empty one",
        path.display()
    )]
    Superblock {
        /// Our sub-directory.
        path: PathBuf,
        /// What is wrong with it.
        fault: SuperblockFault,
    },
    /// Files of a device without a superblock.
    #[error(
        "{} holds {name} but no superblock: move that directory away to begin with an empty one",
        path.display()
    )]
    NoSuperblock {
        /// Our sub-directory.
        path: PathBuf,
        /// One of the files.
        name: String,
    },
    /// The share is too small for what is there.
    #[error("{fault}: raise --long-bytes, or move {} away", path.display())]
    TooSmall {
        /// Our sub-directory.
        path: PathBuf,
        /// How much is needed.
        fault: TooSmall,
    },
    /// The system refused a step.
    #[error("{step} {}: {source}", path.display())]
    System {
        /// What was being done.
        step: &'static str,
        /// To what.
        path: PathBuf,
        /// What it said.
        source: io::Error,
    },
}

/// A directory that can be used.
#[derive(Debug)]
pub struct Directory {
    claim: Arc<Claim>,
    /// Identity and fixed sizes.
    pub superblock: Superblock,
    /// How the share is divided.
    pub plan: Plan,
    /// How files are opened.
    pub direct: bool,
}

impl Directory {
    /// Finds what is there, or makes a new one; `set_id` is for a new one.
    ///
    /// # Errors
    /// [`DirectoryFault`].
    pub fn open(
        claim: Arc<Claim>,
        settings: &DiskSettings,
        direct: bool,
        set_id: [u8; 16],
    ) -> Result<Self, DirectoryFault> {
        let path = claim.folder().to_path_buf();
        let too_small = |fault| DirectoryFault::TooSmall { path: path.clone(), fault };
        let cap_bytes = settings.bytes_each;
        let found = read_superblock(&path)?;
        let has_failed = marker::is_there(&path).map_err(system("looking at", &path))?;
        let superblock = match found {
            Some(superblock) if has_failed => {
                tracing::warn!(
                    path = %path.display(),
                    "requests were served without this device; it begins anew, without its blocks"
                );
                make_superblock(&path, superblock.fixed(), set_id)?
            }
            Some(superblock) => superblock,
            None => {
                let fixed = fixed_for(cap_bytes, settings.container_bytes).map_err(too_small)?;
                make_superblock(&path, fixed, set_id)?
            }
        };
        if has_failed {
            // Only now: journals and snapshots of the device that it was mean nothing any more.
            marker::remove(&path).map_err(system("removing a note in", &path))?;
        }
        let plan = Plan::for_cap(cap_bytes, Some(superblock.fixed())).map_err(too_small)?;
        if let Some(asked) = settings.container_bytes.filter(|_| found.is_some())
            && asked != plan.container_bytes
        {
            tracing::warn!(
                path = %path.display(),
                "containers stay at {} bytes as they are on disk; --tablespace-container-bytes asks \
                 for {asked}",
                plan.container_bytes
            );
        }
        Ok(Self { claim, superblock, plan, direct })
    }

    /// Our sub-directory.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.claim.folder()
    }

    /// Whether everything that was made is still found under its name, with so many containers.
    ///
    /// # Errors
    /// The system does not say.
    pub fn is_whole(&self, containers: u32) -> io::Result<bool> {
        if !self.claim.is_in_place()? {
            return Ok(false);
        }
        let found: HashSet<_> = match fs::read_dir(self.folder()) {
            Err(error) if is_gone(&error) => return Ok(false),
            entries => entries?.map(|entry| Ok(entry?.file_name())).collect::<io::Result<_>>()?,
        };
        let records = HALVES.into_iter().flat_map(|half| [journal_name(half), snapshot_name(half)]);
        let are_there = [SUPERBLOCK_NAME]
            .into_iter()
            .chain(records)
            .all(|name| found.contains(OsStr::new(name)));
        Ok(are_there
            && (0..containers).all(|number| found.contains(OsStr::new(&container_name(number)))))
    }

    /// Opens both journals and both snapshots, making what is missing; each has its full size. What an
    /// earlier life has written to them and not synced is synced: recovery builds on what it reads.
    ///
    /// # Errors
    /// [`DirectoryFault::System`].
    pub fn records(&self) -> Result<Vec<(Half, File, File)>, DirectoryFault> {
        let open = |name: &str, bytes| {
            let path = self.folder().join(name);
            let file = files::open_or_make(&path, self.direct);
            file.and_then(|file| {
                files::reserve(&file, bytes)?;
                file.sync_all()?;
                Ok(file)
            })
            .map_err(system("making", &path))
        };
        let both = |half| {
            let journal = open(journal_name(half), self.plan.journal_bytes)?;
            let snapshot = open(snapshot_name(half), self.plan.snapshot_bytes_max)?;
            Ok((half, journal, snapshot))
        };
        HALVES.into_iter().map(both).collect()
    }

    /// Opens the containers that are there and complete, in their order, up to the first that is not.
    /// One that is missing between others, or too short, gets its size back: what was in it is found
    /// to be damaged when it is read.
    ///
    /// # Errors
    /// [`DirectoryFault::System`].
    pub fn containers(&self) -> Result<Vec<File>, DirectoryFault> {
        let numbers = self.container_numbers()?;
        let last =
            numbers.iter().copied().filter(|number| *number < self.plan.containers_max).max();
        let mut found = Vec::new();
        for number in 0..last.map_or(0, |last| last + 1) {
            let path = self.folder().join(container_name(number));
            let is_last = Some(number) == last;
            match self.container(&path, is_last).map_err(system("opening", &path))? {
                Some(file) => found.push(file),
                None => break,
            }
        }
        Ok(found)
    }

    /// Opens one container; none if it is the last one and still growing.
    fn container(&self, path: &Path, is_last: bool) -> io::Result<Option<File>> {
        let file = files::open_or_make(path, self.direct)?;
        let before_bytes = file.metadata()?.len();
        if before_bytes >= self.plan.container_bytes {
            return Ok(Some(file));
        }
        match files::reserve(&file, self.plan.container_bytes) {
            Ok(Sized::Sparse) if is_last => {
                file.set_len(before_bytes)?;
                Ok(None)
            }
            Ok(_) => Ok(Some(file)),
            // Reads beyond its end fail, and cost their blocks only.
            Err(error) if files::is_full(&error) => Ok(Some(file)),
            Err(error) => Err(error),
        }
    }

    /// Gives back what is beyond the share: containers that nothing refers to any more, and room of
    /// snapshots that a larger share had.
    ///
    /// # Errors
    /// [`DirectoryFault::System`].
    pub fn remove_surplus(&self) -> Result<u32, DirectoryFault> {
        for half in HALVES {
            let path = self.folder().join(snapshot_name(half));
            self.cut_snapshot(&path).map_err(system("cutting", &path))?;
        }
        let mut removed = 0;
        for number in self.container_numbers()? {
            if number >= self.plan.containers_max {
                let path = self.folder().join(container_name(number));
                fs::remove_file(&path).map_err(system("removing", &path))?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// A snapshot that is longer than the share allows stays until a shorter one has taken its place.
    fn cut_snapshot(&self, path: &Path) -> io::Result<()> {
        let mut file = match files::open(path, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        if file.metadata()?.len() <= self.plan.snapshot_bytes_max {
            return Ok(());
        }
        let mut head = vec![0; usize::try_from(SEGMENTS_OFFSET).unwrap_or(SUPERBLOCK_BYTES)];
        files::fill(&mut file, &mut head)?;
        let head = SnapshotHead::decode(&head, self.superblock.tag());
        let used_bytes = head.map_or(0, |head| head.end_offset);
        let bytes = self.plan.snapshot_bytes_max.max(used_bytes);
        if file.metadata()?.len() > bytes { file.set_len(bytes) } else { Ok(()) }
    }

    /// Numbers of the containers that are there.
    fn container_numbers(&self) -> Result<Vec<u32>, DirectoryFault> {
        let names = names(self.folder())?;
        Ok(names.iter().filter_map(|name| container_number(name)).collect())
    }
}

/// The number of a container's name, if it is one as we write it.
pub(super) fn container_number(name: &str) -> Option<u32> {
    let number = name.strip_prefix("container-")?.parse().ok()?;
    (container_name(number) == name).then_some(number)
}

pub(super) fn system<'a>(
    step: &'static str,
    path: &'a Path,
) -> impl Fn(io::Error) -> DirectoryFault + 'a {
    move |source| DirectoryFault::System { step, path: path.to_path_buf(), source }
}

pub(super) fn names(folder: &Path) -> Result<Vec<String>, DirectoryFault> {
    let listed = fs::read_dir(folder).and_then(|entries| {
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect()
    });
    listed.map_err(system("listing", folder))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const CAP_BYTES: u64 = 32 << 20;

    fn settings(bytes_each: u64, container_bytes: Option<u64>) -> DiskSettings {
        DiskSettings {
            paths: Vec::new(),
            bytes_each,
            container_bytes,
            depth: None,
            io_mode: crate::config::IoMode::Buffered,
            durability: crate::config::Durability::Relaxed,
            load_deadline: Duration::from_secs(5),
            write_budget_bytes: 0,
            second_touch: true,
            verify_one_in: None,
            drain_on_stop: false,
            self_check: false,
        }
    }

    fn open(parent: &Path, settings: &DiskSettings) -> Result<Directory, DirectoryFault> {
        Directory::open(Arc::new(Claim::new(parent).unwrap()), settings, false, [1; 16])
    }

    #[test]
    fn a_directory_is_made_once_and_found_again() {
        let parent = tempfile::tempdir().unwrap();
        let made = open(parent.path(), &settings(CAP_BYTES, None)).unwrap();
        assert!(made.containers().unwrap().is_empty());
        assert_eq!(made.records().unwrap().len(), 2);
        let superblock = made.superblock;
        drop(made);
        let again = open(parent.path(), &settings(2 * CAP_BYTES, Some(5 << 20))).unwrap();
        assert_eq!(again.superblock, superblock);
        assert_eq!(again.plan.container_bytes, superblock.container_bytes, "the disk wins");
        assert!(again.plan.containers_max > 8, "a larger share has more of them");
    }

    #[test]
    fn foreign_files_stay_and_ours_without_a_superblock_are_not_touched() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("infera-kvd");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("notes.txt"), "mine").unwrap();
        drop(open(parent.path(), &settings(CAP_BYTES, None)).unwrap());
        assert_eq!(fs::read(folder.join("notes.txt")).unwrap(), b"mine");
        fs::write(folder.join("container-00000"), "bytes").unwrap();
        fs::remove_file(folder.join(SUPERBLOCK_NAME)).unwrap();
        let refused = open(parent.path(), &settings(CAP_BYTES, None)).unwrap_err();
        assert!(refused.to_string().contains("container-00000 but no superblock"), "{refused}");
        assert_eq!(fs::read(folder.join("container-00000")).unwrap(), b"bytes");
        assert!(!fs::exists(folder.join(SUPERBLOCK_NAME)).unwrap());
    }

    #[test]
    fn a_damaged_superblock_is_left_as_it_is() {
        let parent = tempfile::tempdir().unwrap();
        drop(open(parent.path(), &settings(CAP_BYTES, None)).unwrap());
        let path = parent.path().join("infera-kvd").join(SUPERBLOCK_NAME);
        fs::write(&path, vec![7; SUPERBLOCK_BYTES]).unwrap();
        let refused = open(parent.path(), &settings(CAP_BYTES, None)).unwrap_err();
        assert!(refused.to_string().contains("move that directory away"), "{refused}");
        assert_eq!(fs::read(&path).unwrap(), vec![7; SUPERBLOCK_BYTES]);
    }

    #[test]
    fn a_device_that_failed_begins_anew() {
        let parent = tempfile::tempdir().unwrap();
        let made = open(parent.path(), &settings(CAP_BYTES, None)).unwrap();
        let superblock = made.superblock;
        marker::write(&made.claim, "a sync failed").unwrap();
        drop(made);
        let again = open(parent.path(), &settings(CAP_BYTES, None)).unwrap();
        assert_ne!(again.superblock.tag(), superblock.tag(), "old journals are nobody's");
        assert_eq!(again.superblock.fixed(), superblock.fixed());
        let anew = again.superblock;
        drop(again);
        assert_eq!(open(parent.path(), &settings(CAP_BYTES, None)).unwrap().superblock, anew);
    }

    #[test]
    fn a_file_that_is_gone_is_missed() {
        let parent = tempfile::tempdir().unwrap();
        let made = open(parent.path(), &settings(CAP_BYTES, None)).unwrap();
        drop(made.records().unwrap());
        fs::write(made.folder().join(container_name(0)), "").unwrap();
        assert!(made.is_whole(1).unwrap());
        assert!(!made.is_whole(2).unwrap());
        fs::remove_file(made.folder().join(journal_name(Half::B))).unwrap();
        assert!(!made.is_whole(0).unwrap());
    }

    #[test]
    fn missing_and_short_containers_get_their_size_back_and_surplus_ones_go() {
        let parent = tempfile::tempdir().unwrap();
        let made = open(parent.path(), &settings(CAP_BYTES, None)).unwrap();
        let container_bytes = made.plan.container_bytes;
        let name = |number| made.folder().join(container_name(number));
        fs::write(name(0), "short").unwrap();
        fs::write(name(2), vec![9; usize::try_from(container_bytes).unwrap()]).unwrap();
        fs::write(name(made.plan.containers_max), "beyond").unwrap();
        fs::write(made.folder().join("container-7"), "not as we write it").unwrap();
        assert_eq!(made.containers().unwrap().len(), 3);
        for number in 0..3 {
            assert_eq!(fs::metadata(name(number)).unwrap().len(), container_bytes);
        }
        assert!(fs::read(name(0)).unwrap().starts_with(b"short\0"));
        assert_eq!(made.remove_surplus().unwrap(), 1);
        assert!(!fs::exists(name(made.plan.containers_max)).unwrap());
        assert!(fs::exists(made.folder().join("container-7")).unwrap());
    }

    #[test]
    fn a_smaller_share_has_shorter_snapshots() {
        let parent = tempfile::tempdir().unwrap();
        let large = open(parent.path(), &settings(1 << 30, Some(1 << 20))).unwrap();
        drop((large.records().unwrap(), large));
        let small = open(parent.path(), &settings(CAP_BYTES, None)).unwrap();
        drop(small.records().unwrap());
        small.remove_surplus().unwrap();
        for half in HALVES {
            let path = small.folder().join(snapshot_name(half));
            assert_eq!(fs::metadata(path).unwrap().len(), small.plan.snapshot_bytes_max);
        }
    }
}
