//! `cargo xtask crash`: the daemon's device worker and recovery, crashed after every step of a simulated disk. Extra words
//! go to nextest; `KVD_CRASH_THOROUGH=1` tries all that there is to try, which takes long.

use crate::{Context, command, e2e};

/// The test binary, as nextest names it.
pub(crate) const FILTER: &str = "binary(=crash)";

/// Whether to try all; no test is ended for taking long then.
const THOROUGH: &str = "KVD_CRASH_THOROUGH";

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let is_thorough = std::env::var_os(THOROUGH).is_some();
    let profile = if is_thorough { "thorough" } else { "default" };
    let tests = ["nextest", "run", "--profile", profile, "-p", e2e::CRATE, "-E", FILTER];
    command::run(command::cargo(&context.root, &tests).args(&context.extra))
}
