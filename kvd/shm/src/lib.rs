//! The shared arena and everything about the kernel that it needs: memfd, mapping, copies,
//! descriptor passing, peers.
//!
//! This is the one room of the daemon and of the Rust client where unsafe code may stand. Each file
//! wraps one kernel facility behind a safe function; whatever a kernel, a container or a seccomp
//! filter may refuse is probed, worked around and reported as a [`note::Note`], never logged here.
//!
//! Reading order: [`arena`] (the daemon's memory), [`mapping`] (the same memory in any process, and
//! every byte that goes in or out of it), [`copy`] (how such bytes move fastest), [`checksum`] (what proves that they
//! are still the same), [`header`] (what
//! protocol-1 readers look at), [`ledger_file`] (what outlives the process beside the arena), [`descriptor`] and [`peer`] (what a Unix socket carries besides
//! bytes), [`inherited`] (what a service manager passes at the start), [`exit_watch`] (when a peer is really gone), [`nudge`] (how a thread that waits is got hold of), [`forks`] (when this process is another), [`memory_limit`] and [`numa`].
//!
//! **Invariant:** nothing here decides anything from arena bytes; they are copied, never obeyed.

#![deny(missing_docs)]

#[cfg(not(target_pointer_width = "64"))]
compile_error!("arena offsets are 64 bits wide and must fit an address");

pub mod header;

pub mod sync;

#[cfg(not(loom))]
mod advice;
#[cfg(not(loom))]
pub mod arena;
#[cfg(not(loom))]
pub mod checksum;
#[cfg(not(loom))]
pub mod copy;
#[cfg(not(loom))]
pub mod descriptor;
#[cfg(not(loom))]
pub mod exit_watch;
#[cfg(not(loom))]
pub mod forks;
#[cfg(not(loom))]
pub mod inherited;
#[cfg(not(loom))]
pub mod ledger_file;
#[cfg(not(loom))]
mod lock;
#[cfg(not(loom))]
pub mod mapping;
#[cfg(not(loom))]
mod memory_file;
#[cfg(not(loom))]
pub mod memory_limit;
#[cfg(not(loom))]
pub mod note;
#[cfg(not(loom))]
pub mod nudge;
#[cfg(not(loom))]
pub mod numa;
#[cfg(not(loom))]
pub mod peer;
#[cfg(not(loom))]
mod region;
#[cfg(not(loom))]
mod residency;
