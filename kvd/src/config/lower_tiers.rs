//! Options of the disk and remote tiers. Existing command lines and unit files carry them, so they
//! are accepted and their values checked; this version keeps blocks in memory only and says so once
//! at start.

use super::option::{Group, Opt};
use super::value::Kind;

const SIZE_MAX: u64 = 1 << 50;

const fn flag(name: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Opt {
    Opt { name, flag: true, aliases: &[], kind, default, group: Group::LowerTiers, help }
}

const fn environment(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Opt {
    Opt { name, flag: false, aliases: &[], kind, default, group: Group::LowerTiers, help }
}

const SIZE: Kind = Kind::Size { min: 0, max: SIZE_MAX };
const COUNT: Kind = Kind::Count { min: 0, max: 1_000_000_000 };

/// Directory of the disk tier; excludes [`LONG_PATHS`].
pub(super) const LONG_PATH: &str = "long-path";
/// Several directories of the disk tier.
pub(super) const LONG_PATHS: &str = "long-paths";

/// The accepted options.
pub(super) static ACCEPTED: [Opt; 20] = [
    flag(LONG_PATH, Kind::Path, "", "Directory of the disk tier."),
    flag(LONG_PATHS, Kind::Path, "", "Several directories of the disk tier, separated by commas."),
    flag("long-bytes", SIZE, "32G", "Bytes of the disk tier in all."),
    flag(
        "long-backend",
        Kind::Word(&["tablespace", "mooncake", "lmcache"]),
        "tablespace",
        "What keeps blocks below memory: tablespace, mooncake or lmcache.",
    ),
    flag("mooncake-config", Kind::Path, "", "YAML file of the Mooncake store."),
    flag("lmcache-config", Kind::Path, "", "YAML file of the LMCache store."),
    flag("long-workers-per-shard", COUNT, "8", "Parallel reads per directory."),
    flag("use-tablespace", Kind::Switch, "false", "Container files instead of one file a block."),
    flag("tablespace-slot-bytes", SIZE, "64K", "Slot size of a container."),
    flag("tablespace-container-bytes", SIZE, "1G", "Size of one container file."),
    flag("tablespace-pools", Kind::Text, "", "Slot sizes and weights, like 64K*1,1M*4."),
    flag(
        "tablespace-flush-interval-ms",
        COUNT,
        "0",
        "Group commit window in milliseconds; 0: none.",
    ),
    flag("tablespace-buffered-io", Kind::Switch, "false", "No direct I/O."),
    flag("tablespace-auto-detect-fs", Kind::Switch, "false", "I/O mode by file system."),
    flag(
        "io-mode",
        Kind::Word(&["auto", "direct", "buffered"]),
        "auto",
        "Direct or buffered I/O; auto decides by device.",
    ),
    environment("storage-selfcheck", Kind::Switch, "1", "Measure the disk tier at start."),
    environment("selfcheck-gb", COUNT, "2", "GiB that the self-check writes."),
    environment("chunk-target-mib", COUNT, "128", "I/O size of the self-check in MiB."),
    environment("long-fsync", Kind::Switch, "0", "Durable before the answer."),
    environment("scan-workers", COUNT, "16", "Threads that scan the disk tier at start."),
];
