//! Packed columns: protocol 2 sends a batch as one little-endian byte string per field.
//!
//! [`Column`] reads one in place, [`ColumnBuf`] grows one for sending and keeps its memory.
//! [`KeyColumn`] is the pair of a length column and the keys' bytes, end to end.

use core::marker::PhantomData;

use crate::block_key::KEY_BYTES_MAX;
use crate::malformed::Malformed;

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
        bytes.len().is_multiple_of(T::BYTES).then_some(Self {
            bytes,
            item: PhantomData,
        })
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
        Self {
            bytes: Vec::new(),
            item: PhantomData,
        }
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
        Column {
            bytes: &self.bytes,
            item: PhantomData,
        }
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

/// Keys of one batch: at most [`KEYS_MAX`], each at most [`KEY_BYTES_MAX`] bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct KeyColumn<'a> {
    lens: U16Column<'a>,
    bytes: &'a [u8],
}

impl<'a> KeyColumn<'a> {
    /// Joins a length column and the keys' bytes.
    ///
    /// # Errors
    /// [`Malformed::TooMany`], [`Malformed::TooLong`], or [`Malformed::LengthMismatch`] if the
    /// lengths do not add up to exactly the bytes.
    pub fn new(lens: U16Column<'a>, bytes: &'a [u8]) -> Result<Self, Malformed> {
        check_count("key_lens", lens.len())?;
        let mut sum = 0_u64;
        for len in lens.iter() {
            check_key(len.into())?;
            // No overflow: at most KEYS_MAX times KEY_BYTES_MAX.
            sum = sum.saturating_add(len.into());
        }
        if sum != bytes.len() as u64 {
            return Err(Malformed::LengthMismatch {
                field: "keys",
                expected: sum,
                found: bytes.len() as u64,
            });
        }
        Ok(Self { lens, bytes })
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }

    /// The key at `index`. Walks the lengths before it: use [`KeyColumn::iter`] for all keys.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<&'a [u8]> {
        self.iter().nth(index)
    }

    /// All keys, from either end.
    #[must_use]
    pub fn iter(&self) -> KeyIter<'a> {
        KeyIter {
            lens: self.lens,
            front: 0,
            back: self.lens.len(),
            bytes: self.bytes,
        }
    }

    /// The length column.
    #[must_use]
    pub fn lens(&self) -> U16Column<'a> {
        self.lens
    }

    /// All keys end to end.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

impl core::fmt::Debug for KeyColumn<'_> {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        out.debug_list().entries(self.iter()).finish()
    }
}

impl<'a> IntoIterator for KeyColumn<'a> {
    type Item = &'a [u8];
    type IntoIter = KeyIter<'a>;
    fn into_iter(self) -> KeyIter<'a> {
        self.iter()
    }
}

/// Keys of a [`KeyColumn`], in order or from the end.
#[derive(Clone, Debug)]
pub struct KeyIter<'a> {
    lens: U16Column<'a>,
    front: usize,
    back: usize,
    /// Bytes of the keys `front..back`.
    bytes: &'a [u8],
}

impl<'a> Iterator for KeyIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        if self.front >= self.back {
            return None;
        }
        let len = self.lens.get(self.front)?;
        let (key, rest) = self.bytes.split_at_checked(len.into())?;
        self.front = self.front.saturating_add(1);
        self.bytes = rest;
        Some(key)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.back.saturating_sub(self.front);
        (left, Some(left))
    }
}

impl DoubleEndedIterator for KeyIter<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.front >= self.back {
            return None;
        }
        let last = self.back.saturating_sub(1);
        let len = self.lens.get(last)?;
        let at = self.bytes.len().checked_sub(len.into())?;
        let (rest, key) = self.bytes.split_at_checked(at)?;
        self.back = last;
        self.bytes = rest;
        Some(key)
    }
}

impl ExactSizeIterator for KeyIter<'_> {}

