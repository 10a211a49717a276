//! The native half of the Python package `infera_kvd`: [`kvd_client`] as classes, blocks as buffers.
//!
//! Reading order: `client.rs` (one method a request) and `batch.rs` (`load` and `save`, whole batches without a Python
//! loop); the two rights `view.rs` and `ticket.rs`; `answers.rs` and `lineage.rs` (plain values), `routing.rs` (names that
//! routers know); `buffer.rs` (both directions of the buffer protocol); `arguments.rs` and `trouble.rs` (Python's values in,
//! errors out).
//!
//! The limited API begins with Python 3.11, the first whose stable part has the buffer protocol: one wheel serves every
//! later version.
//!
//! **Invariant:** whatever waits for the daemon or copies a block runs without the interpreter's lock. **Invariant:** no
//! Rust lock is held while Python code can run. **Invariant:** no panic gets out.

#![deny(missing_docs)]

mod answers;
mod arguments;
mod batch;
mod buffer;
mod client;
mod lineage;
mod routing;
mod ticket;
mod trouble;
mod view;

use pyo3::prelude::*;

/// Blocks of the KV-cache daemon of this host as Python buffers.
#[pymodule]
mod _native {
    use pyo3::prelude::*;
    use pyo3::types::PyModule;

    #[pymodule_export]
    use crate::answers::{Attached, Located, Miss, Refusal};
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::lineage::Lineage;
    #[pymodule_export]
    use crate::routing::router_hashes;
    #[pymodule_export]
    use crate::ticket::Ticket;
    #[pymodule_export]
    use crate::trouble::KvdError;
    #[pymodule_export]
    use crate::view::View;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
