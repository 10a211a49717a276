//! The figures that the store shows: counters since the start, and gauges of this moment.

use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;

use crate::disk::DiskStats;

/// Counters end in `_total`; everything else is a gauge. Reading them costs the same for any
/// number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Counters.
    pub totals: Totals,
    /// Rows now, those that expired unnoticed included.
    pub entries: u64,
    /// Payload bytes of the rows.
    pub host_bytes: u64,
    /// Bytes of encoded lineage kept with the rows.
    pub lineage_bytes: u64,
    /// Namespaces that hold a row.
    pub namespaces: u64,
    /// Sessions known, closed ones that still hold something included.
    pub sessions: u64,
    /// Leases now.
    pub leases: u64,
    /// Tickets now.
    pub tickets: u64,
    /// Hand-outs now, those in their grace time included.
    pub hand_outs: u64,
    /// Bytes of extents pinned by leases and hand-outs; an extent held twice counts twice.
    pub leased_bytes: u64,
    /// Bytes of extents held by closed sessions whose process may live, counted likewise.
    pub quarantined_bytes: u64,
    /// Rights of such sessions.
    pub quarantined_rights: u64,
    /// Bytes of extents that promises pin.
    pub promised_bytes: u64,
    /// Rows that promises pin.
    pub promised_rows: u64,
    /// What the arena is made of.
    pub space: SpaceStats,
    /// The tier below the arena.
    pub disk: DiskStats,
}

/// Counters since the store was built.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Keys fetched.
    pub gets_total: u64,
    /// Keys fetched and found.
    pub hits_total: u64,
    /// Keys fetched and not found.
    pub misses_total: u64,
    /// SETs, refused and void ones included, and accepted commits.
    pub sets_total: u64,
    /// Rows dropped to make room.
    pub evictions_total: u64,
    /// `evictions_total` by class, in the order of `Retention::ALL`.
    pub evictions_by_class_total: [u64; 4],
    /// `misses_total` by reason, in the order of [`MissReason::ALL`].
    pub misses_by_reason_total: [u64; MissReason::ALL.len()],
    /// Refused reserves, commits and cancels by kind, in the order of [`Refusal::ALL`].
    pub refusals_total: [u64; Refusal::ALL.len()],
    /// Rows removed because their time to live ended.
    pub expirations_total: u64,
    /// Lineages that were not kept because they would exceed their bound.
    pub lineages_dropped_total: u64,
    /// Rows removed by clears.
    pub cleared_total: u64,
    /// Rows that became promised.
    pub promises_total: u64,
    /// Present keys that were reported missing because no more may be promised.
    pub promises_refused_total: u64,
    /// Releases of leases that are unknown, finished or another session's.
    pub stale_releases_total: u64,
    /// Hand-outs that became inline answers because of a session's caps.
    pub hand_outs_refused_total: u64,
    /// Searches for room that had to look at the whole arena.
    pub full_scans_total: u64,
}

/// Every touched byte of the arena is in exactly one of free, ticketed, stored and orphaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceStats {
    /// Configured size.
    pub arena_bytes: u64,
    /// Touched so far.
    pub ready_bytes: u64,
    /// Not in use.
    pub free_bytes: u64,
    /// Being written.
    pub ticketed_bytes: u64,
    /// Extents of rows: payloads, headers and padding.
    pub stored_bytes: u64,
    /// Without a row, but still pinned by somebody.
    pub orphaned_bytes: u64,
    /// Part of `stored_bytes` that is payload.
    pub payload_bytes: u64,
    /// Part of `free_bytes` that the normal order of eviction leaves free.
    pub reserve_bytes: u64,
    /// Free ranges.
    pub holes: u64,
    /// The largest of them.
    pub largest_hole_bytes: u64,
}

impl SpaceStats {
    /// Bytes of headers and padding in the extents of rows.
    #[must_use]
    pub const fn overhead_bytes(&self) -> u64 {
        self.stored_bytes - self.payload_bytes
    }
}

impl Totals {
    pub(crate) fn count_refusal(&mut self, refusal: Refusal) {
        // Codes are dense from 1, in the order of `ALL`.
        self.refusals_total[usize::from(refusal.code()) - 1] += 1;
    }

    pub(crate) fn count_refused_set(&mut self, refusal: Refusal) {
        self.sets_total += 1;
        self.count_refusal(refusal);
    }

    pub(crate) fn count_hit(&mut self) {
        self.gets_total += 1;
        self.hits_total += 1;
    }

    pub(crate) fn count_miss(&mut self, reason: MissReason) {
        self.gets_total += 1;
        self.misses_total += 1;
        let index = MissReason::ALL.iter().position(|&other| other == reason);
        self.misses_by_reason_total[index.unwrap_or(0)] += 1;
    }
}
