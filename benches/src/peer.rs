//! Peers of the disk tier: other caches on the same work, each in a process of its own that is told what to do.
//!
//! Which programs they are is said by the environment, as `scripts/bench.sh` sets it after it has built them. One that is
//! not there is not an error: there is nothing to compare with, and what compares is short.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, bail};

use crate::role::Helper;

/// A peer and how it is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// foyer's hybrid cache; `benches/peers/src/main.rs` says how it is driven.
    Foyer,
    /// LMCache's `raw_block`, with the pages that it has by default; `benches/peers/raw_block.py` says how it is driven.
    RawBlock,
    /// The same with pages of 2 MiB.
    RawBlockHuge,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Foyer, Self::RawBlock, Self::RawBlockHuge];

    /// For people and for ids.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Foyer => "foyer",
            Self::RawBlock => "raw_block",
            Self::RawBlockHuge => "raw_block_huge",
        }
    }

    /// The program, if it is there.
    fn program(self) -> Option<OsString> {
        let name = match self {
            Self::Foyer => "KVD_BENCH_FOYER",
            Self::RawBlock | Self::RawBlockHuge => "KVD_BENCH_RAW_BLOCK",
        };
        std::env::var_os(name).filter(|value| !value.is_empty())
    }
}

/// A running peer. It is held still but while it is asked for something: foyer's ring thread spins when it has nothing to
/// do, at the cost of everybody else.
#[derive(Debug)]
pub struct Peer {
    helper: Helper,
}

impl Peer {
    /// Starts it on a folder that it has for itself; `None` if its program is not there.
    ///
    /// # Errors
    /// If it is there and does not start.
    pub fn start(
        kind: Kind,
        folder: &Path,
        capacity_bytes: u64,
        block_bytes: usize,
    ) -> anyhow::Result<Option<Self>> {
        let Some(program) = kind.program() else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        command.arg(folder).arg(capacity_bytes.to_string()).arg(block_bytes.to_string());
        if kind == Kind::RawBlockHuge {
            command.arg("huge");
        }
        let helper =
            Helper::spawn(&mut command).with_context(|| format!("starting {}", kind.as_str()))?;
        helper.hold(true)?;
        Ok(Some(Self { helper }))
    }

    /// Seconds until blocks `first..first + count` are on its device.
    ///
    /// # Errors
    /// If it fails.
    pub fn put(&mut self, first: u64, count: u64) -> anyhow::Result<f64> {
        self.seconds(&format!("put {first} {count}"))
    }

    /// Seconds until it has read these blocks from its device.
    ///
    /// # Errors
    /// If it fails, or one is not there or wrong.
    pub fn get(&mut self, first: u64, count: u64) -> anyhow::Result<f64> {
        self.seconds(&format!("get {first} {count}"))
    }

    /// Makes it forget what it has in memory.
    ///
    /// # Errors
    /// If it fails.
    pub fn reopen(&mut self) -> anyhow::Result<()> {
        match self.ask("reopen")?.as_str() {
            "ok" => Ok(()),
            said => bail!("a peer said {said:?}"),
        }
    }

    fn seconds(&mut self, order: &str) -> anyhow::Result<f64> {
        let said = self.ask(order)?;
        said.parse().with_context(|| format!("a peer said {said:?} to {order:?}"))
    }

    fn ask(&mut self, order: &str) -> anyhow::Result<String> {
        self.helper.hold(false)?;
        self.helper.tell(order)?;
        let said = self.helper.listen()?;
        self.helper.hold(true)?;
        Ok(said)
    }
}
