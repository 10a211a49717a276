//! Everything that crosses a process boundary as bytes: keys, classes, frames, operations.
//!
//! The room is pure: bytes in, values out, and back. It knows no socket, clock, file or thread.
//!
//! Read in this order:
//! 1. [`frame`] – the four bytes in front of every message;
//! 2. [`pack`] – the bounded msgpack reader and the frame writer;
//! 3. [`v1`] – the messages of unchanged reference clients, byte for byte;
//! 4. [`v2`] – our own messages: ids, columns, leases, typed misses;
//! 5. [`events`] – what engines and the daemon publish about their caches;
//! 6. the words that both share: [`retention`], [`tier`], [`block_key`], [`ids`], [`miss`],
//!    [`refusal`], [`lineage`], [`mod@column`], [`malformed`].
//!
//! **Invariant:** decoding never panics and never allocates on the strength of a length that a
//! peer wrote. Decoded messages borrow from the frame.

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::wildcard_enum_match_arm)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

pub mod arena_offer;
pub mod block_key;
pub mod column;
pub mod events;
pub mod frame;
pub mod ids;
pub mod lineage;
pub mod malformed;
pub mod miss;
pub mod pack;
pub mod refusal;
pub mod retention;
pub mod tier;
pub mod v1;
pub mod v2;
