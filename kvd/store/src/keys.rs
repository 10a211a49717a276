//! The keys of one batch, in whatever shape they arrived.

use core::ops::Range;

use kvd_proto::column::KeyColumn;

/// A batch of keys, or a part of one. Cheap to copy; borrows the frame it came in.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a> {
    source: Source<'a>,
    from: usize,
    to: usize,
}

#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    One(&'a [u8]),
    Slices(&'a [&'a [u8]]),
    Column(KeyColumn<'a>),
}

impl<'a> Keys<'a> {
    /// A single key.
    #[must_use]
    pub const fn one(key: &'a [u8]) -> Self {
        Self { source: Source::One(key), from: 0, to: 1 }
    }

    /// Keys that were decoded one by one.
    #[must_use]
    pub const fn slices(keys: &'a [&'a [u8]]) -> Self {
        Self { source: Source::Slices(keys), from: 0, to: keys.len() }
    }

    /// A packed column of protocol 2.
    #[must_use]
    pub fn column(keys: KeyColumn<'a>) -> Self {
        Self { source: Source::Column(keys), from: 0, to: keys.len() }
    }

    /// Number of keys.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.to - self.from
    }

    /// Whether there is no key.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.to == self.from
    }

    /// Some of these keys; positions count from the first key of `self`.
    ///
    /// # Panics
    /// If the range leaves the batch.
    #[must_use]
    pub fn part(self, range: Range<usize>) -> Self {
        assert!(range.start <= range.end && range.end <= self.len(), "part {range:?} of {self:?}");
        Self { source: self.source, from: self.from + range.start, to: self.from + range.end }
    }

    /// Calls `visit` for each key in order until it returns false.
    pub fn each(self, mut visit: impl FnMut(&'a [u8]) -> bool) {
        match self.source {
            Source::One(key) => {
                if !self.is_empty() {
                    visit(key);
                }
            }
            Source::Slices(keys) => {
                for key in &keys[self.from..self.to] {
                    if !visit(key) {
                        return;
                    }
                }
            }
            Source::Column(keys) => {
                for key in keys.iter().skip(self.from).take(self.len()) {
                    if !visit(key) {
                        return;
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Keys;
    use kvd_proto::column::KeyColumnBuf;

    fn collect<'a>(keys: Keys<'a>) -> Vec<&'a [u8]> {
        let mut all = Vec::new();
        keys.each(|key| {
            all.push(key);
            true
        });
        all
    }

    #[test]
    fn every_shape_gives_the_same_keys() {
        let list: [&[u8]; 4] = [b"a", b"", b"ccc", b"a"];
        let mut packed = KeyColumnBuf::new();
        for key in list {
            packed.push(key).unwrap();
        }
        let column = Keys::column(packed.as_column());
        assert_eq!(collect(Keys::slices(&list)), list);
        assert_eq!(collect(column), list);
        assert_eq!(collect(column.part(1..4).part(1..3)), list[2..4]);
        assert_eq!(collect(Keys::one(b"k")), [b"k"]);
        assert!(collect(Keys::one(b"k").part(0..0)).is_empty());
    }
}
