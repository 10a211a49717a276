//! The arena's memory, registered with the ring piece by piece as it is touched.
//!
//! Registered pages are looked up once, not once an I/O. The kernel takes at most 1 GiB a piece,
//! and would touch what is not touched yet, so pieces follow the touch. A refusal (locked memory
//! is limited) ends it: the rest of the arena is used the plain way.

#![expect(unsafe_code, reason = "gives the kernel addresses to keep")]

use std::sync::Arc;

use io_uring::IoUring;
use kvd_shm::mapping::Mapping;

/// Bytes a piece, at most.
const PIECE_BYTES: usize = 1 << 30;

/// Pieces, at most: the kernel's own bound.
const PIECES_MAX: usize = 1 << 14;

/// How much of the arena the ring knows.
#[derive(Debug)]
pub(super) struct Registered {
    /// Registered memory must stay mapped.
    mapping: Arc<Mapping>,
    /// Whole pieces from the start on.
    pieces: usize,
    is_refused: bool,
}

impl Registered {
    /// Makes the table; nothing is in it yet. `Err`: what the kernel said.
    pub(super) fn new(uring: &IoUring, mapping: Arc<Mapping>) -> Result<Self, String> {
        let total = Self::total(&mapping);
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let table = vec![nothing; total.div_ceil(PIECE_BYTES)];
        // SAFETY: the table names no memory.
        let made = unsafe { uring.submitter().register_buffers(&table) };
        made.map_err(|error| format!("fixed_buffers: {error}"))?;
        Ok(Self { mapping, pieces: 0, is_refused: false })
    }

    /// Bytes that pieces may cover.
    fn total(mapping: &Mapping) -> usize {
        let most = PIECE_BYTES.saturating_mul(PIECES_MAX);
        usize::try_from(mapping.bytes()).unwrap_or(most).min(most)
    }

    /// Registers every piece that lies in the first `touched` bytes. How many bytes are registered.
    pub(super) fn grow(&mut self, uring: &IoUring, touched: u64) -> u64 {
        let total = Self::total(&self.mapping);
        let touched = usize::try_from(touched).unwrap_or(total).min(total);
        while !self.is_refused && self.end() < total {
            let start = self.end();
            let end = start.saturating_add(PIECE_BYTES).min(total);
            if end > touched {
                break;
            }
            let len = end.saturating_sub(start);
            let base = self.mapping.slice(start as u64, len).as_ptr().cast_mut();
            let piece = [libc::iovec { iov_base: base.cast(), iov_len: len }];
            let number = u32::try_from(self.pieces).unwrap_or(u32::MAX);
            // SAFETY: `len` bytes from `base` are mapped, and stay so as long as `self.mapping` is
            // held: the ring's owner drops the ring first.
            let set = unsafe { uring.submitter().register_buffers_update(number, &piece, None) };
            match set {
                Ok(()) => self.pieces = self.pieces.saturating_add(1),
                Err(_refused) => self.is_refused = true,
            }
        }
        self.end() as u64
    }

    fn end(&self) -> usize {
        self.pieces.saturating_mul(PIECE_BYTES).min(Self::total(&self.mapping))
    }

    /// The number of the piece that holds all of the bytes, if one does.
    pub(super) fn piece_of(&self, address: *const u8, len: usize) -> Option<u16> {
        if self.pieces == 0 {
            return None;
        }
        let start = address.addr().checked_sub(self.mapping.slice(0, 0).as_ptr().addr())?;
        let last = start.checked_add(len)?.checked_sub(1)?;
        if last >= self.end() {
            return None;
        }
        let piece = |at: usize| u16::try_from(at / PIECE_BYTES).ok();
        piece(start).filter(|first| Some(*first) == piece(last))
    }
}
