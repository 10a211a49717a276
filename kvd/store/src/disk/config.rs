//! The numbers of the tier below the arena.

use crate::tablespace::WallTime;
use crate::time::Timestamp;

/// Most devices of one store.
pub const DEVICES_MAX: u8 = 32;

/// Which device: its place in the configured list, below [`DEVICES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u8);

/// When bytes are forced to stable storage. Clears are forced in all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Never for a block: a crash of the host loses the last moments.
    #[default]
    Relaxed,
    /// Every [`DiskConfig::group_interval_ms`] if something was written.
    Group,
    /// Before a `long` block, or one that replaces a block on a device, is acknowledged.
    Strict,
}

/// What a store knows about its devices beforehand.
#[derive(Clone, Copy, Debug)]
pub struct DiskConfig {
    /// How many there are, at most [`DEVICES_MAX`]. Each is unusable until
    /// [`crate::Input::TablespaceReady`] or [`crate::Input::DeviceFailed`] says what it is.
    pub devices: u8,
    /// Wall clock at `Timestamp(0)`, in milliseconds since 1970: times to live on devices are
    /// wall-clock times.
    pub wall_origin_ms: u64,
    /// When syncs happen.
    pub durability: Durability,
    /// For [`Durability::Group`]. Default 20.
    pub group_interval_ms: u64,
    /// Most payload bytes written per second, all devices together, with bursts of one second's
    /// worth. 0: no budget, the default.
    pub write_budget_bytes_per_s: u64,
    /// Write a `short` block only if it was fetched since it was stored, or was stored before.
    /// Default: off.
    pub second_touch: bool,
    /// Most loads of one device that are waiting or under way. Default 1 024.
    pub loads_max: u32,
    /// Most bytes of arena that loads of all devices may hold. Default: an eighth of the arena.
    pub load_bytes_max: u64,
    /// Most keys that wait as hints, over all devices. Default 131 072.
    pub hints_max: u32,
    /// Failures in a row, reads and writes alike, after which a device is out of use. Default 16.
    pub faults_max: u32,
}

impl DiskConfig {
    /// No device.
    pub const NONE: Self = Self::new(0, 0);

    /// The defaults for so many devices under an arena of `arena_bytes`.
    #[must_use]
    pub const fn new(devices: u8, arena_bytes: u64) -> Self {
        Self {
            devices,
            wall_origin_ms: 0,
            durability: Durability::Relaxed,
            group_interval_ms: 20,
            write_budget_bytes_per_s: 0,
            second_touch: false,
            loads_max: 1_024,
            load_bytes_max: arena_bytes / 8,
            hints_max: 131_072,
            faults_max: 16,
        }
    }

    /// The same moment on the wall clock.
    pub(crate) const fn wall(&self, at: Timestamp) -> WallTime {
        if at.0 == Timestamp::NEVER.0 {
            return WallTime::NEVER;
        }
        WallTime(at.0.saturating_add(self.wall_origin_ms))
    }

    /// The same moment on the monotonic clock; its beginning, if it was before that.
    pub(crate) const fn monotonic(&self, at: WallTime) -> Timestamp {
        if at.0 == WallTime::NEVER.0 {
            return Timestamp::NEVER;
        }
        Timestamp(at.0.saturating_sub(self.wall_origin_ms))
    }
}
