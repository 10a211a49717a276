//! Reserved room as a writable buffer, until it is committed or cancelled.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::{Lendable, Readable, lend};
use crate::trouble::{detached, raised};

/// Room for one block: a writable buffer of `nbytes` bytes in the arena (`memoryview(ticket)`,
/// `numpy.frombuffer(ticket, dtype)`, `torch.frombuffer(ticket, dtype=...)`), without a copy.
///
/// Fill it, delete what you filled it through, and commit it with `Client.commit`. Its first bytes may hold anything.
/// Committing or cancelling needs it for itself: while a buffer of it lives or a `write` is under way, both raise
/// `BufferError` and change nothing, so that no array is left that would write into somebody else's block. Afterwards the
/// ticket gives out no buffers any more. A ticket that is deleted gives its room back.
#[pyclass(frozen, module = "infera_kvd")]
#[derive(Debug)]
pub(crate) struct Ticket {
    nbytes: usize,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    /// Every buffer and every write has a share.
    Open(Arc<kvd_client::Ticket>),
    Committed,
    Cancelled,
}

impl From<kvd_client::Ticket> for Ticket {
    fn from(ticket: kvd_client::Ticket) -> Self {
        let nbytes = ticket.capacity();
        Self { nbytes, state: Mutex::new(State::Open(Arc::new(ticket))) }
    }
}

impl State {
    fn refusal(&self) -> &'static str {
        match self {
            Self::Open(_) => "the ticket's buffers are still in use: delete them first",
            Self::Committed => "the ticket was committed",
            Self::Cancelled => "the ticket was cancelled",
        }
    }
}

impl Ticket {
    /// Takes the room out for a commit.
    ///
    /// # Errors
    /// `BufferError` if it is in use, `ValueError` if it is gone.
    pub(crate) fn take(&self) -> PyResult<kvd_client::Ticket> {
        self.take_as(State::Committed)
    }

    /// Undoes a [`Ticket::take`] that led to nothing.
    pub(crate) fn put_back(&self, ticket: kvd_client::Ticket) {
        *self.state() = State::Open(Arc::new(ticket));
    }

    fn take_as(&self, end: State) -> PyResult<kvd_client::Ticket> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, end) {
            State::Open(shared) => Arc::try_unwrap(shared).map_err(|shared| {
                *state = State::Open(shared);
                PyBufferError::new_err(state.refusal())
            }),
            gone => {
                *state = gone;
                Err(PyValueError::new_err(state.refusal()))
            }
        }
    }

    fn share(&self) -> Result<Arc<kvd_client::Ticket>, &'static str> {
        match &*self.state() {
            State::Open(ticket) => Ok(Arc::clone(ticket)),
            gone => Err(gone.refusal()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lendable for kvd_client::Ticket {
    const READ_ONLY: c_int = 0;

    fn place(&self) -> (*mut u8, usize) {
        (self.as_mut_ptr(), self.capacity())
    }
}

#[pymethods]
impl Ticket {
    /// How many bytes were reserved.
    #[getter]
    fn nbytes(&self) -> usize {
        self.nbytes
    }

    /// Copies a contiguous buffer into the room, `offset` bytes from its beginning, past the processor's cache if it is
    /// large, without the interpreter's lock.
    ///
    /// Raises:
    ///     ValueError: it does not fit (nothing is written), or the ticket was committed or cancelled.
    ///     BufferError: the buffer is not contiguous.
    ///     TypeError: it is no buffer.
    #[pyo3(signature = (buffer, offset=0))]
    fn write(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>, offset: usize) -> PyResult<()> {
        let ticket = self.share().map_err(PyValueError::new_err)?;
        let source = Readable::of(buffer)?;
        let bytes = source.bytes();
        detached(py, move || ticket.write_foreign(offset, bytes))?
            .map_err(|error| raised(py, &error))
    }

    /// Gives the room back. Cancelling twice does nothing.
    ///
    /// Raises:
    ///     BufferError: a buffer of the ticket is still in use.
    ///     ValueError: the ticket was committed.
    fn cancel(&self) -> PyResult<()> {
        if matches!(*self.state(), State::Cancelled) {
            return Ok(());
        }
        self.take_as(State::Cancelled).map(drop)
    }

    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self) -> String {
        let state = match &*self.state() {
            State::Open(_) => "open",
            State::Committed => "committed",
            State::Cancelled => "cancelled",
        };
        format!("Ticket({} bytes, {state})", self.nbytes)
    }

    #[expect(unsafe_code, reason = "a slot of the buffer protocol")]
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        buffer: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let ticket = slf.get().share().map_err(PyBufferError::new_err)?;
        // SAFETY: this is the slot.
        unsafe { lend(slf.py(), ticket, buffer, flags) }
    }

    /// Never called, as a buffer's owner is another object. But where a type has this slot, numpy keeps the buffer; else it
    /// would keep only the ticket, which can be committed.
    #[expect(unsafe_code, reason = "PyO3 asks for it")]
    unsafe fn __releasebuffer__(&self, _buffer: *mut ffi::Py_buffer) {}
}

/// Takes the rooms of all tickets, or of none.
pub(crate) fn take_all(
    items: &[(Bound<'_, Ticket>, Bound<'_, PyBytes>)],
) -> PyResult<Vec<kvd_client::Ticket>> {
    let mut taken = Vec::with_capacity(items.len());
    for (ticket, _key) in items {
        match ticket.get().take() {
            Ok(room) => taken.push(room),
            Err(error) => {
                for ((ticket, _key), room) in items.iter().zip(taken) {
                    ticket.get().put_back(room);
                }
                return Err(error);
            }
        }
    }
    Ok(taken)
}
