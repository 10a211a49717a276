//! The numbers that a store is built from. The daemon validates what people write; the store
//! asserts what it relies on.

use crate::disk::DiskConfig;
use crate::ledger::LedgerLayout;

/// Arenas below this size keep no reserve: 2 % of them would not hold one useful value.
const RESERVE_FROM_ARENA_BYTES: u64 = 64 << 20;

/// Everything that [`crate::Store::new`] needs to know.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// Size of the whole arena. 0 means that there is none: every reserve is refused.
    pub arena_bytes: u64,
    /// Most payload bytes (headers and padding not counted) that rows may hold together.
    pub budget_bytes: u64,
    /// How long a key that was reported present stays loadable. Default 30 000.
    pub promise_window_ms: u64,
    /// How long an extent that a protocol-1 client saw stays untouched after that client's next
    /// request. Default 1 000.
    pub view_grace_ms: u64,
    /// What one session may hold at once.
    pub session_limits: SessionLimits,
    /// Thousandths of the arena kept free for values whose class comes after their bytes; used
    /// for arenas of 64 MiB and more. Default 20.
    pub reserve_permille: u64,
    /// Most bytes that lost peers whose end cannot be observed may keep. Default: an eighth of
    /// the arena.
    pub quarantine_bytes_max: u64,
    /// Most rows: bounds the memory beside the arena, some 160 bytes a row, when values are tiny.
    /// Default: one for each 256 bytes of the arena, at least 65 536.
    pub rows_max: u32,
    /// Most bytes of encoded lineage kept with all rows; beyond it blocks are stored without theirs.
    /// Default: a sixty-fourth of the arena, at least 1 MiB.
    pub lineage_bytes_max: u64,
    /// Slots of each of the two tables that explain misses, 8 bytes each. Default 2^20.
    pub evidence_slots: u32,
    /// Keep the checksums that commits bring for as long as their rows, for
    /// [`crate::Store::checksum_of`]. Default: only until a device has the block.
    pub keep_checksums: bool,
    /// What is said in the ledger, so that a successor can adopt the arena; none by default: nothing is.
    pub ledger: Option<LedgerLayout>,
    /// Tell in [`crate::Effects::tiers`] what is held where, as it changes, and keep the sums that prove it. Default: off.
    pub events: bool,
    /// The tier below the arena; none by default.
    pub disk: DiskConfig,
    /// Seed of the index's hash function. Any value; equal seeds replay equally.
    pub hash_seed: u64,
}

/// Caps of one session. What the daemon holds for its own transfers does not count.
#[derive(Clone, Copy, Debug)]
pub struct SessionLimits {
    /// Most leases and hand-outs at once.
    pub leases_max: u32,
    /// Most tickets at once.
    pub tickets_max: u32,
    /// Most bytes of extents pinned by leases, hand-outs and tickets at once; an extent that is
    /// held twice counts twice.
    pub in_flight_bytes_max: u64,
}

impl StoreConfig {
    /// The defaults for an arena of `arena_bytes` of which `budget_bytes` may be payload.
    #[must_use]
    pub const fn new(arena_bytes: u64, budget_bytes: u64) -> Self {
        Self {
            arena_bytes,
            budget_bytes,
            promise_window_ms: 30_000,
            view_grace_ms: 1_000,
            session_limits: SessionLimits {
                leases_max: 65_536,
                tickets_max: 4_096,
                in_flight_bytes_max: arena_bytes / 2,
            },
            reserve_permille: 20,
            quarantine_bytes_max: arena_bytes / 8,
            rows_max: default_rows_max(arena_bytes),
            lineage_bytes_max: at_least(arena_bytes / 64, 1 << 20),
            evidence_slots: 1 << 20,
            keep_checksums: false,
            ledger: None,
            events: false,
            disk: DiskConfig::NONE,
            hash_seed: 0,
        }
    }

    /// Bytes that the normal order of eviction leaves free, while `ready_bytes` are touched.
    pub(crate) const fn reserve_bytes_of(&self, ready_bytes: u64) -> u64 {
        if self.arena_bytes < RESERVE_FROM_ARENA_BYTES {
            return 0;
        }
        (ready_bytes / 1000).saturating_mul(self.reserve_permille)
    }

    /// Most bytes of extents that promises may pin: a quarter of the arena.
    #[must_use]
    pub const fn promised_bytes_max(&self) -> u64 {
        self.arena_bytes / 4
    }
}

const fn at_least(value: u64, least: u64) -> u64 {
    if value < least { least } else { value }
}

#[expect(clippy::cast_possible_truncation, reason = "compared with the limit before")]
const fn default_rows_max(arena_bytes: u64) -> u32 {
    let rows = at_least(arena_bytes / 256, 1 << 16);
    // Row numbers are 32 bits wide and one of them means none.
    if rows < u32::MAX as u64 { rows as u32 } else { u32::MAX - 1 }
}

#[cfg(test)]
mod tests {
    use super::StoreConfig;

    #[test]
    fn small_arenas_keep_no_reserve() {
        assert_eq!(StoreConfig::new(65_536, 10).reserve_bytes_of(65_536), 0);
        let config = StoreConfig::new(1_000 << 20, 1 << 30);
        assert_eq!(config.reserve_bytes_of(1_000 << 20), 20 << 20);
        assert_eq!(config.reserve_bytes_of(0), 0);
    }
}
