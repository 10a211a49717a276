//! The arena, or a device, as a line of ranges: carving, freeing, joining, and exact figures of every state.
//! Decides nothing about rows; [`window`] says which rows would have to go for a contiguous run.

mod barren;
mod extent;
mod holes;
mod layout;
mod window;

use core::ops::{Index, IndexMut};

use kvd_proto::retention::Retention;

use crate::rows::RowId;
use crate::slab::{Id, NOWHERE, Slab};
use barren::Barren;
pub(crate) use extent::{Extent, State};
use holes::Holes;
pub(crate) use layout::{Footprint, Layout};
pub(crate) use window::{Search, Window};

/// Number of a range. Reused, never outlives its range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ExtentId(pub(crate) u32);

impl ExtentId {
    /// No range.
    pub(crate) const NONE: Self = Self(NOWHERE);
}

/// A range that is in use already; see [`Space::append_used`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used<O> {
    pub(crate) start: u64,
    pub(crate) bytes: u64,
    pub(crate) state: State,
    pub(crate) owner: O,
    pub(crate) class: Retention,
    pub(crate) version: u32,
    pub(crate) large: bool,
}

#[derive(Debug)]
pub(crate) struct Space<O = RowId> {
    layout: Layout,
    extents: Slab<Extent<O>>,
    holes: Holes,
    first: ExtentId,
    last: ExtentId,
    end: u64,
    bytes_by_state: [u64; State::COUNT],
    barren: Barren,
}

impl<O: Id> Index<ExtentId> for Space<O> {
    type Output = Extent<O>;

    fn index(&self, id: ExtentId) -> &Extent<O> {
        self.extents.at(id.0)
    }
}

impl<O: Id> IndexMut<ExtentId> for Space<O> {
    fn index_mut(&mut self, id: ExtentId) -> &mut Extent<O> {
        self.extents.at_mut(id.0)
    }
}

impl<O: Id> Space<O> {
    /// An arena of no bytes yet.
    pub(crate) fn new(layout: Layout) -> Self {
        Self {
            layout,
            extents: Slab::new(),
            holes: Holes::default(),
            first: ExtentId::NONE,
            last: ExtentId::NONE,
            end: 0,
            bytes_by_state: [0; State::COUNT],
            barren: Barren::default(),
        }
    }

    pub(crate) const fn layout(&self) -> &Layout {
        &self.layout
    }

    /// End of the usable part.
    pub(crate) const fn end(&self) -> u64 {
        self.end
    }

    /// Bytes of all ranges in `state`.
    pub(crate) const fn bytes_in(&self, state: State) -> u64 {
        self.bytes_by_state[state.index()]
    }

    pub(crate) fn holes(&self) -> u64 {
        self.holes.len()
    }

    pub(crate) fn largest_hole_bytes(&self) -> u64 {
        self.holes.largest_bytes()
    }

    /// Arena offset of the payload in `id`.
    pub(crate) fn payload_offset(&self, id: ExtentId) -> u64 {
        let extent = &self[id];
        extent.start + self.layout.header(extent.large)
    }

    /// Bytes from there to the end of the range.
    pub(crate) fn capacity_bytes(&self, id: ExtentId) -> u64 {
        let extent = &self[id];
        extent.bytes - self.layout.header(extent.large)
    }

    /// Adds the bytes up to `end` to the usable part.
    pub(crate) fn grow_to(&mut self, end: u64) {
        let end = end - end % self.layout.granule;
        assert!(end >= self.end, "the arena shrank from {} to {end}", self.end);
        if end == self.end {
            return;
        }
        let added = end - self.end;
        let hole = Extent::hole(self.end, added, self.last, ExtentId::NONE);
        let id = ExtentId(self.extents.insert(hole));
        self.link_after(self.last, id);
        self.end = end;
        self.bytes_by_state[State::Free.index()] += added;
        self.settle_hole(id);
    }

