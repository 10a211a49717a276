//! Every interleaving of two wakers and an owner that sleeps, by the model checker.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p kvd-disk --release --test loom_sleep --target-dir target/loom`
//!
//! Each waker leaves a piece of work and wakes; the owner must find both without ever sleeping through
//! one. The broken twin looks for work before it uses up the wake.

#![cfg(loom)]
#![expect(clippy::unwrap_used, reason = "test code")]

use kvd_disk::sleep_word::SleepWord;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

const WAKERS: u32 = 2;

#[derive(Default)]
struct Shared {
    word: SleepWord,
    rings: AtomicU32,
    work: AtomicU32,
    wakers_done: AtomicU32,
}

impl Shared {
    fn wake(&self) {
        self.work.fetch_add(1, Ordering::Relaxed);
        if self.word.notify() {
            self.rings.fetch_add(1, Ordering::Relaxed);
        }
        self.wakers_done.fetch_add(1, Ordering::Release);
    }

    /// Waits for a ring, as from a descriptor that counts them.
    fn sleep(&self) {
        loop {
            let wakers_done = self.wakers_done.load(Ordering::Acquire);
            if self.rings.swap(0, Ordering::Relaxed) > 0 {
                return;
            }
            assert!(wakers_done < WAKERS, "slept through a wake");
            thread::yield_now();
        }
    }
}

fn run(looks_too_early: bool) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(move || {
        let shared = Arc::new(Shared::default());
        let wakers: Vec<_> = (0..WAKERS)
            .map(|_| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.wake())
            })
            .collect();
        let mut found = 0;
        while found < WAKERS {
            if looks_too_early {
                found = shared.work.load(Ordering::Relaxed);
                shared.word.get_up();
            } else {
                shared.word.get_up();
                found = shared.work.load(Ordering::Relaxed);
            }
            if found < WAKERS && shared.word.fall_asleep() {
                shared.sleep();
            }
        }
        for waker in wakers {
            waker.join().unwrap();
        }
    });
}

#[test]
fn no_wake_is_slept_through() {
    run(false);
}

#[test]
#[should_panic(expected = "slept through a wake")]
fn negative_control_looking_before_getting_up_is_caught() {
    run(true);
}
