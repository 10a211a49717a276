//! `cargo xtask crash`: the daemon's device worker and recovery, crashed after every step of a simulated disk. Extra words
//! go to nextest; `KVD_CRASH_THOROUGH=1` tries all that there is to try, which takes long.

use crate::{Context, command, e2e};

/// The test binary, as nextest names it.
pub(crate) const FILTER: &str = "binary(=crash)";

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let tests = ["nextest", "run", "-p", e2e::CRATE, "-E", FILTER];
    command::run(command::cargo(&context.root, &tests).args(&context.extra))
}
