//! Version, words for numbers, and the latest failure.

#![expect(unsafe_code, reason = "exported by name")]

use std::ffi::{CStr, c_char};
use std::panic::catch_unwind;

use crate::calls::words;
use crate::codes::KVD_ABI_VERSION;
use crate::last_error;

/// The KVD_ABI_VERSION of the library that is linked, to be compared with that of the header.
#[unsafe(no_mangle)]
pub extern "C" fn kvd_abi_version() -> u32 {
    KVD_ABI_VERSION
}

/// The release of the library, such as "0.1.0". Never null; lives as long as the library.
#[unsafe(no_mangle)]
pub extern "C" fn kvd_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// A stable word for a status, such as "not_connected"; "unknown" for other numbers. Never null; lives as long as the
/// library.
#[unsafe(no_mangle)]
pub extern "C" fn kvd_status_name(status: i32) -> *const c_char {
    word(|| words::status(status))
}

/// A stable word for one of enum kvd_miss. As kvd_status_name.
#[unsafe(no_mangle)]
pub extern "C" fn kvd_miss_name(miss: u8) -> *const c_char {
    word(|| words::miss(miss))
}

/// A stable word for one of enum kvd_refusal. As kvd_status_name.
#[unsafe(no_mangle)]
pub extern "C" fn kvd_refusal_name(refusal: u8) -> *const c_char {
    word(|| words::refusal(refusal))
}

/// What was behind the latest status other than KVD_STATUS_OK that this thread got, for people: UTF-8, empty if there
/// was none. Never null. The text is the library's, and lives until this thread's next such status or its end.
#[unsafe(no_mangle)]
pub extern "C" fn kvd_last_error() -> *const c_char {
    catch_unwind(last_error::get).unwrap_or(c"".as_ptr())
}

fn word(of: impl FnOnce() -> &'static CStr + std::panic::UnwindSafe) -> *const c_char {
    catch_unwind(of).unwrap_or(c"unknown").as_ptr()
}
