//! In which order rows make room. A policy knows rows by number and class, nothing else; which
//! of them may go at the moment is not its business.

mod lru;

use core::fmt::Debug;

use kvd_proto::retention::Retention;

use crate::rows::RowId;
pub(crate) use lru::Lru;

/// An eviction order within each class. All calls are O(1).
///
/// A row is in the order from its insertion to its removal, under one class.
pub(crate) trait Evict<I = RowId>: Debug + Send {
    /// A new row, or one that was just used.
    fn insert(&mut self, row: I, class: Retention);

    /// A row that comes back after it could not be evicted; the next to go.
    fn insert_coldest(&mut self, row: I, class: Retention);

    /// The row was used.
    fn touch(&mut self, row: I, class: Retention);

    /// The row leaves the order.
    fn remove(&mut self, row: I, class: Retention);

    /// Looks at the memory that a touch of this row will need, without any other effect; the
    /// result means nothing. Batches let the accesses of all their rows overlap.
    fn foresee(&self, row: I) -> u32;

    /// The first row to go.
    fn coldest(&self, class: Retention) -> Option<I>;

    /// The row to go after `row`.
    fn warmer(&self, row: I) -> Option<I>;

    /// The last row to go.
    fn warmest(&self, class: Retention) -> Option<I>;

    /// The row to go before `row`.
    fn colder(&self, row: I) -> Option<I>;
}
