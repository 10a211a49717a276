//! Where what stands in a ledger. All regions begin on a page, so that an unused one takes none.

/// Bytes of the header page and the unit of regions.
pub(super) const PAGE_BYTES: u64 = 4096;

/// Bytes of one slot of each region.
pub(super) const SESSION_BYTES: u64 = 32;
pub(super) const RIGHT_BYTES: u64 = 32;
pub(super) const READ_BYTES: u64 = 16;
pub(super) const RECORD_BYTES: u64 = 128;
pub(super) const RECENCY_BYTES: u64 = 8;
pub(super) const SUM_BYTES: u64 = 16;
pub(super) const TAIL_BYTES: u64 = 64;

/// Most slots of one region; sessions have 20 bits in a right.
const SESSIONS_END: u32 = 1 << 20;
const SLOTS_END: u32 = 1 << 30;

/// How many slots each region has. They bound what a restart can remember; the file is sparse, only
/// slots that were used take memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerLayout {
    /// Sessions known at once, closed ones that still hold something included, at most 2^20. A session
    /// without a slot gets no rights (32 bytes each).
    pub sessions: u32,
    /// Rights of peers at once: one more is refused as over a cap (32 bytes each).
    pub rights: u32,
    /// Reads from devices into the arena that are under way at once; more wait (16 bytes each).
    pub reads: u32,
    /// Namespaces (128 bytes each); rows of others are forgotten by a restart.
    pub namespaces: u32,
    /// Rows (152 bytes each); others are forgotten by a restart.
    pub rows: u32,
    /// Pieces of 56 bytes of what is longer than 64 bytes: key and lineage of a row, the names of a
    /// namespace (64 bytes each). What finds none is forgotten by a restart.
    pub tails: u32,
}

/// Where each region begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Regions {
    pub(super) sessions: u64,
    pub(super) rights: u64,
    pub(super) reads: u64,
    pub(super) namespaces: u64,
    pub(super) rows: u64,
    pub(super) recency: u64,
    pub(super) sums: u64,
    pub(super) tails: u64,
    pub(super) end: u64,
}

impl LedgerLayout {
    /// No slot for anything.
    pub const NONE: Self =
        Self { sessions: 0, rights: 0, reads: 0, namespaces: 0, rows: 0, tails: 0 };

    /// The default for an arena: one row for every 4 KiB of it, but 65 536 at least; four sessions, in
    /// whatever state, for each one that may be attached at once, but 1024 at least; 4 Mi rights.
    #[must_use]
    pub const fn for_arena(arena_bytes: u64, sessions_max: u32) -> Self {
        let rows = between(arena_bytes / 4096, 1 << 16, SLOTS_END);
        Self {
            sessions: between(sessions_max as u64 * 4, 1 << 10, SESSIONS_END),
            rights: 1 << 22,
            reads: 1 << 16,
            namespaces: crate::namespaces::NAMESPACES_MAX,
            rows,
            tails: rows,
        }
    }

    /// Size of the whole ledger.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.regions().end
    }

    /// Whether numbers are within what the format can say.
    pub(super) const fn is_sound(&self) -> bool {
        self.sessions <= SESSIONS_END
            && self.rights <= SLOTS_END
            && self.reads <= SLOTS_END
            && self.namespaces <= crate::namespaces::NAMESPACES_MAX
            && self.rows <= SLOTS_END
            && self.tails <= SLOTS_END
    }

    pub(super) const fn regions(&self) -> Regions {
        let sessions = PAGE_BYTES;
        let rights = after(sessions, self.sessions, SESSION_BYTES);
        let reads = after(rights, self.rights, RIGHT_BYTES);
        let namespaces = after(reads, self.reads, READ_BYTES);
        let rows = after(namespaces, self.namespaces, RECORD_BYTES);
        let recency = after(rows, self.rows, RECORD_BYTES);
        let sums = after(recency, self.rows, RECENCY_BYTES);
        let tails = after(sums, self.rows, SUM_BYTES);
        let end = after(tails, self.tails, TAIL_BYTES);
        Regions { sessions, rights, reads, namespaces, rows, recency, sums, tails, end }
    }
}

const fn after(start: u64, slots: u32, bytes: u64) -> u64 {
    start + (slots as u64 * bytes).next_multiple_of(PAGE_BYTES)
}

#[expect(clippy::cast_possible_truncation, reason = "compared with the limit before")]
const fn between(value: u64, least: u32, most: u32) -> u32 {
    if value < least as u64 {
        least
    } else if value > most as u64 {
        most
    } else {
        value as u32
    }
}

#[cfg(test)]
mod tests {
    use super::LedgerLayout;

    #[test]
    fn regions_follow_each_other_on_pages() {
        let layout = LedgerLayout::for_arena(8 << 30, 256);
        assert!(layout.is_sound());
        let at = layout.regions();
        let all = [at.sessions, at.rights, at.reads, at.namespaces, at.rows, at.recency, at.sums];
        assert!(all.is_sorted() && all.iter().all(|start| start.is_multiple_of(4096)));
        assert_eq!((layout.sessions, layout.rows), (1024, 2 << 20));
        assert!(at.sums < at.tails && at.tails < at.end && layout.bytes() == at.end);
        assert_eq!(LedgerLayout::NONE.bytes(), 4096);
        assert!(LedgerLayout::for_arena(u64::MAX, u32::MAX).is_sound());
    }
}
