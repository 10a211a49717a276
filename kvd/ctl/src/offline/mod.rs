//! Devices of the disk tier while no daemon uses them.
//!
//! `folder.rs` finds the files and keeps daemons out, `recover.rs` reads what is known of the blocks, as a daemon's start
//! would, and `sweep.rs` reads the blocks themselves.
//!
//! **Invariant:** nothing is written but what `recover.rs` is asked to repair.

pub(crate) mod folder;
pub(crate) mod recover;
pub(crate) mod sweep;
