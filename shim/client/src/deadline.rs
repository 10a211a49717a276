//! A point in time that a call must not outlive. Fixed once when the call begins and handed down,
//! so that no step can start a fresh allowance of its own.

use std::time::{Duration, Instant};

/// Longest wait that is taken literally; it keeps `Instant` arithmetic from overflowing.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    began: Instant,
    ends: Instant,
}

impl Deadline {
    pub(crate) fn after(allowance: Duration) -> Self {
        let began = Instant::now();
        Self { began, ends: began + allowance.min(LONGEST) }
    }

    pub(crate) fn remaining(self) -> Duration {
        self.ends.saturating_duration_since(Instant::now())
    }

    /// Whole milliseconds until the end, at least 1, for a wire field.
    pub(crate) fn remaining_ms(self) -> u32 {
        u32::try_from(self.remaining().as_millis()).unwrap_or(u32::MAX).max(1)
    }

    /// Milliseconds since the call began, for error messages.
    pub(crate) fn waited_ms(self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absurd_allowance_neither_overflows_nor_passes() {
        let deadline = Deadline::after(Duration::MAX);
        assert!(!deadline.remaining().is_zero());
        assert_eq!(deadline.remaining_ms(), u32::MAX);
    }

    #[test]
    fn a_deadline_in_the_past_is_zero_time_away_and_one_on_the_wire() {
        let spent = Deadline::after(Duration::ZERO);
        assert!(spent.remaining().is_zero());
        assert_eq!(spent.remaining_ms(), 1);
    }
}
