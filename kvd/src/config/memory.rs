//! How large the arena is. With a shared arena its size bounds the payload too; without one a
//! private arena is sized so that the payload budget fits beside headers and holes.

use super::NumaPolicy;
use super::problem::Source;

const PAGE_BYTES: u64 = 4096;
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// From this size on a private arena consists of whole 2 MiB pages.
const HUGE_FROM_BYTES: u64 = 64 << 20;
/// Least room that a private arena has beyond the payload budget.
const PRIVATE_SPARE_BYTES: u64 = 1 << 20;

/// The arena and the payload budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// Length of the arena, whole pages.
    pub arena_bytes: u64,
    /// Payload bytes that may be kept in it.
    pub budget_bytes: u64,
    /// Whether clients may map the arena.
    pub shared: bool,
    /// Whether to lock its pages.
    pub pin: bool,
    /// Whether to take it from the hugetlb pool.
    pub hugetlb: bool,
    /// Where its pages go.
    pub numa: NumaPolicy,
    /// Who chose the size: the option to change when memory is short.
    pub size_source: Source,
}

/// Arena length and payload budget for `--max-bytes` and `--shared-arena-bytes` (`None`: auto),
/// both in bytes.
#[must_use]
pub(super) fn sizes(max_bytes: u64, shared_arena_bytes: Option<u64>, hugetlb: bool) -> (u64, u64) {
    let shared_bytes = shared_arena_bytes.unwrap_or(max_bytes);
    let page_bytes = if hugetlb { HUGE_PAGE_BYTES } else { PAGE_BYTES };
    if shared_bytes > 0 {
        return (shared_bytes.next_multiple_of(page_bytes), shared_bytes);
    }
    let wanted = (max_bytes + max_bytes / 8).max(max_bytes + PRIVATE_SPARE_BYTES);
    let page_bytes = if wanted >= HUGE_FROM_BYTES { HUGE_PAGE_BYTES } else { page_bytes };
    (wanted.next_multiple_of(page_bytes), max_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_shared_arena_is_as_large_as_it_was_asked() {
        assert_eq!(sizes(8 * GIB, None, false), (8 * GIB, 8 * GIB));
        assert_eq!(sizes(8 * GIB, Some(2 * GIB), false), (2 * GIB, 2 * GIB));
        assert_eq!(sizes(GIB, Some(2 * GIB), false), (2 * GIB, 2 * GIB));
        assert_eq!(sizes(10, Some(65_536), false), (65_536, 65_536));
    }

    #[test]
    fn pages_are_whole_and_the_budget_is_what_was_asked() {
        assert_eq!(sizes(10, None, false), (4096, 10));
        assert_eq!(sizes(GIB, Some(100_000), false), (102_400, 100_000));
        assert_eq!(sizes(GIB, Some(100_000), true), (2 << 20, 100_000));
    }

    #[test]
    fn a_private_arena_has_room_to_spare() {
        assert_eq!(sizes(10, Some(0), false), ((1 << 20) + 4096, 10));
        assert_eq!(sizes(8 << 20, Some(0), false), (9 << 20, 8 << 20));
        let (arena, budget) = sizes(GIB, Some(0), false);
        assert_eq!((arena, budget), (GIB + GIB / 8, GIB));
        let (arena, _) = sizes((1 << 30) + 1, Some(0), false);
        assert!(arena.is_multiple_of(HUGE_PAGE_BYTES));
    }
}
