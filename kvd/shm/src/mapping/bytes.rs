//! Copies between the arena and this process's own memory, and single words of the arena.

#![expect(unsafe_code, reason = "copies and atomics at raw addresses of the mapping")]

use super::Mapping;
use crate::copy::{Method, copy};
use crate::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};

impl Mapping {
    /// Copies `from` to the arena, the fastest way for its length. When it returns, every byte is
    /// visible to whoever sees a later store of this thread, whatever instructions were used.
    pub fn copy_in(&self, offset: u64, from: &[u8]) {
        self.copy_in_by(Method::to_copy_in(from.len()), offset, from);
    }

    /// Copies arena bytes out, the fastest way for their length. If another process writes them
    /// meanwhile, the result is any mix of old and new bytes.
    pub fn copy_out(&self, offset: u64, to: &mut [u8]) {
        self.copy_out_by(Method::to_copy_out(to.len()), offset, to);
    }

    /// As [`Self::copy_in`], by a given method: for measuring.
    pub fn copy_in_by(&self, method: Method, offset: u64, from: &[u8]) {
        let start = self.writable(offset, from.len());
        let to = self.region.at(start, from.len());
        // SAFETY: `to` is valid for `from.len()` bytes (checked by `at`) as long as `self` lives;
        // `from` is a slice, and no slice overlaps the arena because none is ever made of it.
        unsafe { copy(method, to.as_ptr(), from.as_ptr(), from.len()) }
    }

    /// As [`Self::copy_out`], by a given method: for measuring.
    pub fn copy_out_by(&self, method: Method, offset: u64, to: &mut [u8]) {
        let start = self.readable(offset, to.len());
        let from = self.region.at(start, to.len());
        // SAFETY: `from` is valid for `to.len()` bytes (checked by `at`) as long as `self` lives;
        // `to` is a slice, and no slice overlaps the arena because none is ever made of it.
        unsafe { copy(method, to.as_mut_ptr(), from.as_ptr(), to.len()) }
    }

    /// The aligned word at `offset`, little-endian in memory.
    ///
    /// # Panics
    /// If `offset` is not a multiple of four.
    pub(crate) fn word(&self, offset: u64) -> &AtomicU32 {
        let at = self.region.at(self.readable(offset, size_of::<u32>()), size_of::<u32>());
        #[expect(clippy::cast_ptr_alignment, reason = "asserted on the next line")]
        let at = at.as_ptr().cast::<AtomicU32>();
        assert!(at.is_aligned(), "word at {offset} is not aligned");
        // SAFETY: four mapped bytes (checked by `at`), aligned, alive as long as `self`; this
        // process reaches them only through atomics and through copies that tolerate races. All
        // bit patterns are valid.
        unsafe { &*at }
    }

    /// The aligned word of eight bytes at `offset`, in the processor's byte order.
    ///
    /// # Panics
    /// If `offset` is not a multiple of eight.
    pub(crate) fn long_word(&self, offset: u64) -> &AtomicU64 {
        let at = self.region.at(self.readable(offset, size_of::<u64>()), size_of::<u64>());
        #[expect(clippy::cast_ptr_alignment, reason = "asserted on the next line")]
        let at = at.as_ptr().cast::<AtomicU64>();
        assert!(at.is_aligned(), "word at {offset} is not aligned");
        // SAFETY: eight mapped bytes (checked by `at`), aligned, alive as long as `self`; this
        // process reaches them only through atomics. All bit patterns are valid.
        unsafe { &*at }
    }

    /// Makes the page of the byte at `index` present and writable without changing it, even if
    /// another process is writing it.
    pub(crate) fn touch_byte(&self, index: usize) {
        let at = self.region.at(self.writable(index as u64, 1), 1).as_ptr().cast::<AtomicU8>();
        // SAFETY: one mapped, writable byte (checked by `at` and `writable`), alive as long as
        // `self`.
        let byte = unsafe { &*at };
        byte.fetch_or(0, Ordering::Relaxed);
    }
}
