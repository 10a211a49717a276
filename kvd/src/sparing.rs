//! Log lines that a client can cause are written sparingly: a flood of them would cost everybody
//! else disk and attention. What is left out is counted, and metrics have the whole number.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines in one [`PERIOD`].
const LINES_MAX: u32 = 10;
/// After this time, lines are written again.
const PERIOD: Duration = Duration::from_secs(10);

/// Decides which of many similar lines are written.
#[derive(Debug)]
pub struct Sparing {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    since: Instant,
    written: u32,
    left_out: u64,
}

impl Default for Sparing {
    fn default() -> Self {
        let state = State { since: Instant::now(), written: 0, left_out: 0 };
        Self { state: Mutex::new(state) }
    }
}

impl Sparing {
    /// Whether a line may be written now; if so, how many were left out before it.
    pub fn allows(&self) -> Option<u64> {
        self.allows_at(Instant::now())
    }

    fn allows_at(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(state.since) >= PERIOD {
            state.since = now;
            state.written = 0;
        }
        if state.written >= LINES_MAX {
            state.left_out += 1;
            return None;
        }
        state.written += 1;
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_cut_and_counted() {
        let sparing = Sparing::default();
        let now = Instant::now();
        for _ in 0..LINES_MAX {
            assert_eq!(sparing.allows_at(now), Some(0));
        }
        for _ in 0..1_000 {
            assert_eq!(sparing.allows_at(now), None);
        }
        assert_eq!(sparing.allows_at(now + PERIOD), Some(1_000));
        assert_eq!(sparing.allows_at(now + PERIOD), Some(0));
    }
}
