//! Time as the store sees it: an argument of every call, never a clock that it reads.

/// Milliseconds on the daemon's monotonic clock. The zero point is the caller's choice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// Later than everything; stands for "no end".
    pub(crate) const NEVER: Self = Self(u64::MAX);

    /// The moment `milliseconds` later; stays at the far end instead of wrapping.
    #[must_use]
    pub const fn after(self, milliseconds: u64) -> Self {
        Self(self.0.saturating_add(milliseconds))
    }
}
