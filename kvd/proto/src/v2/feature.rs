//! Names of optional abilities, announced in both directions of the handshake.
//!
//! A client announces what it can make use of; the daemon answers with those that it has too.

use crate::pack::Array;

/// `commit` may carry the blocks' checksums, and the daemon holds the bytes against them.
pub const CHECKSUM: &str = "checksum";

/// There is an operation `prefetch`.
pub const PREFETCH: &str = "prefetch";

/// There is an operation `resume`, and the arena outlives the daemon.
pub const RESUME: &str = "resume";

/// All that this release knows.
pub const ALL: [&str; 3] = [CHECKSUM, PREFETCH, RESUME];

/// Those of [`ALL`] that a peer has announced, in our order.
pub fn shared(announced: Array<'_, &str>) -> impl Iterator<Item = &'static str> {
    ALL.into_iter().filter(move |ours| announced.iter().any(|theirs| theirs == *ours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_side_does_not_know_is_left_out() {
        let peer = ["progress", PREFETCH, "a later one"];
        assert_eq!(shared(Array::Slice(&peer)).collect::<Vec<_>>(), [PREFETCH]);
        assert_eq!(shared(Array::Slice(&[])).count(), 0);
    }
}
