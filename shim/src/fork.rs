//! A fork copies one thread and every lock. The registry's is taken across it, so that a child never finds it locked by
//! a thread that it does not have. What else a child has to know, the client notices by the process id.

#![expect(unsafe_code, reason = "pthread_atfork is a C function")]

use std::cell::RefCell;
use std::sync::{MutexGuard, Once};

use crate::registry::{self, Registry};

thread_local! {
    /// The lock, between the two halves of a fork that this thread makes.
    static HELD: RefCell<Option<MutexGuard<'static, Registry>>> = const { RefCell::new(None) };
}

/// Has forks watched from now on. If the system has no memory for that, they are not.
pub(crate) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        // SAFETY: the handlers are functions of this library, take nothing, and cannot unwind.
        let _no_memory = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    });
}

extern "C" fn before() {
    let _ending = HELD.try_with(|held| held.replace(Some(registry::lock())));
}

/// In the parent and in the child.
extern "C" fn after() {
    let _ending = HELD.try_with(RefCell::take);
}
