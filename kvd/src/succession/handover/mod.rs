//! A planned upgrade: the running daemon hands everything over to its successor, connections included, and clients notice
//! nothing.
//!
//! The successor asks ([`take`]); the running daemon answers ([`give`]): it lets every session stand still between two
//! frames ([`parking`]), stops deciding, and passes on arena, ledger, sockets, connections and process descriptors
//! ([`mod@line`], [`note`]). The successor builds its store of the ledger without writing anything, says that it is ready, and
//! hears the last word. Until then nothing is given up: whatever happens to the successor, the running daemon goes on with
//! everything. From then on it touches nothing that anybody can see.
//!
//! It begins in one of two ways: a successor connects ([`door`]), or the service manager asks for one ([`child`]).
//!
//! **Invariant:** at any time one process decides about the arena.

pub mod child;
pub mod door;
pub mod give;
pub mod line;
pub mod note;
pub mod parking;
pub mod take;

use std::time::Duration;

/// How long the other daemon may take to say what is due. Clients wait meanwhile.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Environment variable of a successor whose predecessor is at its standard input.
pub const PREDECESSOR: &str = "KVD_PREDECESSOR";
/// Its value.
pub const AT_STANDARD_INPUT: &str = "stdin";
