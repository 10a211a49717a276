//! The disk tier: what is under each directory, and whether its share fits.

use std::path::Path;

use kvd_disk::classify::FileSystem;

use super::size;
use crate::config::Settings;
use crate::devices::claim::Obstacle;
use crate::doctor::finding::Finding;
use crate::doctor::storage::{Directory, Room};

const WHAT: &str = "disk tier";

pub(super) fn check(settings: &Settings, directories: &[Directory], findings: &mut Vec<Finding>) {
    if directories.is_empty() {
        findings.push(Finding::ok(WHAT, "off: blocks are kept in memory only"));
    }
    for (index, directory) in directories.iter().enumerate() {
        findings.push(storage(directory));
        findings.push(room(&directory.path, &directory.room, settings.disk.bytes_each));
        let before = directories.iter().take(index);
        let twin = before.filter(|other| other.file_system.is_some());
        if let Some(twin) =
            twin.into_iter().find(|other| other.file_system == directory.file_system)
        {
            findings.push(Finding::warn(
                WHAT,
                format!(
                    "{} and {} share a file system",
                    twin.path.display(),
                    directory.path.display()
                ),
                "a directory a device is faster, and room is counted for each",
            ));
        }
    }
}

fn storage(directory: &Directory) -> Finding {
    let path = directory.path.display();
    if let Some(Obstacle { path, found, remedy }) = &directory.obstacle {
        let found = format!("{} is {found}, not a directory", path.display());
        return Finding::fail(WHAT, found, *remedy);
    }
    if let Some(barred) = &directory.barred {
        let advice =
            "give the directory to the daemon's user; in the unit, name it in ReadWritePaths=";
        return Finding::fail(WHAT, format!("{path} can't be written to: {barred}"), advice);
    }
    let storage = match &directory.storage {
        Ok(storage) => storage,
        Err(reason) => {
            return Finding::warn(WHAT, format!("{path}: {reason}"), "kvdctl classify says more");
        }
    };
    let device =
        storage.device.as_ref().map_or_else(|| "an unknown device".to_owned(), ToString::to_string);
    let found = format!("{path}: {} on {device}, {} I/O", storage.file_system, storage.io_mode());
    match &storage.file_system {
        FileSystem::Memory(_) => {
            let advice = "a directory on a disk: this is memory, and gone after a reboot";
            Finding::warn(WHAT, found, advice)
        }
        FileSystem::Remote(_) => {
            Finding::warn(WHAT, found, "a local disk: when the other side hangs, loads wait for it")
        }
        FileSystem::Local(_) | FileSystem::Overlay | FileSystem::Zfs => Finding::ok(WHAT, found),
    }
}

/// Whether a directory's share of `--long-bytes` fits.
pub(in crate::doctor) fn room(path: &Path, room: &Room, share_bytes: u64) -> Finding {
    const WHAT: &str = "disk room";
    let path = path.display();
    let Some(free_bytes) = room.free_bytes else {
        return Finding::warn(WHAT, format!("{path}: the system does not say"), "df says more");
    };
    let usable_bytes = free_bytes.saturating_add(room.taken_bytes);
    let found = format!(
        "{path}: a share of {}, {} free and {} taken before",
        size(share_bytes),
        size(free_bytes),
        size(room.taken_bytes)
    );
    if usable_bytes >= share_bytes {
        return Finding::ok(WHAT, found);
    }
    let advice =
        "a smaller --long-bytes, or more room: the tier stops growing when the disk is full";
    Finding::warn(WHAT, found, advice)
}
