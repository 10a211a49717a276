//! The suite `l3`: what the disk tier must reach. One file for each bar.
//!
//! | file | bar |
//! |---|---|
//! | [`spill`] | from a client's buffers to the device, against fio |
//! | [`cold_read`] | from the device to one client and to four, against fio |
//! | [`peers`] | both against foyer and LMCache's `raw_block` |
//! | [`amplification`] | bytes read and written for nothing |
//! | [`saturated`] | hits in memory while the disk is busy |
//! | [`restart`] | a start with millions of entries |
//! | [`kill`] | random kills under a random load |
//!
//! [`tier`] sets the stage, [`blocks`] stores and fetches on it, [`load`] keeps it busy, [`pace`] keeps the figures.

pub mod amplification;
pub mod blocks;
pub mod cold_read;
pub mod kill;
pub mod load;
pub mod pace;
pub mod peers;
pub mod restart;
pub mod saturated;
pub mod spill;
pub mod tier;

use crate::report::Report;
use crate::suite::{self, Effort, Part};

/// Operations in flight, the daemon's and each fio job's: what the daemon chooses by itself for a virtual disk.
const DEPTH: u32 = 16;
/// Size of a container: large enough for a job of fio to have one for itself.
const CONTAINER: &str = "1G";

const PARTS: &[(&str, Part)] = &[
    ("spills", spill::run),
    ("cold reads", cold_read::run),
    ("peers", peers::run),
    ("amplification", amplification::run),
    ("hits under a busy disk", saturated::run),
    ("restarts", restart::run),
    ("kills", kill::run),
];

/// Runs every part whose name contains `only`.
///
/// # Errors
/// The first part that cannot be measured. A bar that is short is not an error.
pub fn run(effort: Effort, only: &str) -> anyhow::Result<Report> {
    suite::run(PARTS, effort, only)
}
