//! Bar: memory that a daemon takes beyond its arena, with a million rows under keys of 32 bytes.

use anyhow::Context as _;
use indicatif::HumanBytes;

use super::crowd::Crowd;
use crate::bar::Bar;
use crate::machine::Memory;
use crate::report::Report;

/// Bytes a row.
const PER_ROW: f64 = 160.0;
/// Bytes for everything else.
const BESIDE: u64 = 64 << 20;

pub(super) fn run(many: &Crowd, report: &mut Report) -> anyhow::Result<()> {
    let memory = Memory::of(many.daemon.pid()).context("the daemon's memory")?;
    let entries = many.daemon.figures()?.get("entries");
    let per_row = memory.own_bytes.saturating_sub(BESIDE) as f64 / entries as f64;
    report.note(
        format!("memory beyond the arena, {entries} rows"),
        format!("{}, arena {}", HumanBytes(memory.own_bytes), HumanBytes(memory.shared_bytes)),
    );
    report.bar(Bar::at_most("l2.memory.bytes_per_row", per_row, PER_ROW));
    Ok(())
}
