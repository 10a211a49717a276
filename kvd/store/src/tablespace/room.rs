//! Making room on a device. As in the arena, room is contiguous and comes from a hole or from the
//! cheapest window of cold entries; but what was evicted is room only after the journal says so.
//! Therefore a part of the device is kept free ahead of need.
//!
//! Entries that cannot go at the moment, because they are being read or were promised, count as
//! used when a search meets them: they go to the warm end, so that nobody meets them twice.

use kvd_proto::retention::Retention;

use super::journal::Reason;
use super::{EntryId, Tablespace};
use crate::evict::Evict;
use crate::space::{ExtentId, Footprint, State, Window};

/// Share of the device that is kept free ahead, in percent; at least [`AHEAD_BYTES_MIN`], at most
/// an eighth.
const AHEAD_PERCENT: u64 = 3;
const AHEAD_BYTES_MIN: u64 = 64 << 20;
/// Windows that one call evicts ahead of need.
const AHEAD_WINDOWS: u32 = 8;
/// Cold entries that are compared before the cheapest window around one of them is taken.
const CANDIDATES: u32 = 32;
/// Rounds of that many candidates before the whole device is looked at.
const ROUNDS: u32 = 4;

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// There will be, once more of the journal is written, a snapshot is complete or the device
    /// has grown.
    Pending,
    /// Nothing that may go would make any.
    Full,
}

impl Tablespace {
    /// Takes room for a block, of `class`. Entries of this class and below make room if need be.
    pub(crate) fn take_room(
        &mut self,
        len_bytes: u32,
        class: Retention,
    ) -> Result<ExtentId, NoRoom> {
        let need = self.space.layout().footprint(u64::from(len_bytes.max(1)));
        let is_growing = self.space.end() < self.settings.expected_bytes;
        if need.bytes > self.room_to_come() {
            return Err(NoRoom::Full);
        }
        if self.journal.is_backed_up() {
            return Err(NoRoom::Pending);
        }
        if !is_growing {
            self.clear_ahead(need, class);
        }
        if let Some(extent) = self.space.take(need, 0) {
            return Ok(extent);
        }
        if is_growing || self.limbo_bytes >= need.bytes {
            return Err(NoRoom::Pending);
        }
        let window = self.window(need, class).or_else(|| self.space.window_anywhere(need, class));
        match window {
            Some(window) => {
                self.evict_window(window);
                Err(NoRoom::Pending)
            }
            None if self.limbo_bytes > 0 => Err(NoRoom::Pending),
            None => Err(NoRoom::Full),
        }
    }

    /// Byte offset on the device of room that was taken.
    pub(crate) fn offset_of(&self, extent: ExtentId) -> u64 {
        self.space.payload_offset(extent)
    }

    /// Gives back room that nothing was written to, or that holds nothing of use.
    pub(crate) fn give_back(&mut self, extent: ExtentId) {
        self.space.let_go(extent);
    }

    /// Leaves room alone until a restart that the device failed to write.
    pub(crate) fn quarantine(&mut self, extent: ExtentId) {
        self.space.pin(extent);
        self.quarantined_bytes += self.space[extent].bytes();
        self.space.let_go(extent);
    }

    /// The containers have grown to so many bytes.
    pub(crate) fn grow_to(&mut self, bytes: u64) {
        self.space.grow_to(bytes);
    }

    /// Bytes that the containers have or will have.
    pub(crate) fn room_to_come(&self) -> u64 {
        self.space.end().max(self.settings.expected_bytes)
    }

    /// Bytes that the containers will have; room is waited for, not made, until then.
    pub(crate) const fn expect(&mut self, bytes: u64) {
        self.settings.expected_bytes = bytes;
    }

    /// Evicts ahead of need, in windows for blocks of this size.
    fn clear_ahead(&mut self, need: Footprint, class: Retention) {
        let end = self.space.end();
        let ahead = (end / 100 * AHEAD_PERCENT).max(AHEAD_BYTES_MIN).min(end / 8);
        for _ in 0..AHEAD_WINDOWS {
            let coming = self.space.bytes_in(State::Free) + self.limbo_bytes;
            if coming >= ahead + need.bytes {
                return;
            }
            let Some(window) = self.window(need, class) else {
                return;
            };
            self.evict_window(window);
        }
    }

    /// A window for `need` around entries that are as cold and of as low a class as can be.
    fn window(&mut self, need: Footprint, class: Retention) -> Option<Window> {
        let free = self.space.bytes_in(State::Free);
        self.search.begin();
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
        None
    }

    fn window_among_coldest(&mut self, need: Footprint, class: Retention) -> Option<Window> {
        let mut best: Option<Window> = None;
        let mut candidate = self.coldest_in(class);
        for count in 1..=CANDIDATES * ROUNDS {
            let id = candidate?;
            let extent = self.entry(id).extent;
            if let Some(window) = self.space.window_around(extent, need, class, &mut self.search)
                && best.is_none_or(|best| window.cost_bytes < best.cost_bytes)
            {
                best = Some(window);
            }
            let good = best.is_some_and(|best| best.is_cheap_for(need));
            let round_is_over = count.is_multiple_of(CANDIDATES);
            if good || self.search.is_exhausted() || (round_is_over && best.is_some()) {
                break;
            }
            candidate = self.evictable_from(self.order.warmer(id));
            if candidate.is_none() {
                break;
            }
        }
        best
    }

    fn coldest_in(&mut self, class: Retention) -> Option<EntryId> {
        self.evictable_from(self.order.coldest(class))
    }

    /// The first evictable entry from `candidate` on. Those that are met before go to the warm end.
    fn evictable_from(&mut self, mut candidate: Option<EntryId>) -> Option<EntryId> {
        // Whoever was moved is not met again: there are evictable ones, or nobody walks.
        let mut left = self.entries.len();
        while let Some(id) = candidate {
            if self.space[self.entry(id).extent].is_evictable() {
                return Some(id);
            }
            left = left.checked_sub(1)?;
            candidate = self.order.warmer(id);
            self.warm(id);
        }
        None
    }

    fn evict_window(&mut self, window: Window) {
        let mut victims = core::mem::take(&mut self.victims);
        victims.clear();
        let ranges = self.space.ranges_of(window);
        let stored = ranges.filter(|&id| self.space[id].state() == State::Stored);
        victims.extend(stored.map(|id| self.space[id].owner()));
        for &victim in &victims {
            self.remove_by_itself(victim, Reason::Evicted);
        }
        self.victims = victims;
    }

    /// Evicts the coldest entry of `class` or below. Whether there was one.
    pub(super) fn evict_one(&mut self, class: Retention) -> bool {
        let classes = &Retention::ALL[..=class.index()];
        let victim = classes.iter().find_map(|&lower| {
            let any = self.evictable.by_class[lower.index()].rows > 0;
            if any { self.coldest_in(lower) } else { None }
        });
        if let Some(victim) = victim {
            self.remove_by_itself(victim, Reason::Evicted);
        }
        victim.is_some()
    }
}
