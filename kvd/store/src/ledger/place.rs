//! Which extents the arena is made of, by what a ledger says: everything that somebody may still touch
//! is kept as it is, and a row stays only where nothing speaks against it.

use super::read::{Found, FoundRow};
use super::report::{DroppedRows, LedgerFault};
use super::slots::Range;
use crate::config::StoreConfig;
use crate::rights::Kind;
use crate::space::Layout;
use crate::time::Timestamp;

/// An extent that somebody holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) range: Range,
    /// Somebody may write there: a client, or the kernel.
    pub(super) written: bool,
    pub(super) large: bool,
    pub(super) version: u32,
}

/// What of a ledger comes back.
#[derive(Debug)]
pub(super) struct Plan {
    /// In the order of addresses, without overlaps.
    pub(super) holds: Vec<Hold>,
    /// Rows that stay, as places in the list of those found; the first to be evicted first.
    pub(super) rows: Vec<usize>,
    /// Slots of rows that do not.
    pub(super) struck: Vec<u32>,
    pub(super) dropped: DroppedRows,
}

impl Plan {
    pub(super) fn of(
        found: &Found,
        config: &StoreConfig,
        now: Timestamp,
    ) -> Result<Self, LedgerFault> {
        let holds = holds(found, config.arena_bytes)?;
        let mut plan = Self {
            holds,
            rows: Vec::with_capacity(found.rows.len()),
            struck: found.torn.clone(),
            dropped: DroppedRows { torn: found.torn.len() as u64, ..DroppedRows::default() },
        };
        let in_conflict = conflicts(&found.rows, &plan.holds);
        for (index, (row, conflicts)) in found.rows.iter().zip(in_conflict).enumerate() {
            let is_over = config.disk.monotonic(row.fields.expires_at) <= now;
            if conflicts {
                plan.dropped.conflicting += 1;
            } else if is_over {
                plan.dropped.expired += 1;
            } else {
                plan.rows.push(index);
                continue;
            }
            plan.struck.push(row.slot);
        }
        plan.rows.sort_unstable_by_key(|&index| {
            let row = &found.rows[index];
            (row.fields.class, row.recency, row.slot)
        });
        plan.keep_within(found, config);
        Ok(plan)
    }

    /// Drops what is beyond this configuration's bounds: the first to be evicted.
    fn keep_within(&mut self, found: &Found, config: &StoreConfig) {
        let (mut bytes, mut rows) = (0_u64, 0_u32);
        let kept = self.rows.iter().rev().take_while(|&&index| {
            bytes += u64::from(found.rows[index].fields.len_bytes);
            rows += 1;
            bytes <= config.budget_bytes && rows <= config.rows_max
        });
        let beyond = self.rows.len() - kept.count();
        let beyond = self.rows.drain(..beyond);
        let slots = beyond.map(|index| found.rows[index].slot);
        let before = self.struck.len();
        self.struck.extend(slots);
        self.dropped.without_room = (self.struck.len() - before) as u64;
    }
}

fn holds(found: &Found, arena_bytes: u64) -> Result<Vec<Hold>, LedgerFault> {
    let rights = found.rights.iter().map(|(_, right)| {
        let written = right.kind == Kind::Ticket;
        (written, Hold { range: right.range, written, large: right.large, version: right.version })
    });
    let reads = found.reads.iter().map(|&(_, range)| {
        // Nobody will ever ask for its payload.
        (false, Hold { range, written: true, large: false, version: 0 })
    });
    let mut all: Vec<(bool, Hold)> = rights.chain(reads).collect();
    all.sort_unstable_by_key(|(is_ticket, hold)| (hold.range, !is_ticket));
    let mut merged: Vec<Hold> = Vec::new();
    let mut ticket_before = false;
    for (is_ticket, hold) in all {
        let Range { start, bytes } = hold.range;
        let granule = Layout::ARENA.granule;
        let is_whole = bytes > 0 && bytes.is_multiple_of(granule) && start.is_multiple_of(granule);
        if !is_whole || hold.range.end() > arena_bytes {
            return Err(LedgerFault::Conflict { offset: start });
        }
        match merged.last_mut() {
            Some(last) if last.range == hold.range => {
                if is_ticket && ticket_before {
                    return Err(LedgerFault::Conflict { offset: start });
                }
                last.written |= hold.written;
            }
            Some(last) if last.range.end() > start => {
                return Err(LedgerFault::Conflict { offset: start });
            }
            Some(_) | None => {
                ticket_before = is_ticket;
                merged.push(hold);
            }
        }
    }
    Ok(merged)
}

/// For each row whether it is where another one is, or where somebody holds anything but it.
fn conflicts(rows: &[FoundRow], holds: &[Hold]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_unstable_by_key(|&index| rows[index].range);
    let mut conflicts = vec![false; rows.len()];
    let mut before: Option<usize> = None;
    let mut held = holds.iter().peekable();
    for index in order {
        let range = rows[index].range;
        if let Some(other) = before.filter(|&other| rows[other].range.end() > range.start) {
            conflicts[other] = true;
            conflicts[index] = true;
        }
        // The one that reaches furthest is what the next one may meet.
        if before.is_none_or(|other| rows[other].range.end() < range.end()) {
            before = Some(index);
        }
        while held.next_if(|hold| hold.range.end() <= range.start).is_some() {}
        if let Some(hold) = held.peek().filter(|hold| hold.range.start < range.end()) {
            conflicts[index] |= hold.range != range || hold.written;
        }
    }
    conflicts
}
