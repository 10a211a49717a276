//! Every entry passes through here: a panic becomes a status, a failure leaves its text.

#![expect(unsafe_code, reason = "whoever enters vouches for the pointers of its caller")]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::codes::Status;
use crate::failure::Failure;
use crate::foreign::Caller;
use crate::last_error;

/// Runs one call of the ABI.
///
/// # Safety
/// As [`Caller::trusted`], until this returns.
pub(crate) unsafe fn guard(call: impl FnOnce(Caller<'_>) -> Result<(), Failure>) -> Status {
    // SAFETY: our own caller promises it, and for at least as long.
    let caller = unsafe { Caller::trusted() };
    // What a panic could leave half done is behind locks whose contents are valid at every step.
    match catch_unwind(AssertUnwindSafe(|| call(caller))) {
        Ok(Ok(())) => Status::Ok,
        Ok(Err(failure)) => {
            last_error::set(&failure.text);
            failure.status
        }
        Err(payload) => {
            last_error::set(&format!("a defect of the library: {}", message_of(payload.as_ref())));
            Status::Panicked
        }
    }
}

/// What a panic said, if it was text.
fn message_of(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;

    fn run(call: impl FnOnce() -> Result<(), Failure>) -> Status {
        // SAFETY: no pointer is handed to the caller's token.
        unsafe { guard(|_| call()) }
    }

    fn last_text() -> String {
        // SAFETY: the text of this thread, which is not replaced before it is copied.
        let text = unsafe { CStr::from_ptr(last_error::get()) };
        text.to_str().expect("text").to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status() {
        assert_eq!(run(|| panic!("on {}", "purpose")), Status::Panicked);
        assert_eq!(last_text(), "a defect of the library: on purpose");
        assert_eq!(run(|| std::panic::panic_any(7)), Status::Panicked);
        assert_eq!(last_text(), "a defect of the library: a panic");
    }

    #[test]
    fn a_failure_leaves_its_text_and_a_success_leaves_it_alone() {
        assert_eq!(run(|| Err(Failure::argument("a\0b"))), Status::Argument);
        assert_eq!(last_text(), "ab");
        assert_eq!(run(|| Ok(())), Status::Ok);
        assert_eq!(last_text(), "ab");
    }

    #[test]
    fn threads_have_texts_of_their_own() {
        assert_eq!(run(|| Err(Failure::argument("here"))), Status::Argument);
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(last_text(), ""));
        });
        assert_eq!(last_text(), "here");
    }
}
