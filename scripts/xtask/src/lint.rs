//! `cargo xtask lint`: clippy over every target of every crate, then the documentation's links. A warning is a failure.

use crate::{Context, command};

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"];
    command::run(&mut command::cargo(&context.root, &clippy))?;
    // The pages are for whoever works on the crates, so links to private items are welcome.
    let flags = "-D warnings -A rustdoc::private-intra-doc-links";
    let doc = ["doc", "--workspace", "--no-deps", "--document-private-items", "--quiet"];
    command::run(command::cargo(&context.root, &doc).env("RUSTDOCFLAGS", flags))
}
