//! What a client can be asked, one file per request.
//!
//! A call may name more keys than fit into a frame; it is then sent in several.

mod clear;
mod commit;
mod fetch;
mod locate;
mod look_up;
mod prefetch;
mod reserve;
mod single;
mod stats;

pub use commit::Commit;
pub use locate::Present;
pub use look_up::Answer;

use kvd_proto::block_key::{KEY_BYTES_MAX, NAMESPACE_PART_BYTES_MAX, Namespace};
use kvd_proto::column::KEYS_MAX;
use kvd_proto::v2::hello::Limits;

use crate::error::{Breach, ClientError};

/// What a frame needs besides its items: both parts of a namespace at full length, and field names.
const FRAME_OVERHEAD_BYTES: u64 = 4096;

/// Refuses what no daemon takes, before anything is sent.
fn check_names<'a>(
    namespace: Namespace<'_>,
    keys: impl Iterator<Item = &'a [u8]>,
) -> Result<(), ClientError> {
    let longest = namespace.model.len().max(namespace.compat_key.len());
    check("the longer part of the namespace, in bytes", longest, NAMESPACE_PART_BYTES_MAX)?;
    check("the longest key, in bytes", keys.map(<[u8]>::len).max().unwrap_or(0), KEY_BYTES_MAX)
}

fn check(what: &'static str, given: usize, allowed: usize) -> Result<(), ClientError> {
    if given > allowed {
        return Err(ClientError::Argument { what, given: given as u64, allowed: allowed as u64 });
    }
    Ok(())
}

/// How many of the items, which take so many bytes each, go into one frame. At least one: if the
/// daemon's limit is smaller than that, it is for the daemon to say so.
fn fitting(limits: &Limits, sizes: impl Iterator<Item = usize>) -> usize {
    let items = usize::try_from(limits.keys_max).map_or(KEYS_MAX, |max| max.clamp(1, KEYS_MAX));
    let mut room = limits.frame_bytes_max.saturating_sub(FRAME_OVERHEAD_BYTES);
    let fits = |size: &usize| {
        let left = room.checked_sub(*size as u64);
        room = left.unwrap_or(0);
        left.is_some()
    };
    sizes.take(items).take_while(fits).count().max(1)
}

/// An answer is as long as its question.
fn check_count(asked: usize, answered: usize) -> Result<(), Breach> {
    if asked == answered { Ok(()) } else { Err(Breach::WrongCount { asked, answered }) }
}
