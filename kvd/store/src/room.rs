//! Making room: which rows go, coldest first, lowest class first, and never more of them than
//! needed.
//!
//! Room in the arena must be contiguous. In this order: a hole, as long as the reserve stays
//! whole; the cheapest window around one of the coldest rows; the cheapest window anywhere. The
//! last one cannot miss a window that exists. Nothing is evicted before it is certain that the
//! request can be met.

use kvd_proto::miss::MissReason;
use kvd_proto::refusal::Refusal;
use kvd_proto::retention::Retention;

use crate::rows::RowId;
use crate::space::{ExtentId, Footprint, State, Window};
use crate::store::Store;
use crate::time::Timestamp;

/// Cold rows that are compared before the cheapest window around one of them is taken.
const CANDIDATES: u32 = 32;
/// Rounds of that many candidates before the whole arena is looked at.
const ROUNDS: u32 = 4;

/// What could go now, by class: rows that nobody pins and nobody was promised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evictable {
    pub(crate) by_class: [Amount; Retention::ALL.len()],
}

/// Some rows: their number and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Amount {
    /// Of their extents.
    pub(crate) space: u64,
    /// Of their payloads.
    pub(crate) payload: u64,
    /// The rows themselves.
    pub(crate) rows: u64,
}

impl Amount {
    pub(crate) const fn covers(self, other: Self) -> bool {
        self.space >= other.space && self.payload >= other.payload && self.rows >= other.rows
    }

    pub(crate) const fn is_nothing(self) -> bool {
        self.space == 0 && self.payload == 0 && self.rows == 0
    }

    pub(crate) const fn less(self, other: Self) -> Self {
        Self {
            space: self.space.saturating_sub(other.space),
            payload: self.payload.saturating_sub(other.payload),
            rows: self.rows.saturating_sub(other.rows),
        }
    }
}

impl Evictable {
    /// What rows of `class` and below add up to.
    pub(crate) fn up_to(&self, class: Retention) -> Amount {
        let mut sum = Amount::default();
        for amount in &self.by_class[..=class.index()] {
            sum.space += amount.space;
            sum.payload += amount.payload;
            sum.rows += amount.rows;
        }
        sum
    }
}

