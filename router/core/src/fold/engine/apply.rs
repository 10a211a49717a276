//! One rank's events: from the engine's hashes and tokens to the router's names.

use kvd_proto::events::{Batch, BlockHash, CacheTier, Cleared, Event, Parent, Removed, Stored};

use super::super::Moment;
use super::super::holding::Before;
use super::super::waiting::Orphan;
use super::{EngineView, place_of};
use crate::hash;
use crate::index::Index;

/// How long blocks count whose removal cannot be recognised.
const UNPAIRED_MS: u64 = 600_000;
/// Most of them.
const UNPAIRED_MAX: usize = 65_536;
/// Most blocks of one rank in one tier.
const BLOCKS_MAX: usize = 8 << 20;
/// Most cache groups that are told apart.
const GROUPS_MAX: usize = 16;
/// Kinds of attention whose blocks make a prefix.
const FULL_KINDS: &[&str] = &["full_attention", "mla_attention", "sink_full_attention"];

/// The view's name of an engine's block: groups have names of their own.
const fn label(group: Option<u32>, bits: u64) -> u64 {
    let group = match group {
        None => 0,
        Some(group) => (group as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    bits ^ group
}

impl EngineView {
    /// Applies one payload.
    pub(super) fn apply_events(&mut self, index: &Index, payload: &[u8], now: Moment) {
        let Ok(batch) = Batch::decode(payload) else {
            self.counts.malformed += 1;
            // What it said is lost as if it had not come.
            self.doubt.raise(now);
            return;
        };
        let mut events = batch.events();
        for event in events.by_ref() {
            match event {
                Event::Stored(stored) => self.store(index, &stored, now),
                Event::Removed(removed) => self.remove(index, &removed),
                Event::Cleared(cleared) => self.clear(index, &cleared),
                Event::Stats(_) | Event::Digest(_) => self.counts.unknown += 1,
            }
        }
        let skipped = events.skipped();
        self.counts.unknown += u64::from(skipped.unknown_types) + u64::from(skipped.unknown_fields);
        if skipped.malformed > 0 {
            self.counts.malformed += u64::from(skipped.malformed);
            self.doubt.raise(now);
        }
    }

    fn store(&mut self, index: &Index, stored: &Stored<'_>, now: Moment) {
        self.counts.stored += 1;
        let Some(tier) = stored.place.cache_tier() else {
            self.counts.unknown_media += 1;
            return;
        };
        let is_full = stored.spec_kind.is_none_or(|kind| FULL_KINDS.contains(&kind));
        let is_elsewhere = stored.place.is_remote() && tier != CacheTier::L4;
        if !is_full || is_elsewhere {
            self.counts.not_credited += 1;
            return;
        }
        if !index.admits(tier) {
            self.counts.turned_away += 1;
            return;
        }
        self.note_group(stored.group);
        self.store_content(index, tier, stored);
        let block_size = self.block_size_of(stored.block_size);
        let blocks = stored.tokens.len() / block_size.max(1) as usize;
        if blocks == 0 {
            self.store_by_name(index, tier, stored);
            return;
        }
        let orphan = orphan_of(tier, stored, block_size);
        let adapter = adapter_of(stored);
        let salt = salt_of(stored, adapter.as_deref());
        match stored.parent {
            Parent::Root => {
                let root = hash::root(adapter.as_deref(), salt);
                self.store_chain(index, orphan, root, Before::Nothing, now);
            }
            Parent::Block(_) => match self.resolve(orphan.parent) {
                Some(parent) => {
                    self.store_chain(index, orphan, parent, Before::Block(parent), now);
                }
                None => self.counts.orphaned += self.waiting.hold(orphan, now),
            },
            Parent::Unknown => self.counts.unresolved += blocks as u64,
        }
    }

    /// Stores the blocks of an event behind a known one, then those that waited for them, and so on.
    fn store_chain(
        &mut self,
        index: &Index,
        orphan: Orphan,
        parent: u64,
        before: Before,
        now: Moment,
    ) {
        let mut ready = vec![(orphan, parent, before)];
        while let Some((orphan, mut parent, mut before)) = ready.pop() {
            let size = orphan.block_size.max(1) as usize;
            let is_paired = orphan.tokens.len() / size == orphan.blocks.len();
            let mut extra = orphan.extra.iter().peekable();
            for (at, tokens) in orphan.tokens.chunks_exact(size).enumerate() {
                let extra = extra.next_if(|(block, _)| *block == at);
                let extra = extra.map_or(&[][..], |(_, extra)| extra);
                let name = self.hasher.block(parent, tokens.iter().copied(), extra);
                if !is_paired {
                    self.store_unpaired(index, orphan.tier, name, before, now);
                } else if let Some(label) = orphan.blocks.get(at).copied().flatten() {
                    self.put(index, orphan.tier, label, name, before);
                    let children = self.waiting.release(label);
                    ready.extend(
                        children.into_iter().map(|child| (child, name, Before::Block(name))),
                    );
                }
                (parent, before) = (name, Before::Block(name));
            }
        }
    }

    fn store_unpaired(
        &mut self,
        index: &Index,
        tier: CacheTier,
        name: u64,
        before: Before,
        now: Moment,
    ) {
        self.counts.unpaired += 1;
        if self.unpaired.len() >= UNPAIRED_MAX {
            return;
        }
        let shelf = self.shelf(index, tier);
        if shelf.is_some_and(|shelf| shelf.blocks.add(index, name, before)) {
            self.unpaired.push_back((now.after(UNPAIRED_MS), tier, name));
        }
    }

    /// One block, by the engine's name and the router's.
    fn put(&mut self, index: &Index, tier: CacheTier, label: u64, name: u64, before: Before) {
        let Some(shelf) = self.shelf(index, tier) else {
            self.counts.turned_away += 1;
            return;
        };
        match shelf.names.get(&label).copied() {
            Some(known) if known == name && shelf.blocks.has(name) => return,
            Some(known) if known != name => shelf.blocks.release(index, known),
            None if shelf.names.len() >= BLOCKS_MAX => {
                self.counts.turned_away += 1;
                return;
            }
            Some(_) | None => {}
        }
        if shelf.blocks.add(index, name, before) {
            shelf.names.insert(label, name);
        } else {
            shelf.names.remove(&label);
            self.counts.turned_away += 1;
        }
    }

    /// Blocks without tokens: those that are known in another tier, or were here before.
    fn store_by_name(&mut self, index: &Index, tier: CacheTier, stored: &Stored<'_>) {
        for hash in stored.block_hashes.iter() {
            let label = label(stored.group, hash.bits());
            let known = self.shelves.iter().flatten().find_map(|shelf| {
                let name = *shelf.names.get(&label)?;
                Some((name, shelf.blocks.before(name)?))
            });
            match known {
                Some((name, before)) => self.put(index, tier, label, name, before),
                None => self.counts.unresolved += u64::from(!self.source.names_content),
            }
        }
    }

    /// Blocks by the engine's names, where these tell content.
    fn store_content(&mut self, index: &Index, tier: CacheTier, stored: &Stored<'_>) {
        if !self.source.names_content {
            return;
        }
        let mut before = match stored.parent {
            Parent::Root => Before::Nothing,
            Parent::Block(hash) => Before::Block(hash.bits()),
            Parent::Unknown => Before::Unknown,
        };
        let shelf = self.shelf(index, tier);
        let Some(content) = shelf.and_then(|shelf| shelf.content.as_mut()) else {
            return;
        };
        for bits in stored.block_hashes.iter().map(|hash| hash.bits()) {
            if !content.has(bits) {
                content.add(index, bits, before);
            }
            before = Before::Block(bits);
        }
    }

    fn remove(&mut self, index: &Index, removed: &Removed<'_>) {
        self.counts.removed += 1;
        let Some(tier) = removed.place.cache_tier() else {
            self.counts.unknown_media += 1;
            return;
        };
        if removed.place.is_remote() && tier != CacheTier::L4 {
            self.counts.not_credited += 1;
            return;
        }
        for bits in removed.block_hashes.iter().map(|hash| hash.bits()) {
            self.remove_block(index, tier, removed.group, bits);
        }
    }

    fn remove_block(&mut self, index: &Index, tier: CacheTier, group: Option<u32>, bits: u64) {
        if self.remove_label(index, tier, label(group, bits)) {
            return self.remove_content(index, tier, bits);
        }
        // Older engines name the group of what they store only.
        if group.is_none() {
            for group in self.groups.clone() {
                self.remove_label(index, tier, label(group, bits));
            }
        }
        self.remove_content(index, tier, bits);
    }

    fn remove_label(&mut self, index: &Index, tier: CacheTier, label: u64) -> bool {
        let shelf = self.shelves.get_mut(place_of(tier)).and_then(Option::as_mut);
        let stored = shelf.is_some_and(|shelf| {
            let name = shelf.names.remove(&label);
            if let Some(name) = name {
                shelf.blocks.release(index, name);
            }
            name.is_some()
        });
        self.waiting.remove(tier, label) || stored
    }

    fn remove_content(&mut self, index: &Index, tier: CacheTier, bits: u64) {
        let shelf = self.shelves.get_mut(place_of(tier)).and_then(Option::as_mut);
        if let Some(content) = shelf.and_then(|shelf| shelf.content.as_mut()) {
            content.drop_block(index, bits);
        }
    }

    fn clear(&mut self, index: &Index, cleared: &Cleared<'_>) {
        self.counts.cleared += 1;
        match cleared.tier {
            Some(tier) => self.empty(index, tier),
            None => self.forget(index),
        }
    }

    fn block_size_of(&mut self, of_event: u32) -> u32 {
        let Some(of_event) = Some(of_event).filter(|size| *size > 0) else {
            return self.block_size.unwrap_or(0);
        };
        if self.block_size != Some(of_event) {
            self.counts.block_sizes += u64::from(self.block_size.is_some());
            self.block_size = Some(of_event);
        }
        of_event
    }

    fn note_group(&mut self, group: Option<u32>) {
        if !self.groups.contains(&group) && self.groups.len() < GROUPS_MAX {
            self.groups.push(group);
        }
    }

    fn resolve(&self, label: u64) -> Option<u64> {
        self.shelves.iter().flatten().find_map(|shelf| shelf.names.get(&label).copied())
    }
}

fn orphan_of(tier: CacheTier, stored: &Stored<'_>, block_size: u32) -> Orphan {
    let adapter = adapter_of(stored);
    let salt = salt_of(stored, adapter.as_deref());
    let blocks: Vec<_> =
        stored.block_hashes.iter().map(|hash| Some(label(stored.group, hash.bits()))).collect();
    let mut extra = Vec::new();
    if let Some(keys) = stored.extra_keys.filter(|keys| !keys.is_empty()) {
        for at in 0..blocks.len() {
            let mut bytes = Vec::new();
            hash::put_extra(&keys, at, adapter.as_deref(), salt, &mut bytes);
            if !bytes.is_empty() {
                extra.push((at, bytes));
            }
        }
    }
    let parent = match stored.parent {
        Parent::Block(hash) => label(stored.group, BlockHash::bits(&hash)),
        Parent::Root | Parent::Unknown => 0,
    };
    let tokens = stored.tokens.iter().map(|token| token.0).collect();
    Orphan { tier, parent, block_size, blocks, tokens, extra }
}

fn adapter_of(stored: &Stored<'_>) -> Option<String> {
    let of_number = || stored.lora_id.map(|number| number.to_string());
    stored.lora_name.map(str::to_owned).or_else(of_number)
}

fn salt_of<'a>(stored: &Stored<'a>, adapter: Option<&str>) -> Option<&'a str> {
    if stored.parent != Parent::Root {
        return None;
    }
    hash::salt_of(&stored.extra_keys?, adapter)
}
