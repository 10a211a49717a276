//! One word that says whether the owner of a disk sleeps, so that a wake rings only a sleeper.
//!
//! Awake, asleep, or notified. A waker moves the word to notified and rings if it found the owner
//! asleep. Only the owner moves it back to awake: if a waker did, one that comes in between would be
//! lost. The owner looks at what it may have been woken for after [`SleepWord::get_up`], never
//! before. `tests/loom_sleep.rs` tries every order, and an owner that looks too early.
//!
//! Public only for that test.

#[cfg(loom)]
use loom::sync::atomic::{AtomicU8, Ordering};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicU8, Ordering};

const AWAKE: u8 = 0;
const ASLEEP: u8 = 1;
const NOTIFIED: u8 = 2;

/// The word.
#[derive(Debug)]
pub struct SleepWord(AtomicU8);

impl Default for SleepWord {
    fn default() -> Self {
        Self(AtomicU8::new(AWAKE))
    }
}

impl SleepWord {
    /// Any thread: asks the owner to look. Whether the owner sleeps and must be rung.
    #[must_use]
    pub fn notify(&self) -> bool {
        // Pairs with the acquire in `fall_asleep` and `get_up`: what the waker did before is seen by
        // the owner after.
        self.0.swap(NOTIFIED, Ordering::AcqRel) == ASLEEP
    }

    /// The owner: about to wait for the ring. `false`: it has been notified since it last got up, and
    /// must not wait; the notification is used up.
    #[must_use]
    pub fn fall_asleep(&self) -> bool {
        let fell = self.0.compare_exchange(AWAKE, ASLEEP, Ordering::AcqRel, Ordering::Acquire);
        if fell.is_err() {
            self.get_up();
        }
        fell.is_ok()
    }

    /// The owner: awake. Whether it has been notified since it last was; that is used up.
    pub fn get_up(&self) -> bool {
        self.0.swap(AWAKE, Ordering::AcqRel) == NOTIFIED
    }
}
