//! One holder at a time, with a deadline on the wait.
//!
//! `std::sync::Mutex` cannot give up waiting, and a call that queues behind a slow one must still
//! end in time. The value is therefore taken *out* of a mutex that is never held for longer than
//! the exchange; who finds it gone waits on a condition variable for as long as it may.
//!
//! Whoever comes by while the value is there takes it, which is fast; but somebody who has waited for
//! [`PATIENCE`] is let in before any newcomer, so that a thread that calls without a pause cannot keep
//! the others out.
//!
//! What a forked child finds is its parent's: the value, or none if a thread of the parent was using
//! it, and a mutex that may be locked for ever. The child therefore starts with a turnstile of its
//! own, and touches the parent's only to let go of the value, if it can.

use std::ops::{Deref, DerefMut};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use kvd_shm::forks;

use crate::deadline::Deadline;

/// A few calls long: handing over at every call would cost a thread switch each.
const PATIENCE: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct Turnstile<T> {
    /// Whose it is, as [`forks::generation`] counts.
    generation: u32,
    place: Mutex<Place<T>>,
    left: Condvar,
    fresh: fn() -> T,
    /// That of a child, made by the child.
    child: OnceLock<Box<Self>>,
}

#[derive(Debug)]
struct Place<T> {
    /// `None` while somebody is inside.
    value: Option<Box<T>>,
    waiting: u32,
    /// Those of the waiting who have lost their patience.
    impatient: u32,
}

/// The right to use the value; leaving is dropping it.
#[derive(Debug)]
pub(crate) struct Inside<'a, T> {
    turnstile: &'a Turnstile<T>,
    /// `Some` until the drop.
    value: Option<Box<T>>,
}

impl<T> Turnstile<T> {
    pub(crate) fn new(fresh: fn() -> T) -> Self {
        Self {
            generation: forks::generation(),
            place: Mutex::new(Place { value: Some(Box::new(fresh())), waiting: 0, impatient: 0 }),
            left: Condvar::new(),
            fresh,
            child: OnceLock::new(),
        }
    }

    /// Waits for the turn until the deadline; `None` if it passed.
    pub(crate) fn enter(&self, deadline: Deadline) -> Option<Inside<'_, T>> {
        let own = self.own();
        own.try_enter_own().or_else(|| own.queue(deadline))
    }

    /// Enters if nobody is inside or has waited for long.
    pub(crate) fn try_enter(&self) -> Option<Inside<'_, T>> {
        self.own().try_enter_own()
    }

    fn try_enter_own(&self) -> Option<Inside<'_, T>> {
        let mut place = self.place();
        if place.impatient > 0 {
            return None;
        }
        let value = place.value.take()?;
        Some(Inside { turnstile: self, value: Some(value) })
    }

    fn queue(&self, deadline: Deadline) -> Option<Inside<'_, T>> {
        let began = Instant::now();
        let mut impatient = false;
        let mut place = self.place();
        place.waiting += 1;
        let value = loop {
            if !impatient && began.elapsed() >= PATIENCE {
                impatient = true;
                place.impatient += 1;
            }
            if (impatient || place.impatient == 0) && place.value.is_some() {
                break place.value.take();
            }
            let remaining = deadline.remaining();
            if remaining.is_zero() {
                break None;
            }
            place = match self.left.wait_timeout(place, remaining) {
                Ok((place, _)) => place,
                Err(poisoned) => poisoned.into_inner().0,
            };
        };
        place.waiting -= 1;
        place.impatient -= u32::from(impatient);
        value.map(|value| Inside { turnstile: self, value: Some(value) })
    }

    fn place(&self) -> MutexGuard<'_, Place<T>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The turnstile of this process: itself, or that of a child, a grandchild and so on.
    fn own(&self) -> &Self {
        let generation = forks::generation();
        let mut own = self;
        while own.generation != generation {
            own = own.child.get_or_init(|| {
                // A locked mutex may stay locked for ever: then the value stays where it is.
                if let Ok(mut place) = own.place.try_lock() {
                    drop(place.value.take());
                }
                Box::new(Self::new(own.fresh))
            });
        }
        own
    }
}

