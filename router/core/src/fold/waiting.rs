//! Blocks whose parent has not been seen yet. They wait for it, for a while, and are taken out if they are removed
//! meanwhile.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use kvd_proto::events::CacheTier;

use super::Moment;

/// Most events that wait.
const EVENTS_MAX: usize = 65_536;
/// Most tokens in them.
const TOKENS_MAX: usize = 4 << 20;
/// How long an event waits.
const WAIT_MS: u64 = 60_000;

/// Blocks of one event, with all that their names depend on.
#[derive(Clone, Debug)]
pub(super) struct Orphan {
    pub(super) tier: CacheTier,
    /// What the view calls the parent.
    pub(super) parent: u64,
    pub(super) block_size: u32,
    /// What the view calls each block; nothing once it was removed.
    pub(super) blocks: Vec<Option<u64>>,
    pub(super) tokens: Vec<u32>,
    /// What else goes into the identity of a block, by its position.
    pub(super) extra: Vec<(usize, Vec<u8>)>,
}

#[derive(Debug, Default)]
pub(super) struct Waiting {
    orphans: HashMap<u64, Orphan, FixedState>,
    by_parent: HashMap<u64, Vec<u64>, FixedState>,
    by_block: HashMap<(CacheTier, u64), (u64, usize), FixedState>,
    order: VecDeque<(Moment, u64)>,
    tokens: usize,
    next: u64,
}

impl Waiting {
    /// Lets an event wait. Returns how many had to go for it.
    pub(super) fn hold(&mut self, orphan: Orphan, now: Moment) -> u64 {
        let number = self.next;
        self.next += 1;
        for (at, block) in orphan.blocks.iter().enumerate() {
            let Some(block) = block else { continue };
            // The same block once more: the earlier event no longer speaks for it.
            if let Some((other, at)) = self.by_block.insert((orphan.tier, *block), (number, at)) {
                self.strike(other, at);
            }
        }
        self.tokens += orphan.tokens.len();
        self.by_parent.entry(orphan.parent).or_default().push(number);
        self.orphans.insert(number, orphan);
        self.order.push_back((now.after(WAIT_MS), number));
        let mut gone = 0;
        while self.orphans.len() > EVENTS_MAX || self.tokens > TOKENS_MAX {
            gone += u64::from(self.drop_oldest());
        }
        gone
    }

    /// The events that waited for this block.
    pub(super) fn release(&mut self, parent: u64) -> Vec<Orphan> {
        if self.orphans.is_empty() {
            return Vec::new();
        }
        let numbers = self.by_parent.remove(&parent).unwrap_or_default();
        numbers.iter().filter_map(|number| self.take(*number)).collect()
    }

    /// A block was removed while it waited. Whether it did.
    pub(super) fn remove(&mut self, tier: CacheTier, block: u64) -> bool {
        let Some((number, at)) = self.by_block.remove(&(tier, block)) else {
            return false;
        };
        self.strike(number, at);
        true
    }

    /// Drops what waited in vain. Returns how many events.
    pub(super) fn expire(&mut self, now: Moment) -> u64 {
        let mut gone = 0;
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            gone += u64::from(self.drop_oldest());
        }
        gone
    }

    pub(super) fn clear(&mut self) {
        *self = Self { next: self.next, ..Self::default() };
    }

    fn strike(&mut self, number: u64, at: usize) {
        let orphan = self.orphans.get_mut(&number);
        if let Some(block) = orphan.and_then(|orphan| orphan.blocks.get_mut(at)) {
            *block = None;
        }
    }

    /// Whether there was still an event at the front.
    fn drop_oldest(&mut self) -> bool {
        let Some((_, number)) = self.order.pop_front() else {
            return false;
        };
        let Some(orphan) = self.take(number) else {
            return false;
        };
        if let Some(siblings) = self.by_parent.get_mut(&orphan.parent) {
            siblings.retain(|other| *other != number);
            if siblings.is_empty() {
                self.by_parent.remove(&orphan.parent);
            }
        }
        true
    }

    fn take(&mut self, number: u64) -> Option<Orphan> {
        let orphan = self.orphans.remove(&number)?;
        self.tokens -= orphan.tokens.len();
        for block in orphan.blocks.iter().flatten() {
            self.by_block.remove(&(orphan.tier, *block));
        }
        // What left before its time leaves its place in the order; not for long, and not for more than twice the rest.
        if self.order.len() > 2 * self.orphans.len() + 64 {
            self.order.retain(|(_, number)| self.orphans.contains_key(number));
        }
        Some(orphan)
    }
}
