//! A table that hands out small numbers for its items and never moves or copies them to grow:
//! it adds chunks. Numbers of removed items are used again, the latest first.

/// No item. Never handed out.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// The number of an item of one kind of table, so that kinds cannot be mistaken for each other.
pub(crate) trait Id: Copy + Ord + core::fmt::Debug + Send {
    /// No item.
    const NONE: Self;

    /// The number that the table handed out.
    fn number(self) -> u32;
}

/// Items per chunk.
const CHUNK: u32 = 1024;

#[derive(Debug)]
pub(crate) struct Slab<T> {
    chunks: Vec<Vec<Slot<T>>>,
    vacant: u32,
    end: u32,
    len: u32,
}

#[derive(Debug)]
enum Slot<T> {
    Vacant { next: u32 },
    Used(T),
}

impl<T> Slab<T> {
    pub(crate) const fn new() -> Self {
        Self { chunks: Vec::new(), vacant: NOWHERE, end: 0, len: 0 }
    }

    /// Number of items.
    pub(crate) const fn len(&self) -> u32 {
        self.len
    }

    /// One more than the largest number ever handed out.
    pub(crate) const fn end(&self) -> u32 {
        self.end
    }

    pub(crate) fn insert(&mut self, item: T) -> u32 {
        self.len += 1;
        if self.vacant != NOWHERE {
            let index = self.vacant;
            let slot = self.slot_mut(index);
            let Slot::Vacant { next } = *slot else {
                panic!("item {index} is on the vacant list but in use");
            };
            *slot = Slot::Used(item);
            self.vacant = next;
            return index;
        }
        self.push(Slot::Used(item))
    }

    /// Puts an item into a place beyond all that were used so far.
    ///
    /// # Panics
    /// If the place is not beyond them.
    pub(crate) fn insert_at(&mut self, index: u32, item: T) {
        assert!(index >= self.end, "place {index} was used before");
        while self.end < index {
            self.vacant = self.push(Slot::Vacant { next: self.vacant });
        }
        self.len += 1;
        self.push(Slot::Used(item));
    }

    fn push(&mut self, slot: Slot<T>) -> u32 {
        let index = self.end;
        assert!(index < NOWHERE, "4 billion items");
        if index.is_multiple_of(CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK as usize));
        }
        self.chunks[(index / CHUNK) as usize].push(slot);
        self.end += 1;
        index
    }

    /// # Panics
    /// If there is no such item, as do [`Self::at`] and [`Self::at_mut`].
    pub(crate) fn remove(&mut self, index: u32) -> T {
        let vacant = Slot::Vacant { next: self.vacant };
        let Slot::Used(item) = core::mem::replace(self.slot_mut(index), vacant) else {
            panic!("item {index} is removed twice");
        };
        self.vacant = index;
        self.len -= 1;
        item
    }

    pub(crate) fn get(&self, index: u32) -> Option<&T> {
        match self.chunks.get((index / CHUNK) as usize)?.get((index % CHUNK) as usize)? {
            Slot::Used(item) => Some(item),
            Slot::Vacant { .. } => None,
        }
    }

    pub(crate) fn at(&self, index: u32) -> &T {
        match &self.chunks[(index / CHUNK) as usize][(index % CHUNK) as usize] {
            Slot::Used(item) => item,
            Slot::Vacant { .. } => panic!("item {index} does not exist"),
        }
    }

    pub(crate) fn at_mut(&mut self, index: u32) -> &mut T {
        match self.slot_mut(index) {
            Slot::Used(item) => item,
            Slot::Vacant { .. } => panic!("item {index} does not exist"),
        }
    }

    /// All items with their numbers, in the order of the numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..self.end).filter_map(|index| self.get(index).map(|item| (index, item)))
    }

    fn slot_mut(&mut self, index: u32) -> &mut Slot<T> {
        &mut self.chunks[(index / CHUNK) as usize][(index % CHUNK) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::Slab;

    #[test]
    fn numbers_are_reused_and_items_stay() {
        let mut slab = Slab::new();
        let all: Vec<u32> = (0..3000_u32).map(|item| slab.insert(item)).collect();
        assert_eq!(all, (0..3000).collect::<Vec<_>>());
        assert_eq!(slab.remove(7), 7);
        assert_eq!(slab.remove(2000), 2000);
        assert_eq!(slab.get(7), None);
        assert_eq!(slab.len(), 2998);
        assert_eq!(slab.insert(1), 2000);
        assert_eq!(slab.insert(2), 7);
        assert_eq!(slab.insert(3), 3000);
        assert_eq!((*slab.at(7), *slab.at(2000), *slab.at(2999)), (2, 1, 2999));
        assert_eq!(slab.iter().count(), 3001);
    }

    #[test]
    #[should_panic(expected = "removed twice")]
    fn a_second_remove_is_caught() {
        let mut slab = Slab::new();
        let index = slab.insert(());
        slab.remove(index);
        slab.remove(index);
    }
}
