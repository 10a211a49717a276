//! A file system in an image file, mounted by way of a loop device.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statvfs::statvfs;

use super::tool;
use crate::PATIENCE;
use crate::until::until;

/// Which file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ext4 with a journal.
    Ext4,
    /// XFS; its images have at least 300 MiB.
    Xfs,
}

/// A mounted file system.
#[derive(Debug)]
pub struct FileSystem {
    at: PathBuf,
    /// The loop device: `/dev/loop3`.
    device: String,
    is_mounted: bool,
}

/// Bytes that went to a device and came from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// Makes an image file of `bytes`, all of them holes.
///
/// # Panics
/// If that is not possible.
pub fn make_image(path: &Path, bytes: u64) {
    File::create(path).and_then(|file| file.set_len(bytes)).expect("making an image");
}

impl FileSystem {
    /// Makes a file system in `image`, which must exist, and mounts it at `at`.
    ///
    /// # Panics
    /// If that is not possible.
    #[must_use]
    pub fn make(image: &Path, kind: Kind, at: &Path) -> Self {
        match kind {
            // Everything is written now, not by the kernel when nobody expects it.
            Kind::Ext4 => tool::run(
                "mkfs.ext4",
                [
                    "-q".as_ref(),
                    "-F".as_ref(),
                    "-b".as_ref(),
                    "4096".as_ref(),
                    "-E".as_ref(),
                    "lazy_itable_init=0,lazy_journal_init=0".as_ref(),
                    "-m".as_ref(),
                    "0".as_ref(),
                    image.as_os_str(),
                ],
            ),
            Kind::Xfs => tool::run("mkfs.xfs", ["-q".as_ref(), "-f".as_ref(), image.as_os_str()]),
        };
        Self::mount(image, at)
    }

    /// Mounts what is in `image` at `at`.
    ///
    /// # Panics
    /// If that is not possible.
    #[must_use]
    pub fn mount(image: &Path, at: &Path) -> Self {
        fs::create_dir_all(at).expect("a folder to mount at");
        let words = ["--find", "--show", "--direct-io=on"].map(AsRef::as_ref);
        let device = tool::run("losetup", words.into_iter().chain([image.as_os_str()]));
        let mounted = tool::attempt("mount", [device.as_ref(), at.as_os_str()]);
        // While it is mounted this only says that the device is to go with its last user.
        let detached = tool::attempt("losetup", ["--detach", &device]);
        mounted.and(detached).unwrap_or_else(|trouble| panic!("{trouble}"));
        Self { at: at.to_owned(), device, is_mounted: true }
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.at
    }

    /// What its device has moved so far, as the kernel counts it.
    ///
    /// # Panics
    /// If the kernel does not say.
    #[must_use]
    pub fn moved(&self) -> Moved {
        let name = self.device.rsplit('/').next().expect("a name");
        let path = format!("/sys/block/{name}/stat");
        let text = fs::read_to_string(&path).unwrap_or_else(|trouble| panic!("{path}: {trouble}"));
        let mut sectors = text.split_whitespace().map(|number| number.parse::<u64>().ok());
        let mut bytes = |skipped| sectors.nth(skipped).flatten().expect("a number") * 512;
        Moved { read_bytes: bytes(2), written_bytes: bytes(3) }
    }

    /// Bytes that can still be written.
    ///
    /// # Panics
    /// If the file system does not say.
    #[must_use]
    pub fn free_bytes(&self) -> u64 {
        let found = statvfs(&self.at).expect("asking for its room");
        found.blocks_available() * found.fragment_size()
    }

    /// Puts a file there that leaves about `free_bytes`; it is in the way until it is removed.
    ///
    /// # Panics
    /// If there is less room already.
    #[must_use]
    pub fn fill_up_to(&self, free_bytes: u64) -> PathBuf {
        let ballast = self.at.join("ballast");
        let file = File::create(&ballast).expect("a file that is in the way");
        let bytes = self.free_bytes().checked_sub(free_bytes).expect("that much room");
        let bytes = i64::try_from(bytes).expect("a size");
        fallocate(&file, FallocateFlags::empty(), 0, bytes).expect("taking room");
        ballast
    }

    /// Unmounts it: everything is on its device afterwards.
    ///
    /// # Panics
    /// If somebody still uses it.
    pub fn unmount(mut self) {
        // The kernel closes the files of a ring some time after the process is gone.
        let gone = || tool::attempt("umount", [&self.at]).ok();
        until("nobody uses it", PATIENCE, gone);
        self.is_mounted = false;
    }

    /// Unmounts it although its device fails: what is not on the device is lost.
    pub fn abandon(self) {
        drop(self);
    }
}

impl Drop for FileSystem {
    fn drop(&mut self) {
        if self.is_mounted {
            // Its users may still be there; it goes when they do, at the latest with the namespace.
            let _may_be_gone = tool::attempt("umount", ["--lazy".as_ref(), self.at.as_os_str()]);
        }
    }
}
