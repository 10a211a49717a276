//! Memory of this process that Rust knows nothing about: a Python buffer, a tensor, an area of a C caller.
//!
//! Others may write it while it is being copied, as they may write the arena, so it is not borrowed as a slice either; and
//! it may even *be* arena memory, when one block is copied to another.

#![expect(unsafe_code, reason = "copies at addresses that a caller vouches for")]

use std::marker::PhantomData;

use super::Mapping;
use crate::copy::{Method, copy};

/// Bytes to copy from.
#[derive(Clone, Copy, Debug)]
pub struct Foreign<'a> {
    start: *const u8,
    len: usize,
    owner: PhantomData<&'a [u8]>,
}

/// Bytes to copy to.
#[derive(Debug)]
pub struct ForeignMut<'a> {
    start: *mut u8,
    len: usize,
    owner: PhantomData<&'a mut [u8]>,
}

// SAFETY: an address that may be read from any thread: whoever made it promised that for `'a`.
unsafe impl Send for Foreign<'_> {}
// SAFETY: as for `Send`; there is nothing in it that changes.
unsafe impl Sync for Foreign<'_> {}
// SAFETY: an address that may be written from any thread: whoever made it promised that for `'a`.
unsafe impl Send for ForeignMut<'_> {}
// SAFETY: a shared reference to it can do nothing but ask for its length.
unsafe impl Sync for ForeignMut<'_> {}

impl Foreign<'_> {
    /// Vouches for `len` bytes at `start`.
    ///
    /// # Safety
    /// They must stay readable, from any thread, as long as the value lives. They may change
    /// meanwhile; what is copied then is any mix of old and new bytes. `start` may be anything if
    /// `len` is 0.
    #[must_use]
    pub unsafe fn new(start: *const u8, len: usize) -> Self {
        Self { start, len, owner: PhantomData }
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies the bytes that start `at` bytes from the beginning, as many as `to` takes.
    ///
    /// # Panics
    /// If they go past the end.
    pub(crate) fn copy_part_to(self, at: usize, to: &mut [u8]) {
        let fits = at.checked_add(to.len()).is_some_and(|end| end <= self.len);
        assert!(fits, "copying {} bytes at {at} of {}", to.len(), self.len);
        let from = self.start.wrapping_add(at);
        // SAFETY: `from` was vouched for and has `to.len()` bytes behind it; `to` is an exclusive
        // slice, which nothing that others may write overlaps.
        unsafe { copy(Method::to_copy_out(to.len()), to.as_mut_ptr(), from, to.len()) }
    }
}

impl ForeignMut<'_> {
    /// Vouches for `len` bytes at `start`.
    ///
    /// # Safety
    /// They must stay writable, from any thread, as long as the value lives, and no Rust reference to
    /// them may exist meanwhile. `start` may be anything if `len` is 0.
    #[must_use]
    pub unsafe fn new(start: *mut u8, len: usize) -> Self {
        Self { start, len, owner: PhantomData }
    }

    /// How many bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<'a> From<&'a [u8]> for Foreign<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self { start: bytes.as_ptr(), len: bytes.len(), owner: PhantomData }
    }
}

impl<'a> From<&'a mut [u8]> for ForeignMut<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self { start: bytes.as_mut_ptr(), len: bytes.len(), owner: PhantomData }
    }
}

impl Mapping {
    /// As [`Self::copy_in`], from memory that may change meanwhile.
    pub fn copy_in_foreign(&self, offset: u64, from: Foreign<'_>) {
        let start = self.writable(offset, from.len);
        let to = self.region.at(start, from.len).as_ptr();
        // SAFETY: `to` is valid for `from.len` bytes (checked by `at`) as long as `self` lives, and
        // `from` was vouched for.
        unsafe { copy_or_move(Method::to_copy_in(from.len), to, from.start, from.len) }
    }

    /// Whether any of these bytes are part of this mapping.
    pub(crate) fn overlaps(&self, from: Foreign<'_>) -> bool {
        let arena = self.region.at(0, self.region.bytes()).as_ptr().addr();
        let (start, end) = (from.start.addr(), from.start.addr().saturating_add(from.len));
        start < arena + self.region.bytes() && arena < end
    }

    /// As [`Self::copy_out`], to memory that others may be using.
    pub fn copy_out_foreign(&self, offset: u64, to: &ForeignMut<'_>) {
        let start = self.readable(offset, to.len);
        let from = self.region.at(start, to.len).as_ptr();
        // SAFETY: `from` is valid for `to.len` bytes (checked by `at`) as long as `self` lives, and
        // `to` was vouched for.
        unsafe { copy_or_move(Method::to_copy_out(to.len), to.start, from, to.len) }
    }
}

/// # Safety
/// `from` must be readable and `to` writable for `len` bytes. They may overlap.
unsafe fn copy_or_move(method: Method, to: *mut u8, from: *const u8, len: usize) {
    if len == 0 {
        return;
    }
    if to.addr().abs_diff(from.addr()) < len {
        // SAFETY: as our caller promises.
        unsafe { std::ptr::copy(from, to, len) }
    } else {
        // SAFETY: as our caller promises; the ranges are at least `len` bytes apart.
        unsafe { copy(method, to, from, len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::{Arena, ArenaConfig};
    use crate::numa::NumaPolicy;

    /// Long enough for every way to copy.
    const LEN: usize = 100_000;

    fn arena() -> Arena {
        let numa = NumaPolicy::Interleave;
        let config = ArenaConfig { bytes: 1 << 20, hugetlb: false, numa, pin: false };
        Arena::create(config).unwrap()
    }

    fn pattern() -> Vec<u8> {
        (0_u8..251).cycle().take(LEN).collect()
    }

    #[test]
    fn bytes_go_in_and_come_out() {
        let (arena, wanted) = (arena(), pattern());
        arena.mapping().copy_in_foreign(77, wanted.as_slice().into());
        let mut found = vec![0; LEN];
        arena.mapping().copy_out_foreign(77, &found.as_mut_slice().into());
        assert!(found == wanted);
        arena.mapping().copy_out_foreign(78, &found.as_mut_slice().into());
        assert!(found != wanted, "a shifted copy is another one");
    }

    #[test]
    fn arena_memory_may_overlap_itself_in_both_directions() {
        let (arena, wanted) = (arena(), pattern());
        let mapping = arena.mapping();
        let mut found = vec![0; LEN];
        for (from, to) in [(1000, 1700), (1700, 1000), (1000, 1000), (0, LEN as u64)] {
            mapping.copy_in_foreign(from, wanted.as_slice().into());
            let block = mapping.slice(from, LEN);
            // SAFETY: `block` keeps its bytes mapped.
            let source = unsafe { Foreign::new(block.as_ptr(), LEN) };
            mapping.copy_in_foreign(to, source);
            mapping.copy_out_foreign(to, &found.as_mut_slice().into());
            assert!(found == wanted, "{from} to {to}");
        }
    }

    #[test]
    fn nothing_may_be_anywhere() {
        let arena = arena();
        // SAFETY: no bytes.
        let source = unsafe { Foreign::new(std::ptr::null(), 0) };
        // SAFETY: no bytes.
        let target = unsafe { ForeignMut::new(std::ptr::null_mut(), 0) };
        assert!(source.is_empty() && target.is_empty());
        arena.mapping().copy_in_foreign(1 << 20, source);
        arena.mapping().copy_out_foreign(1 << 20, &target);
    }
}
