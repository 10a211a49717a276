//! `cargo xtask gen`: writes what can be computed. The C header; and the hash of the protocol's source, so that a change
//! of the wire cannot land without somebody opening `docs/protocol.md`.

use anyhow::Context as _;

use crate::tidy::{self, protocol_hash};
use crate::{Context, c_header};

pub(crate) fn run(context: &Context) -> anyhow::Result<()> {
    let tree = tidy::Tree::of_checkout(&context.root)?;
    let page = tree.text(protocol_hash::PAGE).context("docs/protocol.md is missing")?;
    let pinned = protocol_hash::pin(page, &protocol_hash::of(&tree));
    std::fs::write(context.root.join(protocol_hash::PAGE), pinned).context(protocol_hash::PAGE)?;
    let header = c_header::text(&context.root)?;
    std::fs::write(context.root.join(c_header::HEADER), header).context(c_header::HEADER)
}
