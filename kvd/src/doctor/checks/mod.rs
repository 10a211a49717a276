//! From facts to findings. Pure.

mod access;
pub(super) mod disk;
mod kernel;
mod memory;

use super::door::Door;
use super::facts::Facts;
use super::finding::Finding;
use super::storage::Directory;
use super::trials::Trials;
use crate::config::Settings;

/// Every check, in the order in which they are shown.
pub(super) fn all(
    settings: &Settings,
    facts: &Facts,
    trials: &Trials,
    door: &Door,
    directories: &[Directory],
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for remark in settings.report.remarks() {
        findings.push(Finding::warn("configuration", remark, "docs/configuration.md"));
    }
    memory::check(settings, facts, trials, door, &mut findings);
    kernel::check(settings, facts, trials, &mut findings);
    disk::check(settings, directories, &mut findings);
    access::check(settings, facts, door, &mut findings);
    findings
}

/// Bytes for people: whole units where they are whole.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 4] =
        [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) if bytes.is_multiple_of(*unit) => format!("{} {name}", bytes / unit),
        Some((unit, name)) => {
            let tenths = u128::from(bytes) * 10 / u128::from(*unit);
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} bytes"),
    }
}
