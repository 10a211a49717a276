//! Contiguous room: which neighbouring rows would have to go together.
//!
//! A *window* is a run of neighbouring ranges, each a hole or an evictable row of an allowed
//! class, that is large enough for what is needed at its alignment. Its cost is the bytes of the
//! rows in it. Only the ranges themselves are looked at: they carry class, pins and promise.

use kvd_proto::retention::Retention;

use super::{Extent, ExtentId, Footprint, Space, State};
use crate::slab::Id;

/// Neighbours that all searches of one request may look at before the search turns to the
/// whole arena (or settles for what it has).
const STEPS_MAX: u32 = 1 << 16;

/// A run of ranges that together make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    /// The lowest range.
    pub(crate) first: ExtentId,
    /// The highest range, `first` included.
    pub(crate) last: ExtentId,
    /// Bytes of the rows in it.
    pub(crate) cost_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    id: ExtentId,
    start: u64,
    end: u64,
    cost: u64,
}

/// Memory and remaining patience of one search; reused between requests.
#[derive(Debug, Default)]
pub(crate) struct Search {
    pieces: Vec<Piece>,
    steps: u32,
}

impl Search {
    /// A new request begins.
    pub(crate) const fn begin(&mut self) {
        self.steps = STEPS_MAX;
    }

    /// Whether the request has looked at enough neighbours.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.steps == 0
    }
}

impl<O: Id> Space<O> {
    /// The cheapest window for `need` that contains the row at `center`. None also when the
    /// search is exhausted.
    pub(crate) fn window_around(
        &self,
        center: ExtentId,
        need: Footprint,
        class: Retention,
        search: &mut Search,
    ) -> Option<Window> {
        let middle = self.piece(center, class)?;
        let reach = need.bytes + need.align;
        search.pieces.clear();
        let mut at = self[center].previous;
        while let Some(piece) = self.step(at, class, &mut search.steps) {
            search.pieces.push(piece);
            if middle.start - piece.start >= reach {
                break;
            }
            at = self[at].previous;
        }
        search.pieces.reverse();
        let center_index = search.pieces.len();
        search.pieces.push(middle);
        let mut at = self[center].next;
        while let Some(piece) = self.step(at, class, &mut search.steps) {
            search.pieces.push(piece);
            if piece.end - middle.end >= reach {
                break;
            }
            at = self[at].next;
        }
        self.cheapest_with(&search.pieces, center_index, need)
    }

    /// The cheapest window for `need` in the whole arena, or the first that is cheap enough.
    /// Costs time in proportion to the number of ranges, once: a failure is remembered until
    /// something changes that could turn it.
    pub(crate) fn window_anywhere(&mut self, need: Footprint, class: Retention) -> Option<Window> {
        if self.is_barren(need, class) {
            return None;
        }
        let window = self.scan(need, class);
        if window.is_none() {
            self.barren.remember(need, class);
        }
        window
    }

    /// Whether a search in the whole arena is known to find nothing.
    pub(crate) const fn is_barren(&self, need: Footprint, class: Retention) -> bool {
        self.barren.is_known(need, class)
    }

    fn scan(&self, need: Footprint, class: Retention) -> Option<Window> {
        let mut best: Option<Window> = None;
        let mut right = self.first;
        let mut left = right;
        let mut cost = 0;
        while right != ExtentId::NONE {
            let next = self[right].next;
            let Some(piece) = self.piece(right, class) else {
                (right, left, cost) = (next, next, 0);
                continue;
            };
            cost += piece.cost;
            while self.fits(self[left].start, piece.end, need) {
                if best.is_none_or(|best| cost < best.cost_bytes) {
                    best = Some(Window { first: left, last: right, cost_bytes: cost });
                }
                cost -= cost_of(&self[left]);
                if left == right {
                    left = next;
                    break;
                }
                left = self[left].next;
            }
            if best.is_some_and(|best| best.is_cheap_for(need)) {
                break;
            }
            if left == next {
                cost = 0;
            }
            right = next;
        }
        best
    }

    /// All ranges of `window`, lowest first.
    pub(crate) fn ranges_of(&self, window: Window) -> impl Iterator<Item = ExtentId> + '_ {
        let mut at = Some(window.first);
        core::iter::from_fn(move || {
            let id = at?;
            at = (id != window.last).then(|| self[id].next);
            Some(id)
        })
    }

    fn fits(&self, start: u64, end: u64, need: Footprint) -> bool {
        self.layout.place(start, end, need).is_some()
    }

    fn step(&self, at: ExtentId, class: Retention, steps: &mut u32) -> Option<Piece> {
        if at == ExtentId::NONE || *steps == 0 {
            return None;
        }
        *steps -= 1;
        self.piece(at, class)
    }

    /// The range as part of a window, if it can be one.
    fn piece(&self, id: ExtentId, class: Retention) -> Option<Piece> {
        let extent = &self[id];
        let passable =
            extent.state == State::Free || (extent.is_evictable() && extent.class <= class);
        passable.then(|| Piece {
            id,
            start: extent.start,
            end: extent.end(),
            cost: cost_of(extent),
        })
    }

    /// Two pointers: the right end only moves up while the left end does.
    fn cheapest_with(&self, pieces: &[Piece], center: usize, need: Footprint) -> Option<Window> {
        let mut best: Option<Window> = None;
        let mut to = center;
        let mut cost: u64 = pieces[..=center].iter().map(|piece| piece.cost).sum();
        for from in 0..=center {
            while !self.fits(pieces[from].start, pieces[to].end, need) {
                to += 1;
                if to == pieces.len() {
                    return best;
                }
                cost += pieces[to].cost;
            }
            if best.is_none_or(|best| cost < best.cost_bytes) {
                let (first, last) = (pieces[from].id, pieces[to].id);
                best = Some(Window { first, last, cost_bytes: cost });
            }
            cost -= pieces[from].cost;
        }
        best
    }
}

impl Window {
    /// Whether looking for a better one is not worth it: it costs hardly more than is needed.
    pub(crate) const fn is_cheap_for(&self, need: Footprint) -> bool {
        self.cost_bytes <= need.bytes + need.bytes / 16
    }
}

const fn cost_of<O>(extent: &Extent<O>) -> u64 {
    match extent.state {
        State::Stored => extent.bytes,
        State::Free | State::Ticketed | State::Orphaned => 0,
    }
}
