//! What all test clients agree on, in this process or another: where they keep their blocks, how these are called, and
//! what is in them.

use std::path::Path;

use kvd_client::{Client, Namespace, Options, Retention};

use crate::PATIENCE;
use crate::content::bytes_of;

/// Where they keep their blocks.
pub const NAMESPACE: Namespace<'static> = Namespace { model: "m", compat_key: "tp0" };

/// A client of the daemon at `socket`, patient, because a busy machine is not what is tested.
#[must_use]
pub fn client_at(socket: &Path) -> Client {
    let mut options = Options::new(socket, format!("kvd-tests-{}", std::process::id()));
    options.deadline = PATIENCE;
    Client::new(options)
}

/// The key of a block.
#[must_use]
pub fn key_of(index: u64) -> Vec<u8> {
    format!("block-{index}").into_bytes()
}

/// The keys of the first `count` blocks.
#[must_use]
pub fn keys_of(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(key_of).collect()
}

/// Stores a block with the bytes that belong to its key.
///
/// # Panics
/// If it is refused.
pub fn store(client: &Client, key: &[u8], len: usize) {
    client
        .put(NAMESPACE, key, &bytes_of(key, len), Retention::Short, None)
        .unwrap_or_else(|trouble| panic!("storing {len} bytes: {trouble:?}"));
}

/// Stores the first `count` blocks, `len` bytes each.
///
/// # Panics
/// If one is refused.
pub fn store_blocks(client: &Client, count: u64, len: usize) {
    keys_of(count).iter().for_each(|key| store(client, key, len));
}

/// Fetches a block and checks every byte of it.
///
/// # Panics
/// If it is not there, or not right.
pub fn check(client: &Client, key: &[u8], len: usize) {
    let found = client.get(NAMESPACE, key);
    let found = found.unwrap_or_else(|trouble| panic!("fetching {key:?}: {trouble:?}"));
    assert!(found == bytes_of(key, len), "wrong bytes of {key:?}");
}
