//! Least recently used first, exactly.

use kvd_proto::retention::Retention;

use super::Evict;
use crate::rows::RowId;
use crate::slab::Id;

/// Links per chunk: growing adds one chunk, nothing moves.
const CHUNK: u32 = 4096;

#[derive(Clone, Copy, Debug)]
struct Link<I> {
    colder: I,
    warmer: I,
}

impl<I: Id> Link<I> {
    const NONE: Self = Self { colder: I::NONE, warmer: I::NONE };
}

#[derive(Clone, Copy, Debug)]
struct Order<I> {
    coldest: I,
    warmest: I,
}

/// One doubly linked list per class, threaded through a table of links.
#[derive(Debug)]
pub(crate) struct Lru<I = RowId> {
    links: Vec<Box<[Link<I>]>>,
    orders: [Order<I>; Retention::ALL.len()],
}

impl<I: Id> Lru<I> {
    pub(crate) const fn new() -> Self {
        let empty = Order { coldest: I::NONE, warmest: I::NONE };
        Self { links: Vec::new(), orders: [empty; Retention::ALL.len()] }
    }

    fn link(&self, row: I) -> Link<I> {
        self.links[(row.number() / CHUNK) as usize][(row.number() % CHUNK) as usize]
    }

    fn link_mut(&mut self, row: I) -> &mut Link<I> {
        &mut self.links[(row.number() / CHUNK) as usize][(row.number() % CHUNK) as usize]
    }

    fn make_room_for(&mut self, row: I) {
        while self.links.len() <= (row.number() / CHUNK) as usize {
            self.links.push(vec![Link::NONE; CHUNK as usize].into_boxed_slice());
        }
    }
}

impl<I: Id> Evict<I> for Lru<I> {
    fn insert(&mut self, row: I, class: Retention) {
        self.make_room_for(row);
        let colder = self.orders[class.index()].warmest;
        *self.link_mut(row) = Link { colder, warmer: I::NONE };
        if colder == I::NONE {
            self.orders[class.index()].coldest = row;
        } else {
            self.link_mut(colder).warmer = row;
        }
        self.orders[class.index()].warmest = row;
    }

    fn insert_coldest(&mut self, row: I, class: Retention) {
        self.make_room_for(row);
        let warmer = self.orders[class.index()].coldest;
        *self.link_mut(row) = Link { colder: I::NONE, warmer };
        if warmer == I::NONE {
            self.orders[class.index()].warmest = row;
        } else {
            self.link_mut(warmer).colder = row;
        }
        self.orders[class.index()].coldest = row;
    }

    fn touch(&mut self, row: I, class: Retention) {
        if self.orders[class.index()].warmest != row {
            self.remove(row, class);
            self.insert(row, class);
        }
    }

    fn remove(&mut self, row: I, class: Retention) {
        let Link { colder, warmer } = self.link(row);
        if colder == I::NONE {
            assert!(self.orders[class.index()].coldest == row, "{row:?} is not in the order");
            self.orders[class.index()].coldest = warmer;
        } else {
            self.link_mut(colder).warmer = warmer;
        }
        if warmer == I::NONE {
            assert!(self.orders[class.index()].warmest == row, "{row:?} is not in the order");
            self.orders[class.index()].warmest = colder;
        } else {
            self.link_mut(warmer).colder = colder;
        }
        *self.link_mut(row) = Link::NONE;
    }

    fn foresee(&self, row: I) -> u32 {
        let Link { colder, warmer } = self.link(row);
        let neighbours = [colder, warmer].into_iter().filter(|&row| row != I::NONE);
        neighbours.fold(0, |sum, row| sum ^ self.link(row).warmer.number())
    }

    fn coldest(&self, class: Retention) -> Option<I> {
        Some(self.orders[class.index()].coldest).filter(|&row| row != I::NONE)
    }

    fn warmer(&self, row: I) -> Option<I> {
        Some(self.link(row).warmer).filter(|&row| row != I::NONE)
    }

    fn warmest(&self, class: Retention) -> Option<I> {
        Some(self.orders[class.index()].warmest).filter(|&row| row != I::NONE)
    }

    fn colder(&self, row: I) -> Option<I> {
        Some(self.link(row).colder).filter(|&row| row != I::NONE)
    }
}

#[cfg(test)]
mod tests {
    use super::{Evict, Lru};
    use crate::rows::RowId;
    use kvd_proto::retention::Retention;
    use proptest::prelude::*;

    fn order(lru: &Lru, class: Retention) -> Vec<u32> {
        let first = lru.coldest(class);
        core::iter::successors(first, |&row| lru.warmer(row)).map(|row| row.0).collect()
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_a_plain_list(steps in proptest::collection::vec(
            (0..4_u8, 0..20_u32, 0..2_usize), 0..200,
        )) {
            let mut lru = Lru::new();
            let mut lists: [Vec<u32>; 2] = Default::default();
            for (what, row, class) in steps {
                let row = row * 1000;
                let at = lists.iter().position(|list| list.contains(&row));
                let class = at.unwrap_or(class);
                let (id, retention) = (RowId(row), Retention::ALL[class]);
                lists[class].retain(|&other| other != row);
                match (what, at) {
                    (0 | 1, None) => lru.insert(id, retention),
                    (2 | 3, None) => lru.insert_coldest(id, retention),
                    (0..3, Some(_)) => lru.touch(id, retention),
                    (_, _) => lru.remove(id, retention),
                }
                match (what, at) {
                    (2 | 3, None) => lists[class].insert(0, row),
                    (3, Some(_)) => {}
                    (_, _) => lists[class].push(row),
                }
                for (list, class) in lists.iter().zip(Retention::ALL) {
                    prop_assert_eq!(&order(&lru, class), list);
                }
            }
        }
    }
}
