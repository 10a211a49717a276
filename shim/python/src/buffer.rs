//! Both directions of the buffer protocol. The only unsafe code of this crate.
//!
//! Lending out: [`lend`] fills a `Py_buffer` for bytes of the arena and gives it a share of the right that keeps them in
//! place; [`take_back`] drops that share. As long as any buffer lives, so does the right, whatever becomes of the object it
//! came from. Borrowing: [`Readable`] and [`Writable`] are buffers of others, held while they are copied.

#![expect(unsafe_code, reason = "Py_buffer is a C structure")]

use std::ffi::c_int;
use std::sync::Arc;

use kvd_client::{Foreign, ForeignMut};
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

/// A right to bytes of the arena that can be lent out as a buffer.
pub(crate) trait Lendable: Send + Sync {
    /// Whether a borrower may not write.
    const READ_ONLY: c_int;
    /// Where the bytes are and how many; both stay the same, and valid, as long as the value lives.
    fn place(&self) -> (*mut u8, usize);
}

/// Fills `buffer` with the bytes of `right`, which lives from then on at least until [`take_back`].
///
/// # Safety
/// `buffer` is what CPython handed to the `bf_getbuffer` slot of `exporter`, and the exporter's `bf_releasebuffer` slot
/// calls [`take_back`] for the same type.
pub(crate) unsafe fn lend<R: Lendable>(
    exporter: &Bound<'_, PyAny>,
    right: Arc<R>,
    buffer: *mut ffi::Py_buffer,
    flags: c_int,
) -> PyResult<()> {
    let (start, len) = right.place();
    let len = ffi::Py_ssize_t::try_from(len)?;
    // SAFETY: `buffer` is CPython's to be filled; `start` is valid for `len` bytes as long as `right` lives, of which a
    // share goes into the buffer below. On success CPython keeps the exporter alive as well.
    let filled = unsafe {
        ffi::PyBuffer_FillInfo(buffer, exporter.as_ptr(), start.cast(), len, R::READ_ONLY, flags)
    };
    if filled != 0 {
        return Err(PyErr::fetch(exporter.py()));
    }
    let share = Arc::into_raw(right).cast_mut();
    // SAFETY: filled above. `internal` is the exporter's own field; nobody else touches it.
    unsafe { (*buffer).internal = share.cast() };
    Ok(())
}

/// Takes back the share that [`lend`] put into `buffer`.
///
/// # Safety
/// `buffer` was filled by [`lend`] for the same `R`, and CPython releases it now, which it does once.
pub(crate) unsafe fn take_back<R: Lendable>(buffer: *mut ffi::Py_buffer) {
    // SAFETY: a filled buffer that is being released.
    let share = unsafe { (*buffer).internal };
    if share.is_null() {
        return;
    }
    // SAFETY: made by `Arc::into_raw` of an `Arc<R>` in `lend`; not used again.
    drop(unsafe { Arc::from_raw(share.cast::<R>().cast_const()) });
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
