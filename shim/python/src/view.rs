//! A fetched block as a read-only buffer.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::buffer::{Lendable, Writable, lend};
use crate::trouble::detached;

/// One block, in place: a read-only buffer of bytes (`memoryview(view)`, `numpy.frombuffer(view, dtype)`,
/// `torch.frombuffer(view, dtype=...)`), without a copy.
///
/// While the view or any buffer of it lives, the daemon neither moves nor reuses the bytes, even if the key is
/// overwritten, evicted or cleared meanwhile; and they stay readable if the client is closed or the daemon ends. The lease
/// goes back when the view has been released or deleted *and* its last buffer is gone.
///
/// A view works as a context manager, which releases it.
///
/// The bytes are shared memory: a process that misbehaves can change them. Do not write through a view with foreign means.
#[pyclass(frozen, module = "infera_kvd")]
#[derive(Debug)]
pub(crate) struct View {
    nbytes: usize,
    /// `None` once released.
    lease: Mutex<Option<Arc<kvd_client::View>>>,
}

impl From<kvd_client::View> for View {
    fn from(view: kvd_client::View) -> Self {
        Self { nbytes: view.len(), lease: Mutex::new(Some(Arc::new(view))) }
    }
}

impl View {
    fn lease(&self) -> Option<Arc<kvd_client::View>> {
        self.lease.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Lendable for kvd_client::View {
    const READ_ONLY: c_int = 1;

    fn place(&self) -> (*mut u8, usize) {
        (self.as_ptr().cast_mut(), self.len())
    }
}

#[pymethods]
impl View {
    /// Length of the block in bytes. May be 0.
    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Copies the block to a writable, contiguous buffer of exactly `nbytes` bytes, past the processor's cache if it is
    /// large, without the interpreter's lock.
    ///
    /// Raises:
    ///     ValueError: the buffer has another length, or the view was released.
    ///     BufferError: the buffer is read-only or not contiguous.
    ///     TypeError: it is no buffer.
    fn copy_to(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<()> {
        let lease = self.lease().ok_or_else(|| PyValueError::new_err(RELEASED))?;
        let target = Writable::of(buffer)?;
        if target.len() != self.nbytes {
            let message = format!("a block of {} bytes to {} bytes", self.nbytes, target.len());
            return Err(PyValueError::new_err(message));
        }
        let bytes = target.bytes();
        detached(py, move || lease.copy_part_to(0, &bytes))
    }

    /// Gives up the view: no new buffers from now on. The lease goes back at once, or with the last buffer that is still in
    /// use. Releasing twice does nothing.
    fn release(&self) {
        let lease = self.lease.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(lease);
    }

    fn __enter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, _exception: &Bound<'_, PyAny>) {
        self.release();
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let state = if self.lease().is_some() { "" } else { ", released" };
        format!("View({} bytes{state})", self.nbytes)
    }

    #[expect(unsafe_code, reason = "a slot of the buffer protocol")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        buffer: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let lease = slf.get().lease().ok_or_else(|| PyBufferError::new_err(RELEASED))?;
        // SAFETY: this is the slot.
        unsafe { lend(slf.py(), lease, buffer, flags) }
    }

    /// Never called, as a buffer's owner is another object. But where a type has this slot, numpy keeps the buffer; else it
    /// would keep only the view, which can be released.
    #[expect(unsafe_code, reason = "PyO3 asks for it")]
    unsafe fn __releasebuffer__(&self, _buffer: *mut ffi::Py_buffer) {}
}

const RELEASED: &str = "the view was released";
