//! Time that survives a restart.

/// Milliseconds since 1970 on the wall clock. Whoever drives a tablespace sees to it that it does
/// not run backwards while the process lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);

impl WallTime {
    /// Later than everything; stands for "no end".
    pub const NEVER: Self = Self(u64::MAX);
}
