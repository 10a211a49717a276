//! `cargo xtask gen`: writes what can be computed into the pages that pin it. Today: the hash of the protocol's source,
//! so that a change of the wire cannot land without somebody opening `docs/protocol.md`.

use anyhow::Context as _;

use crate::Context;
use crate::tidy::{self, protocol_hash};

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let tree = tidy::Tree::of_checkout(&context.root)?;
    let page = tree.text(protocol_hash::PAGE).context("docs/protocol.md is missing")?;
    let pinned = protocol_hash::pin(page, &protocol_hash::of(&tree));
    std::fs::write(context.root.join(protocol_hash::PAGE), pinned).context(protocol_hash::PAGE)
}
