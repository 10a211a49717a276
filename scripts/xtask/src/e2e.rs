//! `cargo xtask e2e`: builds the binaries, then runs the crate that starts them, but for what `crash` and `parts` run. Extra words
//! go to nextest.
//!
//! One test at a time: the cases measure shares, memory and times of real processes, and the machine may have two cores.

use crate::{Context, command, crash, parts};

/// The crate of the harness; its tests need the binaries of [`build`].
pub(crate) const CRATE: &str = "kvd-tests";

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    build(context)?;
    let others = format!("not ({} + {})", crash::FILTER, parts::FILTER);
    let tests = ["nextest", "run", "-p", CRATE, "--test-threads", "1", "-E", &others];
    command::run(command::cargo(&context.root, &tests).args(&context.extra))
}

/// Builds what `e2e` and `py` start. The development profile: its overflow and debug checks are part of the test.
pub(crate) fn build(context: &Context) -> anyhow::Result<()> {
    let built = ["infera-kvd", "infera-router", "infera-register", "kvdctl", "kvd-shim"];
    let packages = built.iter().flat_map(|package| ["-p", package]);
    command::run(command::cargo(&context.root, &["build", "--quiet"]).args(packages))
}
