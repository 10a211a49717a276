//! Time that survives a restart.

/// Milliseconds since 1970 on the wall clock. Whoever drives a tablespace sees to it that it does
/// not run backwards while the process lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

impl WallTime {
    /// Later than everything; stands for "no end".
    pub const NEVER: Self = Self(u64::MAX);

    /// The first whole second, since 1970, at which this is over; the last one that there is for times
    /// beyond the year 2106.
    pub(super) fn second(self) -> u32 {
        u32::try_from(self.0.div_ceil(1000)).unwrap_or(u32::MAX)
    }
}
