//! The whole line of ranges, checked against itself.

use super::{ExtentId, Space, State};
use crate::slab::Id;

impl<O: Id> Space<O> {
    /// Calls `visit` for every range in the order of addresses.
    pub(crate) fn each(&self, mut visit: impl FnMut(ExtentId, &super::Extent<O>)) {
        let mut id = self.first;
        while id != ExtentId::NONE {
            visit(id, &self[id]);
            id = self[id].next;
        }
    }

    /// # Panics
    /// If ranges do not tile the arena, holes touch or are not listed, or a figure is wrong.
    pub(crate) fn assert_consistent(&self) {
        let (mut at, mut previous, mut seen, mut holes) = (0, ExtentId::NONE, 0_u32, 0_u64);
        let mut bytes = [0; State::COUNT];
        let mut after_hole = false;
        self.each(|id, extent| {
            assert_eq!(extent.start, at, "gap or overlap before {id:?}");
            assert_eq!(extent.previous, previous);
            assert!(extent.bytes > 0 && extent.bytes.is_multiple_of(self.layout.granule));
            let free = extent.state == State::Free;
            assert!(!(free && after_hole), "two holes touch at {at}");
            assert!(!free || extent.pins == 0);
            assert!(extent.state != State::Orphaned || extent.pins > 0, "orphan of nobody");
            assert!(!extent.large || free || extent.start.is_multiple_of(self.layout.large_align));
            assert_eq!(extent.owner != O::NONE, extent.state == State::Stored);
            bytes[extent.state.index()] += extent.bytes;
            holes += u64::from(free);
            if free {
                let listed = self.holes.contains(extent.bytes, extent.start, id);
                assert!(listed, "{id:?} is a hole but not listed");
            }
            after_hole = free;
            at += extent.bytes;
            previous = id;
            seen += 1;
        });
        assert_eq!(at, self.end);
        assert_eq!(previous, self.last);
        assert_eq!(seen, self.extents.len());
        assert_eq!(holes, self.holes.len());
        assert_eq!(bytes, self.bytes_by_state, "figures by state are wrong");
        assert_eq!(bytes.iter().sum::<u64>(), self.end, "states do not sum to the capacity");
    }
}