/// A growing batch of keys that keeps its memory between frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyColumnBuf {
    lens: ColumnBuf<u16>,
    bytes: Vec<u8>,
}

impl KeyColumnBuf {
    /// An empty batch; allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            lens: ColumnBuf::new(),
            bytes: Vec::new(),
        }
    }

    /// Appends one key.
    ///
    /// # Errors
    /// [`Malformed::TooLong`] or [`Malformed::TooMany`]; the batch is unchanged then.
    pub fn push(&mut self, key: &[u8]) -> Result<(), Malformed> {
        let len = check_key(key.len() as u64)?;
        check_count("key_lens", self.lens.len().saturating_add(1))?;
        self.lens.push(len);
        self.bytes.extend_from_slice(key);
        Ok(())
    }

    /// Removes all keys, keeps the memory.
    pub fn clear(&mut self) {
        self.lens.clear();
        self.bytes.clear();
    }

    /// The column, to be put into a message.
    #[must_use]
    pub fn as_column(&self) -> KeyColumn<'_> {
        KeyColumn {
            lens: self.lens.as_column(),
            bytes: &self.bytes,
        }
    }

    /// Number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.lens.len()
    }

    /// Whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lens.is_empty()
    }
}

fn check_key(len_bytes: u64) -> Result<u16, Malformed> {
    let limit_bytes = KEY_BYTES_MAX as u64;
    u16::try_from(len_bytes)
        .ok()
        .filter(|_| len_bytes <= limit_bytes)
        .ok_or(Malformed::TooLong {
            field: "keys",
            len_bytes,
            limit_bytes,
        })
}

/// Refuses batches above [`KEYS_MAX`].
pub(crate) fn check_count(field: &'static str, count: usize) -> Result<(), Malformed> {
    if count > KEYS_MAX {
        return Err(Malformed::TooMany {
            field,
            count: count as u64,
            limit: KEYS_MAX as u64,
        });
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

    #[test]
    fn keys_come_back_from_both_ends() {
        let keys: [&[u8]; 4] = [b"a", b"", b"ccc", b"dd"];
        let mut batch = KeyColumnBuf::new();
        for key in keys {
            batch.push(key).unwrap();
        }
        let column = batch.as_column();
        assert!(column.iter().eq(keys));
        assert!(column.iter().rev().eq(keys.into_iter().rev()));
        let mut both = column.iter();
        assert_eq!(both.next(), Some(keys[0]));
        assert_eq!(both.next_back(), Some(keys[3]));
        assert_eq!(both.len(), 2);
        assert_eq!(column.get(2), Some(keys[2]));
        assert_eq!(column.get(4), None);
    }

    #[test]
    fn lengths_must_add_up_and_stay_within_limits() {
        let lens = [2, 0, 1, 0];
        let lens = U16Column::new(&lens).unwrap();
        assert!(KeyColumn::new(lens, b"abc").is_ok());
        assert!(matches!(
            KeyColumn::new(lens, b"ab"),
            Err(Malformed::LengthMismatch { .. })
        ));
        assert!(matches!(
            KeyColumn::new(lens, b"abcd"),
            Err(Malformed::LengthMismatch { .. })
        ));
        let long = 257_u16.to_le_bytes();
        let long = U16Column::new(&long).unwrap();
        assert!(matches!(
            KeyColumn::new(long, &[0; 257]),
            Err(Malformed::TooLong { .. })
        ));
        let many = vec![0; 2 * (KEYS_MAX + 1)];
        let many = U16Column::new(&many).unwrap();
        assert!(matches!(
            KeyColumn::new(many, b""),
            Err(Malformed::TooMany { .. })
        ));
        let mut batch = KeyColumnBuf::new();
        assert!(batch.push(&[0; KEY_BYTES_MAX + 1]).is_err());
        assert!(batch.is_empty());
        for _ in 0..KEYS_MAX {
            batch.push(b"").unwrap();
        }
        assert!(batch.push(b"").is_err());
    }
}
