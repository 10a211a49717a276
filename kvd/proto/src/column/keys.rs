//! The keys of a batch: a column of lengths, and the bytes end to end.

use super::{ColumnBuf, U16Column, check_count};
use crate::block_key::KEY_BYTES_MAX;
use crate::malformed::Malformed;

/// Keys of one batch: at most [`KEYS_MAX`](super::KEYS_MAX)(super::KEYS_MAX), each at most [`KEY_BYTES_MAX`] bytes.
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
        KeyIter { lens: self.lens, front: 0, back: self.lens.len(), bytes: self.bytes }
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
        Self { lens: ColumnBuf::new(), bytes: Vec::new() }
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
        KeyColumn { lens: self.lens.as_column(), bytes: &self.bytes }
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
    u16::try_from(len_bytes).ok().filter(|_| len_bytes <= limit_bytes).ok_or(Malformed::TooLong {
        field: "keys",
        len_bytes,
        limit_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::super::KEYS_MAX;
    use super::*;

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
        assert!(matches!(KeyColumn::new(lens, b"ab"), Err(Malformed::LengthMismatch { .. })));
        assert!(matches!(KeyColumn::new(lens, b"abcd"), Err(Malformed::LengthMismatch { .. })));
        let long = 257_u16.to_le_bytes();
        let long = U16Column::new(&long).unwrap();
        assert!(matches!(KeyColumn::new(long, &[0; 257]), Err(Malformed::TooLong { .. })));
        let many = vec![0; 2 * (KEYS_MAX + 1)];
        let many = U16Column::new(&many).unwrap();
        assert!(matches!(KeyColumn::new(many, b""), Err(Malformed::TooMany { .. })));
        let mut batch = KeyColumnBuf::new();
        assert!(batch.push(&[0; KEY_BYTES_MAX + 1]).is_err());
        assert!(batch.is_empty());
        for _ in 0..KEYS_MAX {
            batch.push(b"").unwrap();
        }
        assert!(batch.push(b"").is_err());
    }
}
