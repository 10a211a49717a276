//! The list of mounts (`/proc/self/mountinfo`), and which one a path is on.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// A kind of file system, as far as it matters here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum FileSystem {
    /// On block devices: ext4, xfs, btrfs and others, by their names.
    Local(String),
    /// Memory: tmpfs or ramfs.
    Memory(String),
    /// Another machine's, or another process's: nfs4, cifs, ceph, fuse.… .
    Remote(String),
    /// With a cache of its own between it and its devices.
    Zfs,
    /// A container's layers.
    Overlay,
}

impl FileSystem {
    fn of(name: &str) -> Self {
        let owned = || name.to_owned();
        match name {
            "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs" => Self::Memory(owned()),
            "overlay" => Self::Overlay,
            "zfs" => Self::Zfs,
            "nfs" | "nfs4" | "cifs" | "smb3" | "ceph" | "9p" | "virtiofs" | "lustre" | "gpfs"
            | "beegfs" | "glusterfs" | "afs" | "orangefs" | "fuse" => Self::Remote(owned()),
            _fuse if name.starts_with("fuse.") => Self::Remote(owned()),
            _other => Self::Local(owned()),
        }
    }

    pub(super) fn has_device(&self) -> bool {
        match self {
            Self::Local(_) | Self::Overlay | Self::Zfs => true,
            Self::Memory(_) | Self::Remote(_) => false,
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Local(name) | Self::Memory(name) | Self::Remote(name) => name,
            Self::Zfs => "zfs",
            Self::Overlay => "overlay",
        })
    }
}

/// One line of the list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Mount {
    pub(super) point: PathBuf,
    pub(super) file_system: FileSystem,
    /// What was mounted: a device's path, a server and path, or any word.
    pub(super) source: String,
    /// `major:minor`; major 0 is no block device.
    pub(super) device: (u32, u32),
    /// Where an overlay keeps what is written.
    pub(super) upper: Option<PathBuf>,
}

/// All lines.
#[derive(Debug)]
pub(super) struct Mounts(Vec<Mount>);

impl Mounts {
    pub(super) fn read(list: &Path) -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read(list)?))
    }

    /// Lines that make no sense are left out.
    fn parse(text: &[u8]) -> Self {
        Self(text.split(|byte| *byte == b'\n').filter_map(parse_line).collect())
    }

    /// The mount that the path is on: the longest mount point that is a prefix of it; of several at
    /// one point, the last, which hides the others.
    pub(super) fn containing(&self, path: &Path) -> Option<&Mount> {
        let all = self.0.iter().filter(|mount| path.starts_with(&mount.point));
        all.max_by_key(|mount| mount.point.components().count())
    }
}

/// `36 35 98:0 /root /point options tag:1 - type source super-options`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = std::str::from_utf8(fields.nth(2)?).ok()?;
    let (major, minor) = device.split_once(':')?;
    let point = PathBuf::from(unescaped(fields.nth(1)?));
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let file_system = FileSystem::of(std::str::from_utf8(fields.next()?).ok()?);
    let source = unescaped(fields.next()?).to_string_lossy().into_owned();
    let options = fields.next().unwrap_or_default();
    let upper = options.split(|byte| *byte == b',').find_map(|option| {
        let upper = option.strip_prefix(b"upperdir=")?;
        Some(PathBuf::from(unescaped(upper)))
    });
    let device = (major.parse().ok()?, minor.parse().ok()?);
    Some(Mount { point, file_system, source, device, upper })
}

/// Blanks and backslashes are written as a backslash and three octal digits.
fn unescaped(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| *first == b'\\');
        let octal = octal.and_then(|digits| std::str::from_utf8(digits).ok());
        let octal = octal.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        let used = if octal.is_some() { 3 } else { 0 };
        rest = after.get(used..).unwrap_or_default();
    }
    OsString::from_vec(bytes)
}

/// The last part of a path, as sysfs writes names of devices.
pub(super) fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    String::from_utf8_lossy(name.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
22 1 254:0 / / rw,noatime - ext4 /dev/vda rw\n\
23 22 0:21 / /proc rw,relatime - proc proc rw\n\
24 22 259:1 / /data rw shared:1 master:2 - xfs /dev/nvme0n1 rw\n\
25 24 0:50 / /data/with\\040blank\\134 rw shared:3 - nfs4 server:/a\\040b rw,vers=4.2\n\
26 22 8:1 /sub /data rw - btrfs /dev/sda1 rw\n\
27 22 0:60 / /layers rw - overlay overlay rw,lowerdir=/a:/b,upperdir=/up/diff,workdir=/w\n\
nonsense\n\
28 22 x:1 / /odd rw - ext4 /dev/odd rw\n";

    fn mount_of(path: &str) -> Mount {
        Mounts::parse(LIST.as_bytes()).containing(Path::new(path)).unwrap().clone()
    }

    #[test]
    fn lines_are_understood() {
        assert_eq!(Mounts::parse(LIST.as_bytes()).0.len(), 6);
        let mount = mount_of("/data/with blank\\/x");
        assert_eq!(mount.source, "server:/a b");
        assert_eq!(mount.file_system, FileSystem::Remote("nfs4".to_owned()));
        assert_eq!(mount_of("/layers/x").upper.unwrap(), Path::new("/up/diff"));
    }

    #[test]
    fn the_deepest_and_the_last_mount_counts() {
        assert_eq!(mount_of("/home").device, (254, 0));
        assert_eq!(mount_of("/data/x").device, (8, 1), "the later mount hides the earlier");
        assert_eq!(mount_of("/database").device, (254, 0), "names are compared whole");
    }

    #[test]
    fn garbage_is_no_mount() {
        for text in ["", "\n\n", "1 2 3:4", "1 2 3:4 / /x", "1 2 3:4 / /x rw - ext4", "\\\\\\"] {
            assert!(Mounts::parse(text.as_bytes()).0.is_empty(), "{text:?}");
        }
        assert_eq!(unescaped(b"a\\04"), "a\\04", "an escape that is cut off stays");
        assert_eq!(unescaped(b"\\999"), "\\999");
    }
}
