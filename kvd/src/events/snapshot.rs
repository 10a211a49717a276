//! Everything that can be read, as a stream of msgpack maps, in slices.

use kvd_proto::events::{CacheTier, Owner, Row, snapshot};
use kvd_store::{TierBlock, TierChange, TierChanges, TierCursor};
use std::sync::atomic::Ordering;

use super::stream::named;
use super::timestamp;
use crate::daemon::Daemon;

/// Places of a table that are looked at under one hold of the store's lock.
const SLICE_SLOTS: u32 = 256;
/// A piece of the stream ends with the row by which it gets longer than this.
const PIECE_BYTES: usize = 64 << 10;

/// What of everything is wanted; all of it by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Of this model.
    pub model: Option<String>,
    /// Of this compatibility key.
    pub compat_key: Option<String>,
    /// In this tier.
    pub tier: Option<CacheTier>,
}

impl Wanted {
    fn covers(&self, block: &TierBlock<'_>) -> bool {
        let names = block.namespace;
        self.model.as_deref().is_none_or(|model| model == names.model)
            && self.compat_key.as_deref().is_none_or(|key| key == names.compat_key)
            && self.tier.is_none_or(|tier| tier == block.tier)
    }
}

/// A snapshot that is being read. Its rows are of no single moment: what changed since the header has a larger number
/// than the header says, and comes after them.
#[derive(Debug)]
pub struct Snapshot {
    wanted: Wanted,
    cursor: Option<TierCursor>,
    slice: TierChanges,
    rows: u64,
    has_begun: bool,
    is_over: bool,
}

impl Snapshot {
    /// One that is to begin.
    #[must_use]
    pub fn new(wanted: Wanted) -> Self {
        let cursor = Some(TierCursor::of(wanted.tier.unwrap_or(CacheTier::L2)));
        let slice = TierChanges::default();
        Self { wanted, cursor, slice, rows: 0, has_begun: false, is_over: false }
    }

    /// The next piece; nothing at the end. May wait for the store's lock.
    pub fn next_piece(&mut self, daemon: &Daemon) -> Option<Vec<u8>> {
        if self.is_over {
            return None;
        }
        let mut piece = Vec::new();
        if !self.has_begun {
            self.has_begun = true;
            daemon.events.meters.snapshots.fetch_add(1, Ordering::Relaxed);
            let published = daemon.events.published.load(Ordering::Acquire);
            snapshot::put_header(&mut piece, daemon.events.epoch, published, timestamp());
        }
        let host_id = daemon.settings.events.as_ref().map(|events| events.host_id.as_str());
        let owner = Owner { id: host_id, epoch: Some(daemon.events.epoch) };
        while piece.len() < PIECE_BYTES {
            let Some(cursor) = self.cursor.filter(|cursor| self.is_wanted(*cursor)) else {
                snapshot::put_end(&mut piece, self.rows);
                self.is_over = true;
                break;
            };
            self.slice.clear();
            let slice = &mut self.slice;
            self.cursor =
                daemon.brain.inspect(|store, _| store.tier_slice(cursor, SLICE_SLOTS, slice));
            for change in self.slice.iter() {
                let TierChange::Stored(block) = change else { continue };
                if self.wanted.covers(&block) {
                    let row = Row::new(block.key, block.lineage);
                    let namespace = named(block.namespace);
                    row.stored(block.len_bytes, block.tier, owner, namespace).encode(&mut piece);
                    self.rows += 1;
                }
            }
        }
        Some(piece)
    }

    fn is_wanted(&self, cursor: TierCursor) -> bool {
        self.wanted.tier.is_none_or(|tier| tier == cursor.tier())
    }
}