impl Store {
    /// Bytes of free space that the normal order of eviction leaves alone.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.config.reserve_bytes_of(self.space.end())
    }

    /// The next version for a header: even, never 0, never the same twice in a row of 2^31.
    pub(crate) fn next_version(&mut self) -> u32 {
        self.version = match self.version.wrapping_add(2) {
            0 => 2,
            version => version,
        };
        self.ledger.mark_version(self.version);
        self.version
    }

    /// Takes room for `need`, evicting rows of `class` and below (nothing if there is no class).
    pub(crate) fn take_room(
        &mut self,
        need: Footprint,
        class: Option<Retention>,
        now: Timestamp,
    ) -> Result<ExtentId, Refusal> {
        let version = self.next_version();
        // What is over goes before anything that is not.
        self.settle_some(now);
        let mut settled = false;
        loop {
            let ready = match class {
                Some(class) => self.make_room(need, class),
                None => Ok(()),
            };
            let taken =
                ready.and_then(|()| self.space.take(need, version).ok_or(Refusal::ArenaFull));
            match taken {
                Err(_) if !settled => {
                    self.settle_all(now);
                    settled = true;
                }
                Ok(_) | Err(_) => return taken,
            }
        }
    }

    /// Sees to it that a hole for `need` exists beside the reserve.
    fn make_room(&mut self, need: Footprint, class: Retention) -> Result<(), Refusal> {
        let free = self.space.bytes_in(State::Free);
        let short = (self.reserve_bytes() + need.bytes).saturating_sub(free).min(need.bytes);
        let short = Amount { space: short, ..Amount::default() };
        if !self.evictable.up_to(class).covers(short) {
            return Err(self.refusal_for(class));
        }
        let mut freed = Amount::default();
        if !self.space.has_hole(need) {
            let Some(window) = self.window(need, class) else {
                return Err(self.refusal_for(class));
            };
            freed = self.evict_window(window);
        }
        self.evict_coldest(class, short.less(freed));
        assert!(self.space.has_hole(need), "a window of {need:?} was freed in vain");
        Ok(())
    }

    /// Makes a hole for `need`, if that is possible and there is none; tells what was evicted.
    pub(crate) fn make_hole(&mut self, need: Footprint, class: Retention) -> Amount {
        if self.space.has_hole(need) {
            return Amount::default();
        }
        let window = self.window(need, class);
        window.map_or(Amount::default(), |window| self.evict_window(window))
    }

    /// Evicts the coldest rows of the lowest classes until `amount` is reached.
    ///
    /// # Panics
    /// If there are not enough rows: callers check before.
    pub(crate) fn evict_coldest(&mut self, class: Retention, amount: Amount) {
        let mut missing = amount;
        while !missing.is_nothing() {
            let Some(victim) = self.coldest_up_to(class) else {
                panic!("{missing:?} more were said to be evictable up to {class:?}");
            };
            missing = missing.less(self.evict_row(victim));
        }
    }

    /// Why nothing was found: would a higher class have helped?
    pub(crate) fn refusal_for(&self, class: Retention) -> Refusal {
        let above = &self.evictable.by_class[class.index() + 1..];
        if above.iter().any(|amount| amount.space > 0) {
            Refusal::HigherPriority
        } else {
            Refusal::ArenaFull
        }
    }

    /// A window for `need` whose rows are of as low a class and as cold as can be.
    fn window(&mut self, need: Footprint, class: Retention) -> Option<Window> {
        let free = self.space.bytes_in(State::Free);
        self.scratch.search.begin();
        for lower in &Retention::ALL[..=class.index()] {
            let in_class = self.evictable.by_class[lower.index()].space;
            if in_class == 0 || self.evictable.up_to(*lower).space + free < need.bytes {
                continue;
            }
            let window = self.window_among_coldest(need, *lower);
            if window.is_some() {
                return window;
            }
        }
        self.totals.full_scans_total += u64::from(!self.space.is_barren(need, class));
        self.space.window_anywhere(need, class)
    }

    fn window_among_coldest(&mut self, need: Footprint, class: Retention) -> Option<Window> {
        let coldest = self.coldest_in(class)?;
        let copied = self.coldest_copied(coldest, class).filter(|&copied| copied != coldest);
        let window = copied.and_then(|copied| {
            let extent = self.rows[copied].host_extent();
            self.space.window_around(extent, need, class, &mut self.scratch.search)
        });
        match window.filter(|window| window.is_cheap_for(need)) {
            Some(window) => Some(window),
            None => self.window_from(coldest, need, class),
        }
    }

    fn window_from(&mut self, coldest: RowId, need: Footprint, class: Retention) -> Option<Window> {
        let mut best: Option<Window> = None;
        let mut candidate = Some(coldest);
        for count in 1..=CANDIDATES * ROUNDS {
            let row = candidate?;
            let extent = self.rows[row].host_extent();
            let search = &mut self.scratch.search;
            if let Some(window) = self.space.window_around(extent, need, class, search)
                && best.is_none_or(|best| window.cost_bytes < best.cost_bytes)
            {
                best = Some(window);
            }
            let good = best.is_some_and(|best| best.is_cheap_for(need));
            let round_is_over = count.is_multiple_of(CANDIDATES);
            if good || self.scratch.search.is_exhausted() || (round_is_over && best.is_some()) {
                break;
            }
            candidate = self.warmer_than(row, class);
            if candidate.is_none() {
                break;
            }
        }
        best
    }

    fn coldest_up_to(&mut self, class: Retention) -> Option<RowId> {
        Retention::ALL[..=class.index()].iter().find_map(|&lower| {
            let coldest = self.coldest_in(lower)?;
            Some(self.coldest_copied(coldest, lower).unwrap_or(coldest))
        })
    }

    /// The coldest row, from `coldest` on, that nothing is lost with: it has its copy below, or is
    /// to have none. Only among a few: colder rows are written meanwhile.
    fn coldest_copied(&mut self, coldest: RowId, class: Retention) -> Option<RowId> {
        let mut candidate = Some(coldest);
        for _ in 0..CANDIDATES {
            let row = candidate?;
            if !self.is_only_copy(row) {
                return Some(row);
            }
            candidate = self.warmer_than(row, class);
        }
        None
    }

    /// Whether the row is yet to be written to a device.
    fn is_only_copy(&self, row: RowId) -> bool {
        self.rows[row].marks.is_dirty() && self.is_worth_writing(row)
    }

    /// The coldest evictable row of a class. Blocked rows that are met leave the order until
    /// they are evictable again, so that nobody meets them twice.
    fn coldest_in(&mut self, class: Retention) -> Option<RowId> {
        loop {
            let row = self.evict.coldest(class)?;
            if self.is_evictable(row) {
                return Some(row);
            }
            self.park(row);
        }
    }

    fn warmer_than(&mut self, row: RowId, class: Retention) -> Option<RowId> {
        debug_assert!(self.rows[row].class == class, "the walk left its class");
        loop {
            let next = self.evict.warmer(row)?;
            if self.is_evictable(next) {
                return Some(next);
            }
            self.park(next);
        }
    }

    /// Parks at most `limit` blocked rows at the cold ends, ahead of the next victim's search.
    /// Whether more are left.
    pub(crate) fn park_ahead(&mut self, mut limit: u32) -> bool {
        for class in Retention::ALL {
            while let Some(row) = self.evict.coldest(class) {
                if self.is_evictable(row) {
                    break;
                }
                if limit == 0 {
                    return true;
                }
                limit -= 1;
                self.park(row);
            }
        }
        false
    }

    fn is_evictable(&self, row: RowId) -> bool {
        self.space[self.rows[row].host_extent()].is_evictable()
    }

    fn park(&mut self, id: RowId) {
        let row = &mut self.rows[id];
        row.parked = true;
        self.evict.remove(id, row.class);
    }

    fn evict_window(&mut self, window: Window) -> Amount {
        let mut victims = core::mem::take(&mut self.scratch.victims);
        victims.clear();
        let ranges = self.space.ranges_of(window);
        let stored = ranges.filter(|&id| self.space[id].state() == State::Stored);
        victims.extend(stored.map(|id| self.space[id].owner()));
        let mut freed = Amount::default();
        for &victim in &victims {
            let amount = self.evict_row(victim);
            freed.space += amount.space;
            freed.payload += amount.payload;
            freed.rows += amount.rows;
        }
        self.scratch.victims = victims;
        freed
    }

    fn evict_row(&mut self, id: RowId) -> Amount {
        assert!(self.is_evictable(id), "a pinned or promised row is evicted");
        let row = &self.rows[id];
        let space = self.space[row.host_extent()].bytes();
        let (class, freed) = (row.class, Amount { space, payload: row.len_bytes.into(), rows: 1 });
        self.totals.evictions_total += 1;
        self.totals.evictions_by_class_total[class.index()] += 1;
        self.remove_row(id, MissReason::Evicted(class));
        freed
    }

    /// Counts the row of `extent` among the evictable ones, if it is one now.
    pub(crate) fn count_evictable(&mut self, extent: ExtentId) {
        let range = &self.space[extent];
        if !range.is_evictable() {
            return;
        }
        let (bytes, class, owner) = (range.bytes(), range.class(), range.owner());
        let row = &mut self.rows[owner];
        let amount = &mut self.evictable.by_class[class.index()];
        amount.space += bytes;
        amount.payload += u64::from(row.len_bytes);
        amount.rows += 1;
        self.space.loosened(class);
        if row.parked {
            row.parked = false;
            self.evict.insert_coldest(owner, class);
        }
    }

    /// The row of `extent`, if evictable, is about to be no more so.
    pub(crate) fn uncount_evictable(&mut self, extent: ExtentId) {
        let range = &self.space[extent];
        if !range.is_evictable() {
            return;
        }
        let amount = &mut self.evictable.by_class[range.class().index()];
        amount.space -= range.bytes();
        amount.payload -= u64::from(self.rows[range.owner()].len_bytes);
        amount.rows -= 1;
    }
}
