//! What routers call blocks.

use pyo3::prelude::*;
use router_core::hash;

/// What routers call the full blocks of `tokens`: by their tokens and everything before them, so that it is not needed to
/// know how an engine makes its own hashes.
///
/// Args:
///     tokens: of a prompt, or its part behind the block that `parent` names.
///     tokens_per_block: tokens in one block; 0 has no blocks.
///     parent: the router's hash of the block before; None at the start of a prompt.
///     lora: the adapter that the tokens are computed with; only read at the start of a prompt.
///     salt: what separates tenants with equal prompts; only read there.
#[pyfunction]
#[pyo3(signature = (tokens, tokens_per_block, *, parent=None, lora=None, salt=None))]
pub(crate) fn router_hashes(
    py: Python<'_>,
    tokens: Vec<u32>,
    tokens_per_block: u32,
    parent: Option<u64>,
    lora: Option<&str>,
    salt: Option<&str>,
) -> Vec<u64> {
    let root = parent.unwrap_or_else(|| hash::root(lora, salt));
    py.detach(|| hash::chain(root, &tokens, tokens_per_block))
}
