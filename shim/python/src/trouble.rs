//! What goes wrong, as Python sees it: `KvdError` with a code, `ValueError` for arguments, and never a panic.

use std::any::Any;
use std::error::Error;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kvd_client::ClientError;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyValueError};
use pyo3::prelude::*;

create_exception!(
    infera_kvd,
    KvdError,
    PyException,
    "What kept the daemon from doing what it was asked for.\n\n\
     `code` is a stable word: `not_connected`, `disconnected`, `deadline`, `protocol`, `mapping`, `no_arena`, \
     `stale_epoch`, `stale_session`, a refusal's reason, a word of the daemon (`busy`, `unknown_op`, ...), `closed` for a \
     closed client, or `internal_error`."
);

/// An error with its code.
pub(crate) fn error(py: Python<'_>, code: &str, message: String) -> PyErr {
    let error = KvdError::new_err(message);
    match error.value(py).setattr("code", code) {
        Ok(()) => error,
        Err(trouble) => trouble,
    }
}

/// The client's error as an exception.
pub(crate) fn raised(py: Python<'_>, error: &ClientError) -> PyErr {
    match error {
        ClientError::Argument { .. } => PyValueError::new_err(said(error)),
        _ => self::error(py, error.code(), said(error)),
    }
}

/// The error and what caused it, in one line.
pub(crate) fn said(error: &ClientError) -> String {
    let mut line = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        // Writing to a string cannot fail.
        let _written = write!(line, ": {deeper}");
        cause = deeper.source();
    }
    line
}

/// Runs `work` without the interpreter's lock. A panic, which is a bug of ours, becomes a `KvdError`: Python programs
/// do not expect anything that is not an `Exception`.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> PyResult<T> {
    py.detach(|| catch_unwind(AssertUnwindSafe(work))).map_err(|panic| {
        error(py, "internal_error", format!("a bug of infera_kvd: {}", words_of(panic.as_ref())))
    })
}

fn words_of(panic: &(dyn Any + Send)) -> &str {
    let literal = panic.downcast_ref::<&str>().copied();
    literal.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("a panic")
}
