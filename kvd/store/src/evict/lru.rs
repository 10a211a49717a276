//! Least recently used first, exactly.

use kvd_proto::retention::Retention;

use super::Evict;
use crate::rows::RowId;

/// Links per chunk: growing adds one chunk, nothing moves.
const CHUNK: u32 = 4096;

#[derive(Clone, Copy, Debug)]
struct Link {
    colder: RowId,
    warmer: RowId,
}

const UNLINKED: Link = Link { colder: RowId::NONE, warmer: RowId::NONE };

#[derive(Clone, Copy, Debug)]
struct Order {
    coldest: RowId,
    warmest: RowId,
}

/// One doubly linked list per class, threaded through a table of links.
#[derive(Debug)]
pub(crate) struct Lru {
    links: Vec<Box<[Link]>>,
    orders: [Order; Retention::ALL.len()],
}

impl Lru {
    pub(crate) const fn new() -> Self {
        let empty = Order { coldest: RowId::NONE, warmest: RowId::NONE };
        Self { links: Vec::new(), orders: [empty; Retention::ALL.len()] }
    }

    fn link(&self, row: RowId) -> Link {
        self.links[(row.0 / CHUNK) as usize][(row.0 % CHUNK) as usize]
    }

    fn link_mut(&mut self, row: RowId) -> &mut Link {
        &mut self.links[(row.0 / CHUNK) as usize][(row.0 % CHUNK) as usize]
    }

    fn make_room_for(&mut self, row: RowId) {
        while self.links.len() <= (row.0 / CHUNK) as usize {
            self.links.push(vec![UNLINKED; CHUNK as usize].into_boxed_slice());
        }
    }
}

impl Evict for Lru {
    fn insert(&mut self, row: RowId, class: Retention) {
        self.make_room_for(row);
        let colder = self.orders[class.index()].warmest;
        *self.link_mut(row) = Link { colder, warmer: RowId::NONE };
        if colder == RowId::NONE {
            self.orders[class.index()].coldest = row;
        } else {
            self.link_mut(colder).warmer = row;
        }
        self.orders[class.index()].warmest = row;
    }

    fn insert_coldest(&mut self, row: RowId, class: Retention) {
        self.make_room_for(row);
        let warmer = self.orders[class.index()].coldest;
        *self.link_mut(row) = Link { colder: RowId::NONE, warmer };
        if warmer == RowId::NONE {
            self.orders[class.index()].warmest = row;
        } else {
            self.link_mut(warmer).colder = row;
        }
        self.orders[class.index()].coldest = row;
    }

    fn touch(&mut self, row: RowId, class: Retention) {
        if self.orders[class.index()].warmest != row {
            self.remove(row, class);
            self.insert(row, class);
        }
    }

    fn remove(&mut self, row: RowId, class: Retention) {
        let Link { colder, warmer } = self.link(row);
        if colder == RowId::NONE {
            assert!(self.orders[class.index()].coldest == row, "{row:?} is not in the order");
            self.orders[class.index()].coldest = warmer;
        } else {
            self.link_mut(colder).warmer = warmer;
        }
        if warmer == RowId::NONE {
            assert!(self.orders[class.index()].warmest == row, "{row:?} is not in the order");
            self.orders[class.index()].warmest = colder;
        } else {
            self.link_mut(warmer).colder = colder;
        }
        *self.link_mut(row) = UNLINKED;
    }

    fn foresee(&self, row: RowId) -> u32 {
        let Link { colder, warmer } = self.link(row);
        let neighbours = [colder, warmer].into_iter().filter(|&row| row != RowId::NONE);
        neighbours.fold(0, |sum, row| sum ^ self.link(row).warmer.0)
    }

    fn coldest(&self, class: Retention) -> Option<RowId> {
        Some(self.orders[class.index()].coldest).filter(|&row| row != RowId::NONE)
    }

    fn warmer(&self, row: RowId) -> Option<RowId> {
        Some(self.link(row).warmer).filter(|&row| row != RowId::NONE)
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
