//! Block devices and what they are made of, as sysfs tells.

use std::collections::BTreeSet;
use std::fmt;
use std::path::{Path, PathBuf};

use super::Roots;
use super::mount::{FileSystem, Mount, Mounts, name_of};

/// Devices on devices, at most: real stacks have two or three.
const LEVELS_MAX: usize = 8;

/// A kind of block device.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum DeviceKind {
    /// An NVMe drive, or a path to one.
    Nvme,
    /// A SAS, SCSI or USB device that does not rotate.
    ScsiSsd,
    /// A SATA device that does not rotate.
    SataSsd,
    /// A disk that a hypervisor makes up.
    Virtual,
    /// Something else.
    Other,
    /// A disk that rotates.
    Hdd,
    /// Software RAID, over others.
    Md,
    /// A device-mapper target (LVM, encryption, multipath), over others.
    Dm,
    /// A file as a device.
    Loop,
}

impl DeviceKind {
    /// A stable name for logs and tables.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Nvme => "nvme",
            Self::ScsiSsd => "sas",
            Self::SataSsd => "sata-ssd",
            Self::Virtual => "virtual",
            Self::Other => "other",
            Self::Hdd => "hdd",
            Self::Md => "md",
            Self::Dm => "dm",
            Self::Loop => "loop",
        }
    }

    fn is_stacked(self) -> bool {
        matches!(self, Self::Md | Self::Dm | Self::Loop)
    }
}

/// A block device.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Device {
    /// As in `/sys/class/block`, of the whole disk, not of a partition.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    /// What it is made of; empty for real ones.
    pub below: Vec<Device>,
}

impl Device {
    /// The real devices at the bottom; the device itself if nothing is known to be under it.
    #[must_use]
    pub fn leaves(&self) -> Vec<&Device> {
        if self.below.is_empty() {
            return vec![self];
        }
        self.below.iter().flat_map(Device::leaves).collect()
    }

    /// The kind of the worst real device: a stack is as good as that. [`DeviceKind::Other`] if
    /// nothing is known under a stacked one.
    #[must_use]
    pub fn worst(&self) -> DeviceKind {
        let kinds = self.leaves().into_iter().map(|leaf| match leaf.kind {
            stacked if stacked.is_stacked() => DeviceKind::Other,
            kind => kind,
        });
        kinds.max().unwrap_or(DeviceKind::Other)
    }
}

impl fmt::Display for Device {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.name, self.kind.as_str())?;
        for (number, below) in self.below.iter().enumerate() {
            out.write_str(if number == 0 { " over " } else { " + " })?;
            fmt::Display::fmt(below, out)?;
        }
        Ok(())
    }
}

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub(super) struct Survey<'a> {
    pub(super) roots: &'a Roots,
    pub(super) mounts: &'a Mounts,
}

impl Survey<'_> {
    /// The device under a mount.
    pub(super) fn under(self, mount: &Mount) -> Option<Device> {
        self.under_at(mount, 0)
    }

    fn under_at(self, mount: &Mount, level: usize) -> Option<Device> {
        if level >= LEVELS_MAX {
            return None;
        }
        match (&mount.file_system, mount.device) {
            (FileSystem::Overlay, _) => {
                let upper = self.mounts.containing(mount.upper.as_deref()?)?;
                // A container sees the path, not the mount that it is on.
                if upper.file_system == FileSystem::Overlay {
                    return None;
                }
                self.under_at(upper, level.saturating_add(1))
            }
            (FileSystem::Memory(_) | FileSystem::Remote(_), _) => None,
            (FileSystem::Local(_) | FileSystem::Zfs, (0, _)) => {
                // Some file systems span devices and have a made-up number; the source is one.
                let source = Path::new(&mount.source).strip_prefix("/dev").ok()?;
                let source = self.roots.join("dev").join(source);
                let name = name_of(&source.canonicalize().unwrap_or(source));
                self.described(&self.roots.join("sys/class/block").join(name), level)
            }
            (FileSystem::Local(_) | FileSystem::Zfs, (major, minor)) => {
                let number = format!("sys/dev/block/{major}:{minor}");
                self.described(&self.roots.join(&number), level)
            }
        }
    }

    /// The device that an entry of sysfs leads to; of a partition, the disk.
    fn described(self, entry: &Path, level: usize) -> Option<Device> {
        let mut folder = entry.canonicalize().ok()?;
        if folder.join("partition").try_exists().unwrap_or(false) {
            folder.pop();
        }
        let kind = kind_of(&folder);
        let below = match kind {
            DeviceKind::Loop => self.file_under(&folder, level).into_iter().collect(),
            DeviceKind::Md | DeviceKind::Dm => self.slaves_of(&folder, level),
            DeviceKind::Nvme
            | DeviceKind::ScsiSsd
            | DeviceKind::SataSsd
            | DeviceKind::Virtual
            | DeviceKind::Other
            | DeviceKind::Hdd => Vec::new(),
        };
        Some(Device { name: name_of(&folder), kind, below })
    }

    fn slaves_of(self, folder: &Path, level: usize) -> Vec<Device> {
        let level = level.saturating_add(1);
        let Ok(entries) = folder.join("slaves").read_dir() else { return Vec::new() };
        if level >= LEVELS_MAX {
            return Vec::new();
        }
        // In order of name, so that the answer is the same each time.
        let paths: BTreeSet<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        paths.iter().filter_map(|path| self.described(path, level)).collect()
    }

    /// The device under the file that a loop device is.
    fn file_under(self, folder: &Path, level: usize) -> Option<Device> {
        let file = read(&folder.join("loop/backing_file"))?;
        let mount = self.mounts.containing(Path::new(&file))?;
        self.under_at(mount, level.saturating_add(1))
    }
}

fn kind_of(folder: &Path) -> DeviceKind {
    let name = name_of(folder);
    let has = |part: &str| folder.join(part).try_exists().unwrap_or(false);
    let rotates = read(&folder.join("queue/rotational")).as_deref() == Some("1");
    match name.as_str() {
        _ if has("dm") => DeviceKind::Dm,
        _ if has("md") => DeviceKind::Md,
        _ if has("loop") => DeviceKind::Loop,
        name if name.starts_with("nvme") => DeviceKind::Nvme,
        // Whether these rotate is the hypervisor's guess, mostly wrong.
        name if name.starts_with("vd") || name.starts_with("xvd") => DeviceKind::Virtual,
        name if name.starts_with("sd") && rotates => DeviceKind::Hdd,
        name if name.starts_with("sd") => {
            let vendor = read(&folder.join("device/vendor"));
            match vendor.as_deref() {
                Some("ATA") => DeviceKind::SataSsd,
                Some(_) | None => DeviceKind::ScsiSsd,
            }
        }
        _other if rotates => DeviceKind::Hdd,
        _other => DeviceKind::Other,
    }
}

fn read(path: &Path) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}
