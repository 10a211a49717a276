//! What health checks and operators see of this incarnation of the daemon: its epoch, whether it
//! accepts or drains, and what it has to do without.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Most notes kept; each degradation is noted once, and there are not that many kinds.
const NOTES_MAX: usize = 64;

/// Identity and state of one daemon incarnation.
#[derive(Debug)]
pub struct Status {
    /// Names this incarnation: leases, tickets and offsets of another one mean nothing here.
    /// Microseconds since 1970 at the start: never 0, different after every restart but for one that
    /// takes over the connections, and exact as a JSON number.
    pub epoch: u64,
    /// Name of this incarnation in `hello_ack`.
    pub server_id: String,
    /// When it started.
    pub started: Instant,
    /// Engine connections are accepted.
    pub accepting: AtomicBool,
    /// Told to end.
    pub draining: AtomicBool,
    notes: Mutex<Vec<String>>,
}

impl Default for Status {
    fn default() -> Self {
        Self::new()
    }
}

impl Status {
    /// A new incarnation, which accepts nobody yet.
    #[must_use]
    pub fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self::of_epoch(u64::try_from(since_1970.as_micros()).unwrap_or(u64::MAX).max(1))
    }

    /// A process that goes on with an incarnation: what clients hold of it means the same here.
    #[must_use]
    pub fn of_epoch(epoch: u64) -> Self {
        Self {
            epoch,
            server_id: format!("kvd-{:08x}", epoch & 0xFFFF_FFFF),
            started: Instant::now(),
            accepting: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            notes: Mutex::new(Vec::new()),
        }
    }

    /// Whether engines can connect now.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.accepting.load(Ordering::Relaxed) && !self.draining.load(Ordering::Relaxed)
    }

    /// Remembers and logs, once, something that the daemon does without.
    pub fn note(&self, degradation: impl Into<String>) {
        let degradation = degradation.into();
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        if notes.len() < NOTES_MAX && !notes.contains(&degradation) {
            tracing::warn!("{degradation}");
            notes.push(degradation);
        }
    }

    /// Everything noted so far.
    #[must_use]
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_accepting_and_not_draining() {
        let status = Status::new();
        assert!(!status.is_ready());
        status.accepting.store(true, Ordering::Relaxed);
        assert!(status.is_ready());
        status.draining.store(true, Ordering::Relaxed);
        assert!(!status.is_ready());
    }

    #[test]
    fn a_degradation_is_noted_once_and_notes_are_bounded() {
        let status = Status::new();
        status.note("no huge pages");
        status.note("no huge pages");
        assert_eq!(status.notes(), ["no huge pages"]);
        for number in 0..2 * NOTES_MAX {
            status.note(number.to_string());
        }
        assert_eq!(status.notes().len(), NOTES_MAX);
    }

    #[test]
    fn an_epoch_is_exact_in_json_and_names_the_server() {
        let status = Status::new();
        assert!(status.epoch > 0 && status.epoch < 1 << 53);
        assert_eq!(status.server_id.len(), "kvd-".len() + 8);
    }
}
