//! Packed columns: protocol 2 sends a batch as one little-endian byte string per field.
//!
//! [`Column`] reads one in place, [`ColumnBuf`] grows one for sending and keeps its memory.
//! [`KeyColumn`] is the pair of a length column and the keys' bytes, end to end.

mod keys;

use core::marker::PhantomData;

use crate::malformed::Malformed;

pub use keys::{KeyColumn, KeyColumnBuf, KeyIter};

/// Most keys, leases, tickets or rows in one protocol-2 frame.
pub const KEYS_MAX: usize = 4096;

/// An unsigned integer that can be an item of a column.
pub trait Word: Copy + PartialEq + core::fmt::Debug + 'static {
    /// Bytes per item.
    const BYTES: usize;
    /// Reads an item from exactly [`Word::BYTES`] bytes; fewer bytes read as their zero extension.
    fn from_le(bytes: &[u8]) -> Self;
    /// Appends the item.
    fn put_le(self, out: &mut Vec<u8>);
}

macro_rules! word {
    ($($int:ty),*) => {$(
        impl Word for $int {
            const BYTES: usize = size_of::<$int>();
            fn from_le(bytes: &[u8]) -> Self {
                bytes.first_chunk().map_or(0, |chunk| <$int>::from_le_bytes(*chunk))
            }
            fn put_le(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )*};
}
word!(u8, u16, u32, u64);

/// A packed column, borrowed from a frame or from a [`ColumnBuf`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Column<'a, T> {
    bytes: &'a [u8],
    item: PhantomData<T>,
}

/// Column of bytes: outcome codes, tiers.
pub type U8Column<'a> = Column<'a, u8>;
/// Column of 16-bit integers: key lengths.
pub type U16Column<'a> = Column<'a, u16>;
/// Column of 32-bit integers: times in microseconds.
pub type U32Column<'a> = Column<'a, u32>;
/// Column of 64-bit integers: ids, offsets, lengths.
pub type U64Column<'a> = Column<'a, u64>;

impl<'a, T: Word> Column<'a, T> {
    /// The column in `bytes`, or nothing if they are not a whole number of items.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Option<Self> {
        bytes.len().is_multiple_of(T::BYTES).then_some(Self { bytes, item: PhantomData })
    }

    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len().checked_div(T::BYTES).unwrap_or(0)
    }

    /// Whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The item at `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<T> {
        let start = index.checked_mul(T::BYTES)?;
        let end = start.checked_add(T::BYTES)?;
        self.bytes.get(start..end).map(T::from_le)
    }

    /// All items, from either end.
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = T> + DoubleEndedIterator + Clone + use<'a, T> {
        self.bytes.chunks_exact(T::BYTES).map(T::from_le)
    }

    /// The packed bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl<T: Word> core::fmt::Debug for Column<'_, T> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

/// A growing column that keeps its memory between frames.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ColumnBuf<T> {
    bytes: Vec<u8>,
    item: PhantomData<T>,
}

impl<T: Word> ColumnBuf<T> {
    /// An empty column; allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { bytes: Vec::new(), item: PhantomData }
    }

    /// Appends one item.
    pub fn push(&mut self, item: T) {
        item.put_le(&mut self.bytes);
    }

    /// Removes all items, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The column, to be put into a message.
    #[must_use]
    pub fn as_column(&self) -> Column<'_, T> {
        Column { bytes: &self.bytes, item: PhantomData }
    }

    /// Number of items.
    #[must_use]
    pub fn len(&self) -> usize {
        self.as_column().len()
    }

    /// Whether there is no item.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<T: Word> core::fmt::Debug for ColumnBuf<T> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.as_column().fmt(out)
    }
}

impl<T: Word> Extend<T> for ColumnBuf<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        for item in items {
            self.push(item);
        }
    }
}

impl<T: Word> FromIterator<T> for ColumnBuf<T> {
    fn from_iter<I: IntoIterator<Item = T>>(items: I) -> Self {
        let mut column = Self::new();
        column.extend(items);
        column
    }
}

/// Refuses batches above [`KEYS_MAX`].
pub(crate) fn check_count(field: &'static str, count: usize) -> Result<(), Malformed> {
    if count > KEYS_MAX {
        return Err(Malformed::TooMany { field, count: count as u64, limit: KEYS_MAX as u64 });
    }
    Ok(())
}

/// Refuses a column whose length differs from the first column's.
pub(crate) fn check_same(
    field: &'static str,
    found: usize,
    expected: usize,
) -> Result<(), Malformed> {
    if found != expected {
        return Err(Malformed::LengthMismatch {
            field,
            expected: expected as u64,
            found: found as u64,
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_little_endian_and_whole() {
        let bytes = [1, 0, 2, 0, 0xff, 0xff];
        let column = U16Column::new(&bytes).unwrap();
        assert_eq!(column.iter().collect::<Vec<_>>(), [1, 2, 0xffff]);
        assert_eq!(column.get(2), Some(0xffff));
        assert_eq!(column.get(3), None);
        assert_eq!(column.get(usize::MAX), None);
        assert!(U16Column::new(&bytes[..5]).is_none());
        let again: ColumnBuf<u16> = column.iter().collect();
        assert_eq!(again.as_column().as_bytes(), bytes);
    }
}