impl<T> Deref for Inside<'_, T> {
    type Target = T;
    #[expect(clippy::expect_used, reason = "the value is there until the drop")]
    fn deref(&self) -> &T {
        self.value.as_deref().expect("inside")
    }
}

impl<T> DerefMut for Inside<'_, T> {
    #[expect(clippy::expect_used, reason = "the value is there until the drop")]
    fn deref_mut(&mut self) -> &mut T {
        self.value.as_deref_mut().expect("inside")
    }
}

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        let mut place = self.turnstile.place();
        place.value = self.value.take();
        if place.impatient > 0 {
            // It may not be the first to wake.
            self.turnstile.left.notify_all();
        } else if place.waiting > 0 {
            self.turnstile.left.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn in_a_minute() -> Deadline {
        Deadline::after(Duration::from_secs(60))
    }

    #[test]
    fn no_update_is_lost_between_threads() {
        let turnstile = Turnstile::new(|| 0u64);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2_000 {
                        *turnstile.enter(in_a_minute()).expect("within a minute") += 1;
                    }
                });
            }
        });
        assert_eq!(*turnstile.try_enter().expect("free"), 8_000);
    }

    #[test]
    fn a_wait_ends_with_its_deadline_and_a_try_at_once() {
        let turnstile = Turnstile::new(|| ());
        let inside = turnstile.try_enter().expect("free");
        assert!(turnstile.enter(Deadline::after(Duration::from_millis(1))).is_none());
        assert!(turnstile.try_enter().is_none());
        drop(inside);
        assert!(turnstile.try_enter().is_some());
    }

    #[test]
    fn who_has_waited_for_long_goes_before_newcomers() {
        let turnstile = Turnstile::new(|| 0_u32);
        let inside = turnstile.try_enter().expect("free");
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| *turnstile.enter(in_a_minute()).expect("at last"));
            // Let it wait, and wake it up in vain until its patience is over.
            while turnstile.place().impatient == 0 {
                turnstile.left.notify_all();
                std::thread::yield_now();
            }
            turnstile.place().value = Some(Box::new(7));
            assert!(turnstile.try_enter().is_none(), "it is for the one who waits");
            assert!(turnstile.enter(Deadline::after(Duration::ZERO)).is_none());
            turnstile.left.notify_all();
            assert_eq!(waiting.join().expect("no panic"), 7);
        });
        drop(inside);
        assert!(turnstile.try_enter().is_some());
    }

    #[test]
    fn a_panic_inside_leaves_the_turnstile_usable() {
        let turnstile = Turnstile::new(|| 7u8);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _inside = turnstile.try_enter().expect("free");
            panic!("on purpose");
        }));
        assert!(outcome.is_err());
        assert_eq!(*turnstile.try_enter().expect("free again"), 7);
    }

    #[test]
    fn another_process_starts_with_a_value_of_its_own_whatever_is_locked() {
        let mut turnstile = Turnstile::new(|| 0_u8);
        turnstile.generation = turnstile.generation.wrapping_sub(1);
        let locked_for_ever = turnstile.place();
        *turnstile.enter(in_a_minute()).expect("a child's own") = 9;
        assert_eq!(*turnstile.try_enter().expect("free"), 9, "it keeps it");
        assert_eq!(locked_for_ever.value.as_deref(), Some(&0), "it was out of reach");
    }

    #[test]
    fn another_process_lets_go_of_its_parents_value() {
        let mut turnstile = Turnstile::new(|| 0_u8);
        turnstile.generation = turnstile.generation.wrapping_sub(1);
        drop(turnstile.try_enter().expect("a child's own"));
        assert!(turnstile.place().value.is_none());
    }
}
