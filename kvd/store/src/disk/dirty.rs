//! Rows that should be on a device and are not: the queue of those that are written as soon as
//! possible, and the figures of all of them.

use std::collections::VecDeque;

use crate::rows::{Row, RowId};

/// First in, first out; a row has at most one place. Rows leave and come back under the same
/// number without leaving the queue: who takes a number looks whether there is something to write.
#[derive(Debug, Default)]
pub(crate) struct Dirty {
    queue: VecDeque<RowId>,
    /// One bit per row: whether it has a place in the queue.
    listed: Vec<u64>,
    /// Dirty rows and rows being written, in the queue or not.
    pub(crate) rows: u64,
    /// Their payload bytes.
    pub(crate) bytes: u64,
}

impl Dirty {
    /// Lines a row up, if it is not there already.
    pub(crate) fn push(&mut self, row: RowId) {
        if self.list(row) {
            self.queue.push_back(row);
        }
    }

    /// A row that was taken, but could not be written now: it is the next one again.
    pub(crate) fn push_front(&mut self, row: RowId) {
        if self.list(row) {
            self.queue.push_front(row);
        }
    }

    pub(crate) fn pop(&mut self) -> Option<RowId> {
        let row = self.queue.pop_front()?;
        let (word, bit) = place(row);
        self.listed[word] &= !bit;
        Some(row)
    }

    /// Places in the queue, stale ones included.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// A row became dirty.
    pub(crate) fn add(&mut self, row: &Row) {
        self.rows += 1;
        self.bytes += u64::from(row.len_bytes);
    }

    /// A dirty row was written, replaced or goes.
    pub(crate) fn subtract(&mut self, row: &Row) {
        self.rows -= 1;
        self.bytes -= u64::from(row.len_bytes);
    }

    fn list(&mut self, row: RowId) -> bool {
        let (word, bit) = place(row);
        if self.listed.len() <= word {
            self.listed.resize(word + 1, 0);
        }
        let is_new = self.listed[word] & bit == 0;
        self.listed[word] |= bit;
        is_new
    }

    /// # Panics
    /// If the bits and the queue differ.
    pub(crate) fn assert_consistent(&self) {
        let mut listed = vec![0; self.listed.len()];
        for &row in &self.queue {
            let (word, bit) = place(row);
            assert_eq!(listed[word] & bit, 0, "{row:?} has two places");
            listed[word] |= bit;
        }
        assert_eq!(listed, self.listed);
    }
}

const fn place(row: RowId) -> (usize, u64) {
    ((row.0 / 64) as usize, 1 << (row.0 % 64))
}

#[cfg(test)]
mod tests {
    use super::Dirty;
    use crate::rows::RowId;

    #[test]
    fn a_row_has_one_place() {
        let mut dirty = Dirty::default();
        for row in [5, 700, 5, 6, 700] {
            dirty.push(RowId(row));
            dirty.assert_consistent();
        }
        assert_eq!(dirty.len(), 3);
        assert_eq!(dirty.pop(), Some(RowId(5)));
        dirty.push_front(RowId(5));
        dirty.push_front(RowId(6));
        dirty.assert_consistent();
        let all: Vec<_> = core::iter::from_fn(|| dirty.pop()).map(|row| row.0).collect();
        assert_eq!(all, [5, 700, 6]);
        dirty.assert_consistent();
    }
}
