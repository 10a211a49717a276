//! A range of the arena that keeps the mapping alive: what a zero-copy read gives out.

use std::sync::Arc;

use super::{ForeignMut, Mapping};

/// Some bytes of the arena, in place. Holding it keeps the memory *mapped*; only a lease keeps it
/// *unchanged*, and only as far as the other processes behave.
#[derive(Clone, Debug)]
pub struct ArenaSlice {
    mapping: Arc<Mapping>,
    offset: u64,
    len: usize,
}

impl Mapping {
    /// The range as a value of its own.
    #[must_use]
    pub fn slice(self: &Arc<Self>, offset: u64, len: usize) -> ArenaSlice {
        self.readable(offset, len);
        ArenaSlice { mapping: Arc::clone(self), offset, len }
    }
}

impl ArenaSlice {
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
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

    /// Where the bytes start in the arena.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Where the bytes are in this process, valid while `self` or a clone of it lives. Do not make
    /// a Rust reference of it: another process may write there. Whoever holds the right to write the
    /// range may write through it, if the mapping is writable.
    #[must_use]
    pub fn as_ptr(&self) -> *const u8 {
        self.mapping.region().at(self.mapping.readable(self.offset, self.len), self.len).as_ptr()
    }

    /// Copies the bytes out.
    ///
    /// # Panics
    /// If `to` has another length.
    pub fn copy_to(&self, to: &mut [u8]) {
        assert!(to.len() == self.len, "copying {} bytes to a place of {}", self.len, to.len());
        self.mapping.copy_out(self.offset, to);
    }

    /// Copies bytes in, for those who hold the right to write the range.
    ///
    /// # Panics
    /// If `from` has another length, or the mapping is read-only.
    pub fn copy_from(&self, from: &[u8]) {
        assert!(from.len() == self.len, "copying {} bytes to a place of {}", from.len(), self.len);
        self.mapping.copy_in(self.offset, from);
    }

    /// Copies the bytes that start `at` bytes from the beginning out, as many as `to` takes.
    ///
    /// # Panics
    /// If they go past the end.
    pub fn copy_part_to(&self, at: usize, to: &ForeignMut<'_>) {
        let fits = at.checked_add(to.len()).is_some_and(|end| end <= self.len);
        assert!(fits, "copying {} bytes at {at} of {}", to.len(), self.len);
        self.mapping.copy_out_foreign(self.offset + at as u64, to);
    }

    /// The bytes as a vector of their own.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.copy_to(&mut bytes);
        bytes
    }
}
