//! What keeps entries where they are: use, pins and promises.

use super::{EntryId, Tablespace, WallTime};
use crate::space::{ExtentId, State};

/// Promises end on a multiple of so many milliseconds, the next one up.
const TICK_MS: u64 = 64;

impl Tablespace {
    /// The entry was used.
    pub(crate) fn touch(&mut self, id: EntryId) {
        self.warm(id);
    }

    /// Keeps the bytes where they are until [`Self::unpin`], whatever becomes of the entry.
    #[must_use = "the extent is never free again without unpin"]
    pub(crate) fn pin(&mut self, id: EntryId) -> ExtentId {
        let extent = self.entry(id).extent;
        self.uncount_evictable(extent);
        self.space.pin(extent);
        extent
    }

    /// Takes back what [`Self::pin`] did.
    pub(crate) fn unpin(&mut self, extent: ExtentId) {
        let has_entry = self.space[extent].state() == State::Stored;
        self.space.unpin(extent);
        if has_entry {
            self.count_evictable(extent);
        }
    }

    /// Keeps the entry until then, unless its time ends or it is cleared. Whether that is promised:
    /// at most a quarter of the device is.
    pub(crate) fn promise(&mut self, id: EntryId, until: WallTime) -> bool {
        let extent = self.entry(id).extent;
        let tick = self.tick_after(until);
        if !self.space[extent].promised() {
            let bytes = self.space[extent].bytes();
            if self.promises.bytes + bytes > self.space.end() / 4 {
                return false;
            }
            self.uncount_evictable(extent);
            self.space.set_promised(extent, true);
            self.promises.rows += 1;
            self.promises.bytes += bytes;
        } else if self.entry(id).promised_until >= tick {
            return true;
        }
        self.entries.at_mut(id.0).promised_until = tick;
        self.promises.push(tick, id);
        true
    }

    /// Ends one promise whose time has come. Whether there was one to look at.
    pub(super) fn settle_promise(&mut self, now: WallTime) -> bool {
        let Some((until, id)) = self.promises.pop_due(self.tick_at(now)) else {
            return false;
        };
        let live = self.entries.get(id.0).filter(|entry| entry.promised_until == until);
        if let Some(extent) = live.map(|entry| entry.extent)
            && self.space[extent].promised()
        {
            self.space.set_promised(extent, false);
            self.promises.rows -= 1;
            self.promises.bytes -= self.space[extent].bytes();
            self.count_evictable(extent);
        }
        true
    }

    pub(super) fn sweep_promises(&mut self) {
        if self.promises.needs_sweep() {
            let (entries, space) = (&self.entries, &self.space);
            self.promises.sweep(|until, id| {
                let live = entries.get(id.0).filter(|entry| entry.promised_until == until);
                live.is_some_and(|entry| space[entry.extent].promised())
            });
        }
    }

    pub(super) fn promise_is_due(&self, now: WallTime) -> bool {
        self.promises.is_due(self.tick_at(now))
    }

    /// Counts the entry of `extent` among the evictable ones, if it is one now.
    pub(super) fn count_evictable(&mut self, extent: ExtentId) {
        let range = &self.space[extent];
        if !range.is_evictable() {
            return;
        }
        let (bytes, class, owner) = (range.bytes(), range.class(), range.owner());
        let amount = &mut self.evictable.by_class[class.index()];
        amount.space += bytes;
        amount.payload += u64::from(self.entries.at(owner.0).len_bytes);
        amount.rows += 1;
        self.space.loosened(class);
    }

    /// The entry of `extent`, if evictable, is about to be no more so.
    pub(super) fn uncount_evictable(&mut self, extent: ExtentId) {
        let range = &self.space[extent];
        if !range.is_evictable() {
            return;
        }
        let amount = &mut self.evictable.by_class[range.class().index()];
        amount.space -= range.bytes();
        amount.payload -= u64::from(self.entries.at(range.owner().0).len_bytes);
        amount.rows -= 1;
    }

    fn tick_at(&self, now: WallTime) -> u32 {
        let since = now.0.saturating_sub(self.settings.now.0);
        u32::try_from(since / TICK_MS).unwrap_or(u32::MAX)
    }

    fn tick_after(&self, until: WallTime) -> u32 {
        self.tick_at(until).saturating_add(1)
    }
}
