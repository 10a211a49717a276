//! One flag that ends every background thread, and a wait that hears it at once.

use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Raised once, at shutdown; never lowered.
#[derive(Debug, Default)]
pub struct Stop {
    raised: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Ends every present and future [`Stop::wait`].
    pub fn raise(&self) {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Whether the daemon is on its way out.
    pub fn is_raised(&self) -> bool {
        *self.raised.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps for `pause` or until the flag is raised; true when it is raised.
    pub fn wait(&self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        let mut raised = self.raised.lock().unwrap_or_else(PoisonError::into_inner);
        while !*raised {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let (next, _) =
                self.changed.wait_timeout(raised, left).unwrap_or_else(PoisonError::into_inner);
            raised = next;
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_flag_ends_the_wait_at_once() {
        let stop = Stop::default();
        stop.raise();
        assert!(stop.wait(Duration::from_secs(3600)));
        assert!(stop.is_raised());
    }

    #[test]
    fn an_unraised_flag_lets_the_pause_pass() {
        assert!(!Stop::default().wait(Duration::from_millis(1)));
    }
}
