//! Memory outside the arena that request bodies may occupy: one budget for all sessions.
//!
//! A body is buffered outside the arena only when it can't be received straight into an extent (a
//! batch, an unusual field order, an arena without room before the class is known). Small frames
//! are free: they live in the session's own fixed buffer.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The budget. A single body larger than the whole budget may have all of it, alone.
#[derive(Debug)]
pub struct Staging {
    total_bytes: u64,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    free_bytes: u64,
    closed: bool,
}

/// The right to buffer so many bytes; returned when dropped.
#[derive(Debug)]
#[must_use = "dropping the permit gives the bytes back"]
pub struct Permit<'a> {
    staging: &'a Staging,
    len_bytes: u64,
}

impl Staging {
    /// A budget of `total_bytes`; with nothing at all, bodies still come one at a time.
    pub fn new(total_bytes: u64) -> Self {
        let total_bytes = total_bytes.max(1);
        let state = State { free_bytes: total_bytes, closed: false };
        Self { total_bytes, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits at most `patience` for room; `None` when there was none, or the daemon is ending.
    pub fn acquire(&self, len_bytes: u64, patience: Duration) -> Option<Permit<'_>> {
        let len_bytes = len_bytes.min(self.total_bytes);
        let until = Instant::now() + patience;
        let mut state = self.lock();
        while !state.closed && state.free_bytes < len_bytes {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            (state, _) =
                self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        if state.closed {
            return None;
        }
        state.free_bytes -= len_bytes;
        Some(Permit { staging: self, len_bytes })
    }

    /// From now on nobody gets a permit, and nobody waits for one.
    pub fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// Bytes in use now.
    pub fn used_bytes(&self) -> u64 {
        self.total_bytes - self.lock().free_bytes
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.staging.lock().free_bytes += self.len_bytes;
        self.staging.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_are_bounded_and_come_back() {
        let staging = Staging::new(100);
        let first = staging.acquire(60, Duration::ZERO).unwrap();
        assert!(staging.acquire(60, Duration::ZERO).is_none(), "only 40 left");
        assert_eq!(staging.used_bytes(), 60);
        drop(first);
        assert!(staging.acquire(60, Duration::ZERO).is_some());
    }

    #[test]
    fn a_body_above_the_budget_gets_all_of_it_alone() {
        let staging = Staging::new(100);
        let all = staging.acquire(1_000, Duration::ZERO).unwrap();
        assert!(staging.acquire(1, Duration::ZERO).is_none());
        drop(all);
        assert_eq!(staging.used_bytes(), 0);
    }

    #[test]
    fn without_a_budget_bodies_come_one_at_a_time() {
        let staging = Staging::new(0);
        let all = staging.acquire(1_000, Duration::ZERO).unwrap();
        assert!(staging.acquire(1, Duration::ZERO).is_none());
        drop(all);
        assert!(staging.acquire(1_000, Duration::ZERO).is_some());
    }

    #[test]
    fn closing_ends_the_wait() {
        let staging = Staging::new(10);
        let all = staging.acquire(10, Duration::ZERO).unwrap();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| staging.acquire(1, Duration::from_secs(3600)).is_none());
            staging.close();
            assert!(waiter.join().unwrap());
        });
        drop(all);
        assert!(staging.acquire(1, Duration::ZERO).is_none());
    }
}
