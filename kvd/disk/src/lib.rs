//! A queue of reads, writes and syncs on files, with memory that the queue owns while it works.
//!
//! Three engines behind one contract ([`Disk`]): [`uring`] (the kernel's ring), [`blocking`] (a
//! bounded pool of threads) and [`sim`] (files in memory, with faults from a seed and images of
//! what a crash leaves). `tests/conformance.rs` runs the same cases over all of them.
//!
//! Reading order: [`operation`] and [`fault`] (what goes in and what comes out), [`buffer`] (memory
//! for it), [`waker`] (how other threads interrupt a wait), [`open`](mod@open) (which engine), then
//! the engines; `transfer` is what they share: how many bytes are still to go. [`classify`]
//! tells what is under a directory, and how to use it.
//!
//! **Invariant:** the kernel never holds memory whose owner is gone: memory goes in with an operation
//! and comes out with its completion, and an engine that is dropped waits for both.
//! **Invariant:** a completion without a fault means every byte: short transfers go on until they
//! are whole, or end as a fault.

#![warn(missing_docs, clippy::wildcard_enum_match_arm)]
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects))]

#[cfg(not(loom))]
pub mod blocking;
#[cfg(not(loom))]
pub mod buffer;
#[cfg(not(loom))]
pub mod classify;
#[cfg(not(loom))]
mod disk;
#[cfg(not(loom))]
pub mod fault;
#[cfg(not(loom))]
pub mod open;
#[cfg(not(loom))]
pub mod operation;
#[cfg(not(loom))]
pub mod sim;
pub mod sleep_word;
#[cfg(not(loom))]
mod system;
#[cfg(not(loom))]
mod transfer;
#[cfg(not(loom))]
pub mod uring;
#[cfg(not(loom))]
pub mod waker;

#[cfg(not(loom))]
pub use buffer::AlignedBuffer;
#[cfg(not(loom))]
pub use disk::Disk;
#[cfg(not(loom))]
pub use fault::Fault;
#[cfg(not(loom))]
pub use open::{Config, Engine, Features, OpenError, Opened, open};
#[cfg(not(loom))]
pub use operation::{Action, Completion, FileId, Memory, Operation};
#[cfg(not(loom))]
pub use waker::Waker;

/// The flag to open files with for direct I/O (`O_DIRECT`), for `OpenOptionsExt::custom_flags`.
#[cfg(not(loom))]
pub const DIRECT: i32 = libc::O_DIRECT;
