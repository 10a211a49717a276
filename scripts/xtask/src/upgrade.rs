//! `cargo xtask upgrade`: an earlier build and this one take over from each other, by `scripts/e2e-upgrade.sh`, which names
//! and builds the earlier one. Where the history does not reach back so far, it says so.

use crate::{Context, command};

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let script = context.root.join("scripts/e2e-upgrade.sh");
    let mut command = command::program_in(&context.root, script, &["--if-there"]);
    command::run(command.args(&context.extra))
}
