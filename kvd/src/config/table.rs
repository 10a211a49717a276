//! Every option of the daemon, one row each, in the order of `--help`. `docs/configuration.md`
//! repeats this table and a test compares the two.

use std::time::Duration;

use super::disk_options::DISK;
use super::events_options::EVENTS;
use super::lower_tiers;
use super::option::{Group, Opt};
use super::value::Kind;

/// Largest memory size that is taken for meant: 1 PiB.
const SIZE_MAX: u64 = 1 << 50;
const HOUR: Duration = Duration::from_secs(3600);

/// Names that only the environment has, for the remote tier; every name with this prefix is known.
pub(super) const REMOTE_TIER_PREFIX: &str = "INFERA_L4_";

/// Where the daemon listens, and engines look, when nobody says otherwise.
pub const DEFAULT_SOCKET: &str = "/var/run/infera-kvd.sock";

pub(super) static CONFIG: Opt = Opt {
    name: "config",
    flag: true,
    aliases: &[],
    kind: Kind::Path,
    default: "",
    group: Group::Access,
    help: "TOML file with any of these options as top-level keys; flags and environment win over it.",
};
pub(super) static SOCKET: Opt = Opt {
    name: "socket",
    flag: true,
    aliases: &[],
    kind: Kind::SocketPath,
    default: DEFAULT_SOCKET,
    group: Group::Access,
    help: "Unix socket that engines connect to. Missing parent folders are created; a stale socket is replaced, a live one is refused.",
};
pub(super) static SOCKET_MODE: Opt = Opt {
    name: "socket-mode",
    flag: true,
    aliases: &[],
    kind: Kind::Mode,
    default: "0700",
    group: Group::Access,
    help: "Permission bits of the socket (octal). Whoever may write to it may read and write every block.",
};
pub(super) static SOCKET_GROUP: Opt = Opt {
    name: "socket-group",
    flag: true,
    aliases: &[],
    kind: Kind::Group,
    default: "",
    group: Group::Access,
    help: "Group that the socket is given to, by name or number; useful with --socket-mode 0770.",
};
pub(super) static ALLOW_UID: Opt = Opt {
    name: "allow-uid",
    flag: true,
    aliases: &[],
    kind: Kind::Users,
    default: "",
    group: Group::Access,
    help: "Only peers with one of these user ids are served. May be repeated. Without it the socket's permissions decide alone.",
};
pub(super) static ADMIN_SOCKET: Opt = Opt {
    name: "admin-socket",
    flag: true,
    aliases: &[],
    kind: Kind::SocketPath,
    default: "",
    group: Group::Access,
    help: "Unix socket (mode 0600) of the admin HTTP interface. Without it: the path of --socket with .admin.sock in place of .sock.",
};
pub(super) static TAKEOVER_SOCKET: Opt = Opt {
    name: "takeover-socket",
    flag: true,
    aliases: &[],
    kind: Kind::SocketPath,
    default: "",
    group: Group::Access,
    help: "Unix socket (mode 0600) for planned upgrades without a service manager: a start with this option takes over from the daemon that serves it, with its blocks and connections, and then serves it itself.",
};
pub(super) static METRICS_LISTEN: Opt = Opt {
    name: "metrics-listen",
    flag: true,
    aliases: &[],
    kind: Kind::Address,
    default: "",
    group: Group::Access,
    help: "TCP address that also serves /healthz, /readyz and /metrics, and nothing else. Without it there is no TCP listener.",
};

pub(super) static MAX_BYTES: Opt = Opt {
    name: "max-bytes",
    flag: true,
    aliases: &[],
    kind: Kind::Size { min: 1, max: SIZE_MAX },
    default: "8G",
    group: Group::Memory,
    help: "Payload bytes kept in host memory. With a shared arena, the arena's size is the limit instead.",
};
pub(super) static SHARED_ARENA_BYTES: Opt = Opt {
    name: "shared-arena-bytes",
    flag: true,
    aliases: &[],
    kind: Kind::SizeOrAuto { min: 0, max: SIZE_MAX },
    default: "auto",
    group: Group::Memory,
    help: "Size of the arena that clients map. auto: as --max-bytes. 0: no arena is offered and values travel over the socket.",
};
pub(super) static SHARED_ARENA_PIN: Opt = Opt {
    name: "shared-arena-pin",
    flag: true,
    aliases: &[],
    kind: Kind::Switch,
    default: "true",
    group: Group::Memory,
    help: "Lock the arena in memory (mlock); a refusal is logged and the daemon goes on. --no-shared-arena-pin turns it off.",
};
pub(super) static SHARED_ARENA_HUGETLB: Opt = Opt {
    name: "shared-arena-hugetlb",
    flag: true,
    aliases: &["INFERA_KVD_ARENA_HUGETLB"],
    kind: Kind::Switch,
    default: "false",
    group: Group::Memory,
    help: "Take the arena from the hugetlb pool. Without room there: a warning, and transparent 2 MiB pages where the kernel allows.",
};
pub(super) static NUMA: Opt = Opt {
    name: "numa",
    flag: true,
    aliases: &[],
    kind: Kind::Numa,
    default: "interleave",
    group: Group::Memory,
    help: "Memory nodes of the arena's pages: interleave over all, or bind:N to node N.",
};

pub(super) static WARM_RESTART: Opt = Opt {
    name: "warm-restart",
    flag: true,
    aliases: &[],
    kind: Kind::Switch,
    default: "true",
    group: Group::Memory,
    help: "Leave blocks in memory to the next start, where a service manager keeps descriptors. false: forget them, those of the life before too.",
};

