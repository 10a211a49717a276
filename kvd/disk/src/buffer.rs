//! Memory for direct I/O that is not part of the arena: journal batches, snapshots, probes.

#![expect(unsafe_code, reason = "an allocation with an alignment of its own")]

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer in bytes: no device asks for more than a page.
pub const ALIGNMENT: usize = 4096;

/// A byte vector of fixed length whose first byte is 4 KiB-aligned.
///
/// The bytes are behind a raw pointer, not in a `Vec`, because the kernel writes them while the
/// value waits in a table of operations, and moving a `Vec` promises that nobody else does.
pub struct AlignedBuffer {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the buffer owns its memory alone; moving it to another thread moves that right.
unsafe impl Send for AlignedBuffer {}
// SAFETY: `&AlignedBuffer` only reads.
unsafe impl Sync for AlignedBuffer {}

impl AlignedBuffer {
    /// `len` zero bytes.
    ///
    /// # Panics
    /// If `len` is more than an address can reach. A lack of memory aborts.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let base = unsafe { alloc_zeroed(layout) };
        let Some(base) = NonNull::new(base) else { handle_alloc_error(layout) };
        Self { base, len }
    }

    /// A copy.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    pub(crate) fn address(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Whole pages, at least one: the end is no odd place for a device either.
    fn layout(len: usize) -> Layout {
        let whole = len.max(1).checked_next_multiple_of(ALIGNMENT);
        let layout = whole.and_then(|bytes| Layout::from_size_align(bytes, ALIGNMENT).ok());
        let Some(layout) = layout else { panic!("a buffer of {len} bytes") };
        layout
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `len` bytes from `base` are allocated and initialised, and ours while `self` lives;
        // the kernel is done with them, because whoever can name `self` got it back from an engine.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only way to them.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        // SAFETY: `base` came from the allocator with the layout that `len` gives.
        unsafe { dealloc(self.base.as_ptr(), Self::layout(self.len)) };
    }
}

impl std::fmt::Debug for AlignedBuffer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zeroed_and_as_long_as_asked() {
        for len in [0, 1, 511, 4096, 4097, 1 << 20] {
            let mut buffer = AlignedBuffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.address().addr() % ALIGNMENT, 0);
            assert!(buffer.iter().all(|byte| *byte == 0));
            buffer.fill(7);
            assert_eq!(AlignedBuffer::copy_of(&buffer).to_vec(), vec![7; len]);
        }
    }
}
