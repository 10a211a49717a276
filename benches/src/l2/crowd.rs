//! The stage for growth: two daemons that differ in nothing but the number of their rows.

use anyhow::Context as _;
use kvd_client::Client;

use super::{Effort, growth, memory};
use crate::affinity;
use crate::daemon::Daemon;
use crate::keys;
use crate::reference::Reference;
use crate::report::Report;

/// Rows of the two daemons.
pub const FEW: u64 = 10_000;
/// See [`FEW`].
pub const MANY: u64 = 1_000_000;
/// Bytes of a value: the smallest of which an arena may hold as many as fit.
pub const BLOCK_BYTES: usize = 192;
/// Bytes of its extent: the payload and the line of its header.
const EXTENT_BYTES: u64 = 256;

/// A daemon that is full, and two clients of it.
#[derive(Debug)]
pub struct Crowd {
    /// Rows that it holds.
    pub rows: u64,
    /// Number of the next key that it does not hold.
    pub next: u64,
    /// The client library.
    pub client: Client,
    /// A protocol-1 client without the arena.
    pub reference: Reference,
    /// The daemon.
    pub daemon: Daemon,
}

pub(super) fn run(effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    // On one core, so that no wake-up across cores hides what a call costs.
    let _pinned = affinity::pin(*affinity::cores()?.first().context("a core")?)?;
    let mut few = Crowd::gather(FEW)?;
    let mut many = Crowd::gather(MANY)?;
    growth::run(effort, &mut few, &mut many, report)?;
    memory::run(&many, report)
}

impl Crowd {
    /// Starts a daemon whose arena such a number of rows just fills.
    fn gather(rows: u64) -> anyhow::Result<Self> {
        // A fiftieth stays free in arenas of 64 MiB and more.
        let bytes = rows * EXTENT_BYTES * 50 / 49;
        let daemon = Daemon::start(&["--max-bytes", &bytes.to_string()])?;
        let client = daemon.client("kvd-bench");
        keys::store(&client, 0..rows, BLOCK_BYTES)?;
        let reference = Reference::connect(&daemon.socket(), false)?;
        Ok(Self { rows, next: rows, client, reference, daemon })
    }
}
