//! Real binaries under test. This library is the harness; the cases are in `tests/tests/`, one file per theme.
//!
//! * [`daemon`]: start an `infera-kvd` of its own for each case, stop it, read its log, ask its admin socket.
//! * [`wire`]: bare connections that send any bytes at all, and read frames.
//! * [`process`]: what `/proc` says of a process.
//! * [`client`]: client processes to be killed, confined or left alone; [`memory_group`]: a bound for their memory.
//! * [`content`]: bytes that follow from a key, and seeded numbers; [`engine`]: what test clients do with them.
//! * [`supervisor`]: a stand-in of the service manager: it hears, keeps descriptors and starts again.
//! * [`disk`]: directories of the disk tier.
//! * [`state`]: what an earlier build left, kept in the repository; [`sparse`]: how its files are packed.
//! * [`figures`]: the daemon's numbers; [`mod@until`]: waiting without guessing.
//! * [`router`]: the router, with workers, a client and an etcd around it.
//! * [`parts`]: real storage that fails on demand, for the disk tier.
//!
//! The binaries are those of the same profile as the tests; `cargo xtask e2e` builds them first. Every helper panics
//! on surprise: a harness that goes on after one proves nothing.

#![forbid(unsafe_code)]
#![expect(clippy::expect_used, reason = "a harness stops at the first surprise")]

pub mod binaries;
pub mod client;
pub mod content;
pub mod daemon;
pub mod disk;
pub mod engine;
pub mod figures;
mod http;
pub mod launch;
pub mod log;
pub mod memory_group;
pub mod parts;
pub mod process;
pub mod router;
pub mod sparse;
pub mod state;
pub mod supervisor;
pub mod until;
pub mod wire;

use std::time::Duration;

pub use self::daemon::Daemon;
pub use self::launch::Launch;

/// How long anything may take that is expected to happen at once. Nothing is asserted about less: the machine may be
/// busy. Whoever waits this long has found a hang.
pub const PATIENCE: Duration = Duration::from_secs(30);
