//! The portable copy: relaxed atomics, eight bytes at a time where the destination is aligned.

#![expect(unsafe_code, reason = "atomics at raw addresses")]

use crate::sync::{AtomicU8, AtomicU64, Ordering};

/// Copies `len` bytes.
///
/// # Safety
/// `from` must be readable and `to` writable for `len` bytes; the ranges must not overlap. Other
/// processes may write either range at the same time.
pub(crate) unsafe fn copy(to: *mut u8, from: *const u8, len: usize) {
    let head = (to.addr().wrapping_neg() % WORD).min(len);
    // Only a common alignment lets whole words be loaded too.
    let words = if from.addr() % WORD == to.addr() % WORD { (len - head) / WORD } else { 0 };
    for index in 0..head {
        // SAFETY: `index < head <= len`.
        unsafe { copy_byte(to, from, index) };
    }
    for word in 0..words {
        // SAFETY: `head + (word + 1) * WORD <= len`, and both addresses are aligned.
        unsafe { copy_word(to, from, head + word * WORD) };
    }
    for index in head + words * WORD..len {
        // SAFETY: `index < len`.
        unsafe { copy_byte(to, from, index) };
    }
}

const WORD: usize = size_of::<u64>();

/// # Safety
/// As [`copy`], for the byte at `index`.
unsafe fn copy_byte(to: *mut u8, from: *const u8, index: usize) {
    let from = from.wrapping_add(index).cast::<AtomicU8>();
    // SAFETY: readable; the atomic is only loaded from.
    let source = unsafe { &*from };
    let to = to.wrapping_add(index).cast::<AtomicU8>();
    // SAFETY: writable.
    let target = unsafe { &*to };
    target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
}

/// # Safety
/// As [`copy`], for the eight bytes at `index`; both addresses must be aligned to eight.
#[expect(clippy::cast_ptr_alignment, reason = "the caller promises the alignment")]
unsafe fn copy_word(to: *mut u8, from: *const u8, index: usize) {
    let from = from.wrapping_add(index).cast::<AtomicU64>();
    // SAFETY: readable and aligned; the atomic is only loaded from.
    let source = unsafe { &*from };
    let to = to.wrapping_add(index).cast::<AtomicU64>();
    // SAFETY: writable and aligned.
    let target = unsafe { &*to };
    target.store(source.load(Ordering::Relaxed), Ordering::Relaxed);
}