    /// Continues the usable part with a range that is in use already: a hole up to `start`, then
    /// the place of `owner`.
    ///
    /// # Panics
    /// If the range begins before the end or is not made of whole granules.
    pub(crate) fn append(
        &mut self,
        start: u64,
        bytes: u64,
        owner: O,
        class: Retention,
    ) -> ExtentId {
        let state = State::Stored;
        self.append_used(Used { start, bytes, state, owner, class, version: 0, large: false })
    }

    /// As [`Self::append`], in any state but free.
    ///
    /// # Panics
    /// As [`Self::append`].
    pub(crate) fn append_used(&mut self, used: Used<O>) -> ExtentId {
        let Used { start, bytes, state, owner, class, version, large } = used;
        let granule = self.layout.granule;
        assert!(bytes > 0 && bytes.is_multiple_of(granule) && start.is_multiple_of(granule));
        self.grow_to(start);
        let mut extent = Extent::hole(start, bytes, self.last, ExtentId::NONE);
        (extent.state, extent.owner, extent.class) = (state, owner, class);
        (extent.version, extent.large) = (version, large);
        let id = ExtentId(self.extents.insert(extent));
        self.link_after(self.last, id);
        self.end = start + bytes;
        self.bytes_by_state[state.index()] += bytes;
        id
    }

    /// Whether a hole for `need` exists.
    pub(crate) fn has_hole(&self, need: Footprint) -> bool {
        self.holes.fit(&self.layout, need).is_some()
    }

    /// Carves `need` from the best hole; the range is ticketed then.
    pub(crate) fn take(&mut self, need: Footprint, version: u32) -> Option<ExtentId> {
        let (id, at) = self.holes.fit(&self.layout, need)?;
        let (start, bytes, end) = (self[id].start, self[id].bytes, self[id].end());
        self.holes.remove(bytes, start, id);
        assert!(at >= start && at + need.bytes <= end, "carved outside of its hole");
        if at > start {
            let before = Extent::hole(start, at - start, ExtentId::NONE, ExtentId::NONE);
            let before = ExtentId(self.extents.insert(before));
            self.link_after(self[id].previous, before);
            self.holes.insert(at - start, start, before);
        }
        let extent = &mut self[id];
        extent.start = at;
        extent.bytes = end - at;
        extent.version = version;
        extent.large = need.large;
        extent.state = State::Ticketed;
        self.bytes_by_state[State::Free.index()] -= need.bytes;
        self.bytes_by_state[State::Ticketed.index()] += need.bytes;
        self.cut(id, need.bytes);
        Some(id)
    }

    /// Gives back what a ticketed range has beyond `bytes`.
    pub(crate) fn trim(&mut self, id: ExtentId, bytes: u64) {
        let extent = &self[id];
        assert!(extent.state == State::Ticketed && bytes > 0 && bytes <= extent.bytes);
        let spare = extent.bytes - bytes;
        self.bytes_by_state[State::Ticketed.index()] -= spare;
        self.bytes_by_state[State::Free.index()] += spare;
        let tail = self.cut(id, bytes);
        if tail != ExtentId::NONE {
            let (bytes, start) = (self[tail].bytes, self[tail].start);
            self.holes.remove(bytes, start, tail);
            self.settle_hole(tail);
        }
    }

    /// A written range becomes the place of `owner`.
    pub(crate) fn store(&mut self, id: ExtentId, owner: O, class: Retention) {
        assert!(self[id].state == State::Ticketed && self[id].pins == 0);
        self.change_state(id, State::Stored);
        let extent = &mut self[id];
        extent.owner = owner;
        extent.class = class;
    }

    /// The range lost its row or its ticket: a hole now, or an orphan while somebody pins it.
    pub(crate) fn let_go(&mut self, id: ExtentId) {
        let extent = &mut self[id];
        assert!(matches!(extent.state, State::Ticketed | State::Stored));
        extent.owner = O::NONE;
        extent.promised = false;
        if extent.pins > 0 {
            self.change_state(id, State::Orphaned);
        } else {
            self.free(id);
        }
    }

