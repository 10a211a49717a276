//! Touches the arena while the socket is already open.
//!
//! The first touch of memory is by far the slowest thing at start (0.1 to 1.5 s a GiB), and a page
//! belongs to the memory cgroup of whoever touches it first. So the daemon touches every page
//! itself, in pieces, in parallel, lowest first; the store hands out memory only below the end of
//! the part that is ready without a gap.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use kvd_store::{Effects, Input};

use crate::daemon::Daemon;

/// One step of a touch thread: long enough to make the hand-over cheap, short enough (about 50 ms)
/// that shutdown is quick and the first blocks find room soon.
const PIECE_BYTES: u64 = 32 << 20;
/// More threads than this gain nothing: memory bandwidth is the limit.
const THREADS_MAX: usize = 16;

/// Progress of the touch.
#[derive(Debug)]
pub struct WarmUp {
    total_bytes: u64,
    next_piece: AtomicU64,
    done: Mutex<Done>,
    grown: Condvar,
}

#[derive(Debug, Default)]
struct Done {
    /// Everything below is touched.
    ready_bytes: u64,
    /// Pieces that are ready beyond a gap.
    ahead: BTreeSet<u64>,
}

impl WarmUp {
    /// Nothing touched yet.
    #[must_use]
    pub fn new(total_bytes: u64) -> Self {
        Self {
            total_bytes,
            next_piece: AtomicU64::new(0),
            done: Mutex::new(Done::default()),
            grown: Condvar::new(),
        }
    }

    /// Bytes ready so far, counted from the start of the arena.
    pub fn ready_bytes(&self) -> u64 {
        self.done.lock().unwrap_or_else(PoisonError::into_inner).ready_bytes
    }

    /// Whether the whole arena is ready.
    pub fn is_complete(&self) -> bool {
        self.ready_bytes() == self.total_bytes
    }

    /// Waits until the whole arena is ready, at most `patience`; true when it is.
    pub fn wait_complete(&self, patience: Duration) -> bool {
        self.wait_for(self.total_bytes, patience).is_some()
    }

    /// Waits until more than `seen_bytes` are ready, at most `patience`; how many are.
    pub fn wait_growth(&self, seen_bytes: u64, patience: Duration) -> Option<u64> {
        self.wait_for(seen_bytes + 1, patience)
    }

    fn wait_for(&self, least_bytes: u64, patience: Duration) -> Option<u64> {
        let until = Instant::now() + patience;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while done.ready_bytes < least_bytes {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            (done, _) = self.grown.wait_timeout(done, left).unwrap_or_else(PoisonError::into_inner);
        }
        Some(done.ready_bytes)
    }

    /// Starts the touch threads of a daemon; they end when all is touched or its stop flag is raised.
    ///
    /// # Errors
    /// A thread could not be started.
    pub fn start(daemon: &Arc<Daemon>) -> io::Result<Vec<JoinHandle<()>>> {
        let total_bytes = daemon.warm_up.total_bytes;
        let pieces = usize::try_from(total_bytes.div_ceil(PIECE_BYTES)).unwrap_or(usize::MAX);
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        (0..cores.min(THREADS_MAX).min(pieces))
            .map(|number| {
                let daemon = Arc::clone(daemon);
                Builder::new()
                    .name(format!("kvd-touch-{number}"))
                    .spawn(move || daemon.warm_up.run(&daemon))
            })
            .collect()
    }

    fn run(&self, daemon: &Daemon) {
        let mut effects = Effects::default();
        while !daemon.stop.is_raised() {
            let piece = self.next_piece.fetch_add(1, Ordering::Relaxed);
            let begin = piece.saturating_mul(PIECE_BYTES);
            if begin >= self.total_bytes {
                return;
            }
            let end = self.total_bytes.min(begin + PIECE_BYTES);
            let touched = daemon.arena.touch(begin..end);
            for note in daemon.arena.take_notes() {
                daemon.status.note(note.to_string());
            }
            if let Err(error) = touched {
                // The rest of the arena stays unused; what is ready serves.
                daemon.status.note(format!("arena memory could not be touched: {error}"));
                return;
            }
            self.finish(piece, |bytes| {
                daemon.brain.apply(Input::ArenaReady { bytes }, &mut effects);
            });
        }
    }

    /// Marks a piece and announces the new end of the gapless part if that moved. Announced under
    /// the lock, so that two threads can't announce in the wrong order.
    fn finish(&self, piece: u64, announce: impl FnOnce(u64)) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.ahead.insert(piece);
        let before = done.ready_bytes;
        loop {
            let next = done.ready_bytes / PIECE_BYTES;
            if !done.ahead.remove(&next) {
                break;
            }
            done.ready_bytes = self.total_bytes.min(done.ready_bytes + PIECE_BYTES);
            if done.ready_bytes == self.total_bytes {
                break;
            }
        }
        if done.ready_bytes > before {
            announce(done.ready_bytes);
            self.grown.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_part_never_has_a_gap() {
        let warm_up = WarmUp::new(3 * PIECE_BYTES + 5);
        let mut announced = Vec::new();
        for piece in [1, 3, 0] {
            warm_up.finish(piece, |bytes| announced.push(bytes));
        }
        assert!(!warm_up.wait_complete(Duration::ZERO));
        warm_up.finish(2, |bytes| announced.push(bytes));
        assert_eq!(announced, [2 * PIECE_BYTES, 3 * PIECE_BYTES + 5]);
        assert!(warm_up.wait_complete(Duration::ZERO));
    }

    #[test]
    fn a_small_arena_is_one_piece() {
        let warm_up = WarmUp::new(65_536);
        warm_up.finish(0, |bytes| assert_eq!(bytes, 65_536));
        assert!(warm_up.is_complete());
    }
}
