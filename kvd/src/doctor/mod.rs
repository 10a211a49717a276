//! `infera-kvd doctor`: looks at the host as a start with the same options would, and says what to do. Nothing is changed, and
//! nothing stays behind.
//!
//! Facts are gathered first: from files under a root that tests lay out ([`facts`]), from small trials of what the kernel may
//! refuse ([`trials`]), from the sockets ([`door`]) and the directories ([`storage`]). The checks ([`checks`]) only weigh them.
//! What a start computes is computed by the same functions here.

mod checks;
mod door;
mod facts;
mod finding;
mod storage;
#[cfg(test)]
mod tests;
mod trials;

use std::path::Path;

pub use finding::{Finding, Report, Verdict};

use crate::config::Settings;
use door::Door;
use facts::Facts;
use storage::{Directory, Room};
use trials::Trials;

/// Looks at this host.
#[must_use]
pub fn examine(settings: &Settings) -> Report {
    let variables = std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    });
    let facts = Facts::gather(Path::new("/"), variables);
    let trials = Trials::make(settings);
    let door = Door::look(settings);
    let directories: Vec<Directory> = storage::look(settings);
    Report(checks::all(settings, &facts, &trials, &door, &directories))
}

/// Directories whose share of `--long-bytes` is larger than their disks, in a line each.
#[must_use]
pub fn disks_too_small(settings: &Settings) -> Vec<String> {
    let paths = settings.disk.paths.iter();
    let findings =
        paths.map(|path| checks::disk::room(path, &Room::of(path), settings.disk.bytes_each));
    findings
        .filter(|finding| finding.verdict != Verdict::Ok)
        .map(|finding| format!("{}: {}", finding.found, finding.advice))
        .collect()
}
