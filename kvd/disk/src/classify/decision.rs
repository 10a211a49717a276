//! Direct or not, and how deep: what file system and device speak for.

use super::Mode;
use super::device::{Device, DeviceKind};
use super::mount::FileSystem;

/// Operations in flight on one storage, at most.
const DEPTH_MAX: usize = 128;

/// What file system and device speak for; whether direct I/O works is another question.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Leaning {
    pub(super) tries_direct: bool,
    pub(super) depth: usize,
}

pub(super) fn lean(
    mode: Mode,
    file_system: &FileSystem,
    device: Option<&Device>,
    why: &mut Vec<String>,
) -> Leaning {
    let tries_direct = match mode {
        Mode::Buffered => {
            why.push("buffered I/O was asked for".to_owned());
            false
        }
        Mode::Direct => {
            why.push("direct I/O was asked for".to_owned());
            true
        }
        Mode::Auto => {
            let (tries_direct, reason) = pays(file_system, device);
            why.push(reason.to_owned());
            tries_direct
        }
    };
    Leaning { tries_direct, depth: depth(file_system, device) }
}

/// Whether direct I/O is worth trying, and why.
fn pays(file_system: &FileSystem, device: Option<&Device>) -> (bool, &'static str) {
    match file_system {
        FileSystem::Memory(_) => (false, "this is memory already: nothing to go around"),
        FileSystem::Remote(_) => {
            (false, "another machine or process answers: the page cache hides some of the way")
        }
        FileSystem::Zfs => {
            (false, "zfs caches by itself, and splits direct I/O by its record size")
        }
        FileSystem::Local(_) | FileSystem::Overlay => match device.map(Device::worst) {
            Some(DeviceKind::Nvme | DeviceKind::ScsiSsd | DeviceKind::SataSsd) => {
                (true, "solid state: direct I/O saves a copy and the page cache's memory")
            }
            Some(DeviceKind::Virtual) => (
                true,
                "a virtual disk: direct I/O if it works; whether it rotates is not looked at, \
                 for hypervisors make that up",
            ),
            Some(DeviceKind::Hdd) => {
                (false, "a disk that rotates: the page cache puts neighbours together")
            }
            Some(DeviceKind::Other | DeviceKind::Md | DeviceKind::Dm | DeviceKind::Loop) | None => {
                (true, "the device is of no known kind: direct I/O if it works")
            }
        },
    }
}

/// By kind: solid state answers many requests at once, a hypervisor's queue saturates early, a head is
/// in one place only. Several devices take as many each.
fn depth(file_system: &FileSystem, device: Option<&Device>) -> usize {
    let one = match (file_system, device.map(Device::worst)) {
        (FileSystem::Memory(_), _) | (_, Some(DeviceKind::Hdd)) => 4,
        (_, Some(DeviceKind::Nvme | DeviceKind::ScsiSsd | DeviceKind::SataSsd)) => 32,
        (
            _,
            Some(
                DeviceKind::Virtual
                | DeviceKind::Other
                | DeviceKind::Md
                | DeviceKind::Dm
                | DeviceKind::Loop,
            )
            | None,
        ) => 16,
    };
    let devices = device.map_or(1, |device| device.leaves().len());
    devices.saturating_mul(one).min(DEPTH_MAX)
}
