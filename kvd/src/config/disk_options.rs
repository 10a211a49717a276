//! The options of the disk tier, in the order of `--help`.

use std::time::Duration;

use super::option::{Group, Opt};
use super::value::Kind;

/// Largest size that is taken for meant: 1 PiB.
const SIZE_MAX: u64 = 1 << 50;
const HOUR: Duration = Duration::from_secs(3600);

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Opt {
    Opt { name, flag: true, aliases: &[], kind, default, group: Group::Disk, help }
}

const fn environment(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Opt {
    Opt { name, flag: false, aliases: &[], kind, default, group: Group::Disk, help }
}

pub(super) static LONG_PATH: Opt = flag(
    "long-path",
    Kind::Path,
    "",
    "Directory of the disk tier, made if it is missing. Everything lives in its sub-directory infera-kvd; nothing else in it is touched. Without it blocks are kept in memory only.",
);
pub(super) static LONG_PATHS: Opt = flag(
    "long-paths",
    Kind::Path,
    "",
    "Several directories of the disk tier, separated by commas, best on a device each. Excludes --long-path.",
);
pub(super) static LONG_BYTES: Opt = flag(
    "long-bytes",
    Kind::Size { min: 0, max: SIZE_MAX },
    "32G",
    "Most bytes on disk, journal and snapshots included, split evenly over the directories. 0: no disk tier.",
);
pub(super) static CONTAINER_BYTES: Opt = flag(
    "tablespace-container-bytes",
    Kind::SizeOrAuto { min: 1 << 20, max: SIZE_MAX },
    "auto",
    "Size of one container file; files are made one by one as they are needed. auto: 1G, or about an eighth of a small directory's share.",
);
pub(super) static LONG_WORKERS: Opt = flag(
    "long-workers-per-shard",
    Kind::Count { min: 0, max: 1_024 },
    "0",
    "Disk operations in flight per directory. 0: by the kind of device.",
);
pub(super) static IO_MODE: Opt = flag(
    "io-mode",
    Kind::Word(&["auto", "direct", "buffered"]),
    "auto",
    "Direct I/O (past the page cache) or buffered; auto decides by device, and direct falls back where it is refused. Here the environment wins over the flag.",
);
pub(super) static BUFFERED_IO: Opt = flag(
    "tablespace-buffered-io",
    Kind::Switch,
    "false",
    "Buffered I/O, whatever --io-mode and --tablespace-auto-detect-fs say.",
);
pub(super) static AUTO_DETECT_FS: Opt = flag(
    "tablespace-auto-detect-fs",
    Kind::Switch,
    "false",
    "Direct or buffered I/O by file system, whatever --io-mode says: direct on ext4, xfs, btrfs and NFS.",
);
pub(super) static DURABILITY: Opt = flag(
    "durability",
    Kind::Word(&["relaxed", "group", "strict"]),
    "relaxed",
    "When the disk is synced. relaxed: now and then, a power cut may forget the last blocks. group: every flush interval. strict: before a block of class long is acknowledged. None can return wrong bytes.",
);
pub(super) static FLUSH_INTERVAL: Opt = flag(
    "tablespace-flush-interval-ms",
    Kind::Count { min: 0, max: 60_000 },
    "0",
    "Milliseconds between syncs; above 0 it means --durability group unless --durability says otherwise.",
);
pub(super) static LOAD_DEADLINE: Opt = flag(
    "load-deadline",
    Kind::Time { min: Duration::from_millis(1), max: HOUR },
    "5s",
    "Longest time that a request waits for the disk; then what is not loaded yet is a miss. Protocol-2 clients may ask for less.",
);
pub(super) static WRITE_BUDGET: Opt = flag(
    "write-budget",
    Kind::Size { min: 0, max: SIZE_MAX },
    "0",
    "Bytes a second that may be written on average, to spare the devices; what is above stays in memory and is counted. 0: no budget.",
);
pub(super) static SECOND_TOUCH: Opt = flag(
    "second-touch",
    Kind::Switch,
    "true",
    "Blocks of class short go to disk only if they were asked for again after they were stored, or stored a second time.",
);
pub(super) static VERIFY_L2: Opt = flag(
    "verify-l2",
    Kind::Sample,
    "off",
    "Check one in N blocks found in memory against its checksum before it is served: 1/1000, say. What does not fit is a miss and is dropped.",
);
pub(super) static DRAIN_ON_STOP: Opt = flag(
    "drain-on-stop",
    Kind::Switch,
    "false",
    "On SIGTERM write the blocks that only memory holds to disk, most valuable first, within --drain-deadline.",
);
pub(super) static SELF_CHECK: Opt = environment(
    "storage-selfcheck",
    Kind::Switch,
    "1",
    "Measure each directory in the background after the start, with at most 64 MiB, and log what it found.",
);
pub(super) static LONG_FSYNC: Opt = environment(
    "long-fsync",
    Kind::Switch,
    "0",
    "1 means --durability strict unless --durability says otherwise.",
);

/// All of them.
pub(super) static DISK: [&Opt; 17] = [
    &LONG_PATH,
    &LONG_PATHS,
    &LONG_BYTES,
    &CONTAINER_BYTES,
    &LONG_WORKERS,
    &IO_MODE,
    &BUFFERED_IO,
    &AUTO_DETECT_FS,
    &DURABILITY,
    &FLUSH_INTERVAL,
    &LOAD_DEADLINE,
    &WRITE_BUDGET,
    &SECOND_TOUCH,
    &VERIFY_L2,
    &DRAIN_ON_STOP,
    &SELF_CHECK,
    &LONG_FSYNC,
];