pub(super) static SESSIONS_MAX: Opt = Opt {
    name: "sessions-max",
    flag: true,
    aliases: &[],
    kind: Kind::Count { min: 1, max: 65_536 },
    default: "1024",
    group: Group::Limits,
    help: "Connections served at once; one more is closed at once and counted.",
};
pub(super) static LEASES_MAX: Opt = Opt {
    name: "leases-max",
    flag: true,
    aliases: &[],
    kind: Kind::Count { min: 1, max: 16_777_216 },
    default: "65536",
    group: Group::Limits,
    help: "Read leases that one session may hold.",
};
pub(super) static TICKETS_MAX: Opt = Opt {
    name: "tickets-max",
    flag: true,
    aliases: &[],
    kind: Kind::Count { min: 1, max: 16_777_216 },
    default: "4096",
    group: Group::Limits,
    help: "Write tickets that one session may hold.",
};
pub(super) static IN_FLIGHT_BYTES_MAX: Opt = Opt {
    name: "in-flight-bytes-max",
    flag: true,
    aliases: &[],
    kind: Kind::SizeOrAuto { min: 1, max: SIZE_MAX },
    default: "auto",
    group: Group::Limits,
    help: "Arena bytes that one session may pin by leases, tickets and hand-outs. auto: half of the arena.",
};
pub(super) static STAGING_BYTES_MAX: Opt = Opt {
    name: "staging-bytes-max",
    flag: true,
    aliases: &[],
    kind: Kind::Size { min: 0, max: SIZE_MAX },
    default: "256M",
    group: Group::Limits,
    help: "Memory of all sessions together for bodies that cannot be received straight into the arena.",
};
pub(super) static FRAME_BYTES_MAX: Opt = Opt {
    name: "frame-bytes-max",
    flag: true,
    aliases: &[],
    kind: Kind::Size { min: 65_536, max: 0xFFFF_FFFF },
    default: "2G",
    group: Group::Limits,
    help: "Longest protocol-1 frame; a client that announces more is closed.",
};

pub(super) static WRITE_STALL: Opt = Opt {
    name: "write-stall",
    flag: true,
    aliases: &[],
    kind: Kind::Time { min: Duration::from_millis(10), max: HOUR },
    default: "30s",
    group: Group::Timing,
    help: "A client that reads nothing of its reply, or stops inside a large value that it sends, for \
           this long is closed. Idle clients never are.",
};
pub(super) static PROMISE_WINDOW: Opt = Opt {
    name: "promise-window",
    flag: true,
    aliases: &[],
    kind: Kind::Time { min: Duration::ZERO, max: HOUR },
    default: "30s",
    group: Group::Timing,
    help: "How long a key reported present stays loadable.",
};
pub(super) static VIEW_GRACE: Opt = Opt {
    name: "view-grace",
    flag: true,
    aliases: &[],
    kind: Kind::Time { min: Duration::ZERO, max: HOUR },
    default: "1s",
    group: Group::Timing,
    help: "How long memory handed to a protocol-1 client stays unused after its next request.",
};
pub(super) static DRAIN_DEADLINE: Opt = Opt {
    name: "drain-deadline",
    flag: true,
    aliases: &[],
    kind: Kind::Time { min: Duration::ZERO, max: HOUR },
    default: "10s",
    group: Group::Timing,
    help: "How long SIGTERM or SIGINT waits for requests in flight, and with --drain-on-stop for the disk. A second signal exits at once.",
};

pub(super) static LOG_LEVEL: Opt = Opt {
    name: "log-level",
    flag: true,
    aliases: &[],
    kind: Kind::Word(&["DEBUG", "INFO", "WARNING", "ERROR"]),
    default: "INFO",
    group: Group::Logging,
    help: "Least severe level that is logged: DEBUG, INFO, WARNING or ERROR.",
};
pub(super) static LOG_FORMAT: Opt = Opt {
    name: "log-format",
    flag: true,
    aliases: &[],
    kind: Kind::Word(&["text", "json"]),
    default: "text",
    group: Group::Logging,
    help: "Log lines on standard error as text or as one JSON object each.",
};

/// All options of everything but the disk tier and events, in the order of `--help`.
pub(super) static ACTIVE: [&Opt; 26] = [
    &CONFIG,
    &SOCKET,
    &SOCKET_MODE,
    &SOCKET_GROUP,
    &ALLOW_UID,
    &ADMIN_SOCKET,
    &TAKEOVER_SOCKET,
    &METRICS_LISTEN,
    &MAX_BYTES,
    &SHARED_ARENA_BYTES,
    &SHARED_ARENA_PIN,
    &SHARED_ARENA_HUGETLB,
    &NUMA,
    &WARM_RESTART,
    &SESSIONS_MAX,
    &LEASES_MAX,
    &TICKETS_MAX,
    &IN_FLIGHT_BYTES_MAX,
    &STAGING_BYTES_MAX,
    &FRAME_BYTES_MAX,
    &WRITE_STALL,
    &PROMISE_WINDOW,
    &VIEW_GRACE,
    &DRAIN_DEADLINE,
    &LOG_LEVEL,
    &LOG_FORMAT,
];

/// Every option: the active ones, then those accepted without effect.
pub(super) fn all() -> impl Iterator<Item = &'static Opt> {
    let accepted = lower_tiers::REMOTE.iter().chain(&lower_tiers::OBSOLETE);
    ACTIVE.iter().copied().chain(DISK).chain(EVENTS).chain(accepted)
}
