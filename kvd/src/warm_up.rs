//! How much of the arena is ready, and what comes next. `touch.rs` does the work.
//!
//! Pieces are handed out lowest first and finished in any order; what counts is the part that is
//! ready without a gap.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One step of a touch thread: long enough to make the hand-over cheap, short enough (about 50 ms)
/// that shutdown is quick and the first blocks find room soon.
const PIECE_BYTES: u64 = 32 << 20;

/// A part of the arena that one thread touches.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// To be given to [`WarmUp::finish`].
    pub number: u64,
    /// Its bytes.
    pub range: Range<u64>,
}

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
    touched_bytes: u64,
    /// Everything below has memory behind it: it is touched, or was before this process began.
    ready_bytes: u64,
    /// Pieces that are ready beyond a gap.
    ahead: BTreeSet<u64>,
    /// No more will come.
    given_up: bool,
}

impl WarmUp {
    /// Nothing touched yet.
    #[must_use]
    pub fn new(total_bytes: u64) -> Self {
        Self::resumed(total_bytes, 0)
    }

    /// Nothing touched by this process, but `ready_bytes` have memory behind them. They are touched
    /// all the same, while they are used: that maps and locks them.
    #[must_use]
    pub fn resumed(total_bytes: u64, ready_bytes: u64) -> Self {
        Self {
            total_bytes,
            next_piece: AtomicU64::new(0),
            done: Mutex::new(Done { ready_bytes, ..Done::default() }),
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

    /// The rest can't be touched: nobody waits for it any more. Announced as [`WarmUp::finish`] does.
    pub fn give_up(&self, announce: impl FnOnce()) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.given_up = true;
        announce();
        self.grown.notify_all();
    }

    fn wait_for(&self, least_bytes: u64, patience: Duration) -> Option<u64> {
        let until = Instant::now() + patience;
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        while done.ready_bytes < least_bytes {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || done.given_up {
                return None;
            }
            (done, _) = self.grown.wait_timeout(done, left).unwrap_or_else(PoisonError::into_inner);
        }
        Some(done.ready_bytes)
    }

    /// The next piece that nobody has taken yet.
    pub fn next_piece(&self) -> Option<Piece> {
        let number = self.next_piece.fetch_add(1, Ordering::Relaxed);
        let begin = number.checked_mul(PIECE_BYTES).filter(|begin| *begin < self.total_bytes)?;
        Some(Piece { number, range: begin..self.total_bytes.min(begin + PIECE_BYTES) })
    }

    /// How many pieces there are in all.
    pub fn pieces(&self) -> u64 {
        self.total_bytes.div_ceil(PIECE_BYTES)
    }

    /// Marks a piece and announces the new end of the gapless part if that moved. Announced under
    /// the lock, so that two threads can't announce in the wrong order.
    pub fn finish(&self, piece: u64, announce: impl FnOnce(u64)) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        done.ahead.insert(piece);
        let before = done.ready_bytes;
        loop {
            let next = done.touched_bytes / PIECE_BYTES;
            if !done.ahead.remove(&next) {
                break;
            }
            done.touched_bytes = self.total_bytes.min(done.touched_bytes + PIECE_BYTES);
            if done.touched_bytes == self.total_bytes {
                break;
            }
        }
        done.ready_bytes = before.max(done.touched_bytes);
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
    fn pieces_cover_the_arena_once() {
        let warm_up = WarmUp::new(2 * PIECE_BYTES + 5);
        let pieces: Vec<_> = std::iter::from_fn(|| warm_up.next_piece()).collect();
        assert_eq!(pieces.len() as u64, warm_up.pieces());
        assert!(pieces.windows(2).all(|two| two[0].range.end == two[1].range.start));
        assert_eq!(pieces[2].range, 2 * PIECE_BYTES..2 * PIECE_BYTES + 5);
    }

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
    fn what_was_ready_before_is_touched_again_and_announced_no_more() {
        let warm_up = WarmUp::resumed(3 * PIECE_BYTES, PIECE_BYTES + 5);
        assert_eq!((warm_up.ready_bytes(), warm_up.pieces()), (PIECE_BYTES + 5, 3));
        let mut announced = Vec::new();
        for piece in [0, 2, 1] {
            warm_up.finish(piece, |bytes| announced.push(bytes));
        }
        assert_eq!(announced, [3 * PIECE_BYTES]);
        assert!(warm_up.is_complete());
    }

    #[test]
    fn nobody_waits_for_what_will_not_come() {
        let warm_up = WarmUp::new(2 * PIECE_BYTES);
        warm_up.finish(0, |_| {});
        warm_up.give_up(|| {});
        assert_eq!(warm_up.wait_growth(PIECE_BYTES, Duration::from_secs(3600)), None);
        assert!(!warm_up.wait_complete(Duration::from_secs(3600)));
    }

    #[test]
    fn a_small_arena_is_one_piece() {
        let warm_up = WarmUp::new(65_536);
        warm_up.finish(0, |bytes| assert_eq!(bytes, 65_536));
        assert!(warm_up.is_complete());
    }
}
