//! Options that existing command lines and unit files carry and that mean nothing here: those of a
//! remote tier, which this version does not have, and those of a disk layout that it does not use.
//! They are accepted, their values checked, and one line at start names them.

use super::option::{Group, Opt};
use super::value::Kind;

const SIZE_MAX: u64 = 1 << 50;

const fn option(name: &'static str, flag: bool, kind: Kind, default: &'static str) -> Opt {
    Opt { name, flag, aliases: &[], kind, default, group: Group::Accepted, help: "" }
}

const fn with_help(option: Opt, help: &'static str) -> Opt {
    Opt { help, ..option }
}

const SIZE: Kind = Kind::Size { min: 0, max: SIZE_MAX };
const COUNT: Kind = Kind::Count { min: 0, max: 1_000_000_000 };

/// Only its values other than the default have no effect.
pub(super) const LONG_BACKEND: &str = "long-backend";

/// Container files are the only way to be on disk.
pub(super) const USE_TABLESPACE: &str = "use-tablespace";

/// Options of a remote tier.
pub(super) static REMOTE: [Opt; 3] = [
    with_help(
        option(
            LONG_BACKEND,
            true,
            Kind::Word(&["tablespace", "mooncake", "lmcache"]),
            "tablespace",
        ),
        "What keeps blocks below memory. mooncake and lmcache are not in this version.",
    ),
    with_help(
        option("mooncake-config", true, Kind::Path, ""),
        "YAML file of the Mooncake store, which is not in this version.",
    ),
    with_help(
        option("lmcache-config", true, Kind::Path, ""),
        "YAML file of the LMCache store, which is not in this version.",
    ),
];

/// Options of a disk layout of slots, pools and one file a block.
pub(super) static OBSOLETE: [Opt; 6] = [
    with_help(
        option(USE_TABLESPACE, true, Kind::Switch, "true"),
        "Container files instead of one file a block: always so.",
    ),
    with_help(
        option("tablespace-slot-bytes", true, SIZE, "64K"),
        "Slot size of a container. There are no slots: values of any size are stored.",
    ),
    with_help(
        option("tablespace-pools", true, Kind::Text, ""),
        "Slot sizes and weights. There are no slots.",
    ),
    with_help(
        option("selfcheck-gb", false, COUNT, "2"),
        "GiB that the self-check writes. It writes at most 64 MiB.",
    ),
    with_help(
        option("chunk-target-mib", false, COUNT, "128"),
        "I/O size of the self-check in MiB. It is 1 MiB.",
    ),
    with_help(
        option("scan-workers", false, COUNT, "16"),
        "Threads that scan the disk tier at start. Nothing is scanned: a journal says what is there.",
    ),
];
