//! `cargo xtask fmt`: is every Rust file as rustfmt would write it? `--fix` rewrites instead.

use crate::{Context, command};

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let fix = context.extra.iter().any(|word| word == "--fix");
    let arguments: &[&str] = if fix { &["fmt", "--all"] } else { &["fmt", "--all", "--check"] };
    command::run(&mut command::cargo(&context.root, arguments))
}
