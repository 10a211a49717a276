//! What a value covers, in the engine's words.

use pyo3::prelude::*;

/// Which blocks of the engine one value stands for, for whoever routes requests by it. The daemon decides nothing by it.
///
/// Args:
///     engine_hashes: the engine's block hashes, first block first.
///     router_hashes: the router's hashes of the same blocks, unsigned 64 bit, if they are known.
///     parent: the engine's hash of the block before the first; None at the start of a prompt.
///     tokens_per_block: tokens in one engine block, 0 if unknown.
///     lora: the adapter that the tokens were computed with.
///     salt: what separates tenants with equal prompts.
///
/// At most 64 KiB encoded, room for some 2000 hashes of 32 bytes.
#[pyclass(frozen, eq, module = "infera_kvd")]
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lineage(kvd_client::Lineage);

impl Lineage {
    pub(crate) fn as_client(&self) -> &kvd_client::Lineage {
        &self.0
    }
}

#[pymethods]
impl Lineage {
    #[new]
    #[pyo3(signature = (engine_hashes, router_hashes=Vec::new(), parent=None, tokens_per_block=0, lora=None, salt=None))]
    fn new(
        engine_hashes: Vec<Vec<u8>>,
        router_hashes: Vec<u64>,
        parent: Option<Vec<u8>>,
        tokens_per_block: u32,
        lora: Option<String>,
        salt: Option<String>,
    ) -> Self {
        Self(kvd_client::Lineage {
            engine_hashes,
            router_hashes,
            parent,
            tokens_per_block,
            lora,
            salt,
        })
    }

    #[getter]
    fn engine_hashes(&self) -> Vec<&[u8]> {
        self.0.engine_hashes.iter().map(Vec::as_slice).collect()
    }

    #[getter]
    fn router_hashes(&self) -> Vec<u64> {
        self.0.router_hashes.clone()
    }

    #[getter]
    fn parent(&self) -> Option<&[u8]> {
        self.0.parent.as_deref()
    }

    #[getter]
    fn tokens_per_block(&self) -> u32 {
        self.0.tokens_per_block
    }

    #[getter]
    fn lora(&self) -> Option<&str> {
        self.0.lora.as_deref()
    }

    #[getter]
    fn salt(&self) -> Option<&str> {
        self.0.salt.as_deref()
    }

    fn __repr__(&self) -> String {
        let count = self.0.engine_hashes.len();
        format!("Lineage({count} blocks of {} tokens)", self.0.tokens_per_block)
    }
}
