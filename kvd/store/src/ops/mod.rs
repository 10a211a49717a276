//! What each input does, one file per input or per pair of them.

mod clear;
mod close;
mod commit;
mod fetch;
mod locate;
mod release;
mod reserve;
mod resume;
mod tick;

use kvd_proto::block_key::Namespace;

use crate::keys::Keys;
pub(crate) use reserve::Asked;

/// What fetch and locate have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lookup<'a> {
    pub(crate) namespace: Namespace<'a>,
    pub(crate) keys: Keys<'a>,
    /// Stop after the first miss.
    pub(crate) prefix: bool,
}
