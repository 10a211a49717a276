//! The text of the latest failure, kept for each thread as C keeps `errno`.

use std::cell::RefCell;
use std::ffi::{CString, c_char};

thread_local! {
    /// Nothing until the first failure.
    static LAST: RefCell<Option<CString>> = const { RefCell::new(None) };
}

/// Remembers `text`, without any zero byte in it. A thread that is ending may have no memory any more.
pub(crate) fn set(text: &str) {
    let text: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    let text = CString::new(text).unwrap_or_default();
    let _ending = LAST.try_with(|last| last.replace(Some(text)));
}

/// What was remembered; valid until this thread's next failure.
pub(crate) fn get() -> *const c_char {
    let empty = c"".as_ptr();
    LAST.try_with(|last| last.borrow().as_ref().map_or(empty, |text| text.as_ptr()))
        .unwrap_or(empty)
}
