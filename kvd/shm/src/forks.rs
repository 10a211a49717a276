//! Noticing forks. A child has its parent's memory but only one of its threads, so whatever another thread was
//! changing, or had locked, is lost to the child. Who may end up in a forked process compares generations before
//! touching a lock that its parent made.

#![expect(unsafe_code, reason = "pthread_atfork is a C function")]

use std::sync::Once;

use crate::sync::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// How many forks lie between this process and the one that first asked: no two processes of one line of descent have
/// the same. Costs no system call. Children that are made without `fork`, by a bare `clone`, are not noticed.
pub fn generation() -> u32 {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handler is a function of this library that takes nothing and cannot unwind.
        let refused = unsafe { libc::pthread_atfork(None, None, Some(count)) };
        assert!(refused == 0, "no memory to notice forks with");
    });
    // Relaxed: it changes only while a process has one thread.
    GENERATION.load(Ordering::Relaxed)
}

extern "C" fn count() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}
