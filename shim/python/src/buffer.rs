//! Both directions of the buffer protocol.
//!
//! Lending out: [`lend`] fills a `Py_buffer` for bytes of the arena. Its owner, as CPython sees it, is not the view or the
//! ticket but a [`Hold`] of its own with a share of the right that keeps the bytes in place. As long as anything lives that
//! was made of the buffer, so does the right, whatever becomes of the object it came from. That holds for `torch` too,
//! which releases a buffer at once and then relies on its owner alone.
//!
//! Borrowing: [`Readable`] and [`Writable`] are buffers of others, held while they are copied.

#![expect(unsafe_code, reason = "Py_buffer is a C structure")]

use std::ffi::c_int;
use std::sync::Arc;

use kvd_client::{Foreign, ForeignMut};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A right to bytes of the arena that can be lent out as a buffer.
pub(crate) trait Lendable: Send + Sync + 'static {
    /// Whether a borrower may not write.
    const READ_ONLY: c_int;
    /// Where the bytes are and how many; both stay the same, and valid, as long as the value lives.
    fn place(&self) -> (*mut u8, usize);
}

/// The owner of one buffer: a share of the right to its bytes.
#[pyclass(frozen, module = "infera_kvd._native")]
pub(crate) struct Hold {
    _right: Arc<dyn Send + Sync>,
}

/// Fills `buffer` with the bytes of `right`, which lives from then on at least as long as the buffer and its owner.
///
/// # Safety
/// `buffer` is what CPython handed to a `bf_getbuffer` slot to be filled.
pub(crate) unsafe fn lend<R: Lendable>(
    py: Python<'_>,
    right: Arc<R>,
    buffer: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let (start, len) = right.place();
    let len = ffi::Py_ssize_t::try_from(len)?;
    let hold = Bound::new(py, Hold { _right: right })?;
    // SAFETY: `buffer` is CPython's to be filled; `start` is valid for `len` bytes as long as the right lives, hence as
    // long as `hold`, to which the filled buffer counts as a reference.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(buffer, hold.as_ptr(), start.cast(), len, R::READ_ONLY, flags)
    };
    if filled == 0 { Ok(()) } else { Err(PyErr::fetch(py)) }
}

/// A buffer to copy from.
pub(crate) struct Readable(PyUntypedBuffer);

impl Readable {
    /// # Errors
    /// `TypeError` if it has no buffer, `BufferError` if its bytes are scattered.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        contiguous(object).map(Self)
    }

    pub(crate) fn bytes(&self) -> Foreign<'_> {
        // SAFETY: a contiguous buffer stays where it is, and readable, until it is released, which is when `self` goes.
        // Python code may write it meanwhile, which `Foreign` allows for.
        unsafe { Foreign::new(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// A buffer to copy to.
pub(crate) struct Writable(PyUntypedBuffer);

impl Writable {
    /// # Errors
    /// `TypeError` if it has no buffer, `BufferError` if it is read-only or its bytes are scattered.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        if buffer.readonly() {
            return Err(PyBufferError::new_err("a buffer to copy to must be writable"));
        }
        Ok(Self(buffer))
    }

    pub(crate) fn bytes(&self) -> ForeignMut<'_> {
        // SAFETY: as in `Readable::bytes`, and writable. No Rust reference to a buffer's bytes is ever made here.
        unsafe { ForeignMut::new(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len_bytes()
    }
}

fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let buffer = PyUntypedBuffer::get(object)?;
    if buffer.is_c_contiguous() {
        Ok(buffer)
    } else {
        Err(PyBufferError::new_err("a buffer must be contiguous (in C's order)"))
    }
}
