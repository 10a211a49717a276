//! How the bytes of a device are shared out between its files, and what the files are called.

use super::format::{BLOCK_BYTES, SEGMENTS_OFFSET};
use crate::disk::Half;

const MIB: u64 = 1 << 20;
const CONTAINER_BYTES_MAX: u64 = 1 << 30;
/// Containers that the usable bytes are cut into at least.
const CONTAINERS_MIN: u64 = 8;
/// Smallest cap that leaves room for blocks beside journals and snapshots.
const CAP_BYTES_MIN: u64 = 16 * MIB;

/// Folder of all files of a device, in the folder that the operator names. Nothing else in the
/// latter is ever touched.
pub const DIRECTORY: &str = "infera-kvd";
/// Held locked while a daemon uses the device; says whose it is.
pub const LOCK_NAME: &str = "lock";
/// See [`super::Superblock`].
pub const SUPERBLOCK_NAME: &str = "superblock";

/// Name of a journal file.
#[must_use]
pub const fn journal_name(half: Half) -> &'static str {
    match half {
        Half::A => "journal-a",
        Half::B => "journal-b",
    }
}

/// Name of a snapshot file.
#[must_use]
pub const fn snapshot_name(half: Half) -> &'static str {
    match half {
        Half::A => "snapshot-a",
        Half::B => "snapshot-b",
    }
}

/// Name of a container file.
#[must_use]
pub fn container_name(number: u32) -> String {
    format!("container-{number:05}")
}

/// How a device of some size is shared out. All files together stay below the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Bytes of each container.
    pub container_bytes: u64,
    /// How many there may be.
    pub containers_max: u32,
    /// Bytes of each of the two journals.
    pub journal_bytes: u64,
    /// Most bytes of each of the two snapshots.
    pub snapshot_bytes_max: u64,
}

/// The operator gives a device too few bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{given} bytes are too few for a device, at least {least} are needed")]
pub struct TooSmall {
    /// What was given.
    pub given: u64,
    /// What is needed.
    pub least: u64,
}

impl Plan {
    /// Shares out `cap_bytes`. Sizes that are fixed on the device already win.
    ///
    /// # Errors
    /// [`TooSmall`] if no container fits.
    pub fn for_cap(cap_bytes: u64, fixed: Option<Fixed>) -> Result<Self, TooSmall> {
        let journal_bytes = fixed.map_or_else(
            || blocks((cap_bytes / 256).clamp(MIB, 1 << 30)),
            |fixed| fixed.journal_bytes,
        );
        let snapshot_bytes_max = blocks((cap_bytes / 64).max(MIB)) + SEGMENTS_OFFSET;
        // Folders, the superblock, the lock, and what the file system needs to know of the files.
        let slack = 256 * 1024 + blocks(cap_bytes / 4096);
        let beside = 2 * journal_bytes + 2 * snapshot_bytes_max + slack;
        let least = CAP_BYTES_MIN.max(beside + fixed.map_or(MIB, |fixed| fixed.container_bytes));
        let usable = cap_bytes.saturating_sub(beside);
        if cap_bytes < least {
            return Err(TooSmall { given: cap_bytes, least });
        }
        let container_bytes = fixed.map_or_else(
            || {
                let containers = usable.div_ceil(CONTAINER_BYTES_MAX).max(CONTAINERS_MIN);
                blocks(usable / containers)
            },
            |fixed| fixed.container_bytes,
        );
        let containers_max = u32::try_from(usable / container_bytes).unwrap_or(u32::MAX);
        Ok(Self { container_bytes, containers_max, journal_bytes, snapshot_bytes_max })
    }
}

/// Sizes that a device keeps for its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fixed {
    /// Bytes of each container.
    pub container_bytes: u64,
    /// Bytes of each journal.
    pub journal_bytes: u64,
}

/// The whole blocks in so many bytes.
const fn blocks(bytes: u64) -> u64 {
    bytes - bytes % BLOCK_BYTES
}

#[cfg(test)]
mod tests {
    use super::{Fixed, MIB, Plan};

    #[test]
    fn all_files_together_stay_below_the_cap() {
        for cap in [16 * MIB, 17 * MIB + 1, 100 * MIB, 10 << 30, 3 << 40] {
            let plan = Plan::for_cap(cap, None).unwrap();
            let containers = u64::from(plan.containers_max) * plan.container_bytes;
            let all = containers + 2 * plan.journal_bytes + 2 * plan.snapshot_bytes_max;
            assert!(all < cap, "{plan:?}");
            assert!(all > cap - cap / 16 - 256 * 1024, "{cap} is wasted: {plan:?}");
            assert!(plan.containers_max >= 8 && plan.container_bytes <= 1 << 30);
            let fixed = Fixed { container_bytes: 1 << 20, journal_bytes: 2 << 20 };
            let plan = Plan::for_cap(cap, Some(fixed)).unwrap();
            assert_eq!((plan.container_bytes, plan.journal_bytes), (1 << 20, 2 << 20));
        }
    }

    #[test]
    fn too_small_a_cap_is_refused() {
        let refused = Plan::for_cap(MIB, None).unwrap_err();
        assert_eq!(
            Plan::for_cap(refused.least - 1, None).unwrap_err(),
            super::TooSmall { given: refused.least - 1, ..refused }
        );
        Plan::for_cap(refused.least, None).unwrap();
        let fixed = Fixed { container_bytes: 1 << 30, journal_bytes: MIB };
        Plan::for_cap(100 * MIB, Some(fixed)).unwrap_err();
    }
}
