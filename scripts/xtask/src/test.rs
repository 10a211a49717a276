//! `cargo xtask test`: every test that needs no running daemon, then the doctests. Extra words go to nextest.

use crate::{Context, command};

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let tests = ["nextest", "run", "--workspace", "--exclude", crate::e2e::CRATE];
    command::run(command::cargo(&context.root, &tests).args(&context.extra))?;
    if !context.extra.is_empty() {
        return Ok(());
    }
    command::run(&mut command::cargo(&context.root, &["test", "--workspace", "--doc", "--quiet"]))
}