    pub(crate) fn pin(&mut self, id: ExtentId) {
        let extent = &mut self[id];
        assert!(extent.state != State::Free, "a hole is pinned");
        extent.pins += 1;
    }

    /// Takes one pin off; the last one of an orphan frees it.
    pub(crate) fn unpin(&mut self, id: ExtentId) {
        let extent = &mut self[id];
        assert!(extent.pins > 0, "unpinned more often than pinned");
        extent.pins -= 1;
        if extent.pins == 0 && extent.state == State::Orphaned {
            self.free(id);
        }
    }

    pub(crate) fn set_promised(&mut self, id: ExtentId, promised: bool) {
        let extent = &mut self[id];
        assert!(extent.state == State::Stored, "only rows are promised");
        extent.promised = promised;
    }

    /// A row of `class` became evictable: what was out of reach may be possible now.
    pub(crate) fn loosened(&mut self, class: Retention) {
        self.barren.clear_from(class);
    }

    fn free(&mut self, id: ExtentId) {
        assert!(self[id].pins == 0);
        self.change_state(id, State::Free);
        self.settle_hole(id);
    }

    fn change_state(&mut self, id: ExtentId, state: State) {
        let extent = &mut self[id];
        let (before, bytes) = (extent.state, extent.bytes);
        extent.state = state;
        self.bytes_by_state[before.index()] -= bytes;
        self.bytes_by_state[state.index()] += bytes;
    }

    /// Shortens the range to `bytes` and makes a hole of the rest, if any.
    fn cut(&mut self, id: ExtentId, bytes: u64) -> ExtentId {
        let extent = &mut self[id];
        let rest = extent.bytes - bytes;
        if rest == 0 {
            return ExtentId::NONE;
        }
        extent.bytes = bytes;
        let start = extent.end();
        let hole = Extent::hole(start, rest, ExtentId::NONE, ExtentId::NONE);
        let after = ExtentId(self.extents.insert(hole));
        self.link_after(id, after);
        self.holes.insert(rest, start, after);
        after
    }

    /// Joins a new hole, not yet among the holes, with the holes beside it.
    fn settle_hole(&mut self, id: ExtentId) {
        let (previous, next) = (self[id].previous, self[id].next);
        if next != ExtentId::NONE && self[next].state == State::Free {
            self.swallow_next(id);
        }
        let mut hole = id;
        if previous != ExtentId::NONE && self[previous].state == State::Free {
            let (bytes_before, start) = (self[previous].bytes, self[previous].start);
            self.holes.remove(bytes_before, start, previous);
            let bytes = self[id].bytes;
            self.unlink(id);
            self[previous].bytes += bytes;
            hole = previous;
        }
        let (bytes, start) = (self[hole].bytes, self[hole].start);
        self.holes.insert(bytes, start, hole);
        self.barren.clear();
    }

    fn swallow_next(&mut self, id: ExtentId) {
        let next = self[id].next;
        let (bytes, start) = (self[next].bytes, self[next].start);
        self.holes.remove(bytes, start, next);
        self.unlink(next);
        self[id].bytes += bytes;
    }

    fn link_after(&mut self, previous: ExtentId, id: ExtentId) {
        let next = if previous == ExtentId::NONE {
            core::mem::replace(&mut self.first, id)
        } else {
            core::mem::replace(&mut self[previous].next, id)
        };
        if next == ExtentId::NONE {
            self.last = id;
        } else {
            self[next].previous = id;
        }
        let extent = &mut self[id];
        extent.previous = previous;
        extent.next = next;
    }

    fn unlink(&mut self, id: ExtentId) {
        let Extent { previous, next, .. } = self.extents.remove(id.0);
        if previous == ExtentId::NONE {
            self.first = next;
        } else {
            self[previous].next = next;
        }
        if next == ExtentId::NONE {
            self.last = previous;
        } else {
            self[next].previous = previous;
        }
    }
}

mod check;
#[cfg(test)]
mod tests;
