//! The store's decisions, told as changes of tiers.

use kvd_proto::block_key::Namespace;
use kvd_proto::events::{CacheTier, Reason};
use kvd_proto::miss::MissReason;

use super::{TierBlock, TierChange, TierChanges};
use crate::disk::Below;
use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::journal::Reason as Gone;
use crate::tablespace::{EntryId, Tablespace};

impl Store {
    /// A row can be read now, or has another value.
    pub(crate) fn tell_stored(&mut self, id: RowId) {
        self.tell(|store| TierChange::Stored(store.tier_block(id)));
    }

    /// A row is about to leave for `reason`.
    pub(crate) fn tell_removed(&mut self, id: RowId, reason: MissReason) {
        self.tell(|store| {
            let stays_below = store.device_of(id).is_some();
            let hinted = store.rows[id].marks.hinted();
            let reason = match reason {
                MissReason::Evicted(_) if stays_below => Some(Reason::Demote),
                // Only the time of the copy is over.
                MissReason::Expired if hinted && stays_below => Some(Reason::Demote),
                MissReason::Evicted(_) => Some(Reason::Evict),
                MissReason::Expired => Some(Reason::Ttl),
                MissReason::Cleared => Some(Reason::Clear),
                MissReason::Corrupt
                | MissReason::NeverStored
                | MissReason::OtherNamespace
                | MissReason::Deadline
                | MissReason::Shed => None,
            };
            TierChange::Removed(store.tier_block(id), reason)
        });
    }

    fn tell(&mut self, change: impl FnOnce(&Self) -> TierChange<'_>) {
        if self.config.events {
            let mut tiers = core::mem::take(&mut self.tiers);
            tiers.push(change(self));
            self.tiers = tiers;
        }
    }

    pub(super) fn tier_block(&self, id: RowId) -> TierBlock<'_> {
        let row = &self.rows[id];
        let names = self.namespaces.at(row.namespace);
        TierBlock {
            tier: CacheTier::L2,
            namespace: Namespace { model: &names.model, compat_key: &names.compat_key },
            key: row.key.as_bytes(),
            lineage: row.lineage(),
            len_bytes: row.len_bytes,
        }
    }

    /// Passes on what changed on a device. Called after whatever could change something there, before anything else
    /// is told. What happens on a device before it is of use is nobody's business.
    pub(crate) fn pass_on(&mut self, device: u8) {
        if !self.config.events {
            return;
        }
        let Some(tablespace) = self.disk.devices[usize::from(device)].any_tablespace_mut() else {
            return;
        };
        let mut changes = core::mem::take(&mut tablespace.changes);
        if self.disk.devices[usize::from(device)].tablespace().is_some() {
            for change in changes.iter() {
                self.tiers.push(change);
                if let TierChange::Removed(block, _) = change {
                    self.tell_twin(device, block);
                }
            }
        }
        changes.clear();
        if let Some(tablespace) = self.disk.devices[usize::from(device)].any_tablespace_mut() {
            tablespace.changes = changes;
        }
    }

    /// After a crash two devices may have one name for a while: what is gone from one can still be read on the other.
    fn tell_twin(&mut self, device: u8, gone: TierBlock<'_>) {
        let others = (0..self.disk.count()).filter(|&other| other != device);
        let twins = others.filter_map(|other| self.disk.at(other, gone.namespace, gone.key));
        if let Some((_, Below { device, entry })) = twins.max()
            && let Some(tablespace) = self.disk.devices[usize::from(device)].tablespace()
        {
            self.tiers.push(TierChange::Stored(tablespace.tier_block(entry)));
        }
    }

    /// A device is of use from now on, with everything that it holds.
    pub(crate) fn tell_welcome(&mut self, device: u8) {
        if self.config.events && self.holds_entries(device) {
            self.tiers.push(TierChange::Untold);
        }
    }

    /// A device that was of use has failed.
    pub(crate) fn tell_failed(&mut self) {
        if self.config.events {
            self.tiers.push(TierChange::Cleared(CacheTier::L3));
            if (0..self.disk.count()).any(|device| self.holds_entries(device)) {
                self.tiers.push(TierChange::Untold);
            }
        }
    }

    fn holds_entries(&self, device: u8) -> bool {
        let tablespace = self.disk.devices[usize::from(device)].tablespace();
        tablespace.is_some_and(|tablespace| tablespace.figures().entries > 0)
    }
}

impl Tablespace {
    /// A block can be read from now on.
    pub(crate) fn tell_inserted(&mut self, id: EntryId) {
        self.tell(|at| TierChange::Stored(at.tier_block(id)));
    }

    /// A block is about to go.
    pub(crate) fn tell_gone(&mut self, id: EntryId, reason: Gone) {
        let reason = match reason {
            Gone::Evicted => Some(Reason::Evict),
            Gone::Expired => Some(Reason::Ttl),
            Gone::Cleared => Some(Reason::Clear),
            Gone::Superseded | Gone::Corrupt | Gone::Faulty => None,
        };
        self.tell(|at| TierChange::Removed(at.tier_block(id), reason));
    }

    fn tell(&mut self, change: impl FnOnce(&Self) -> TierChange<'_>) {
        if self.events {
            let mut changes: TierChanges = core::mem::take(&mut self.changes);
            changes.push(change(self));
            self.changes = changes;
        }
    }

    pub(crate) fn tier_block(&self, id: EntryId) -> TierBlock<'_> {
        let entry = self.entry(id);
        TierBlock {
            tier: CacheTier::L3,
            namespace: self.namespace_of(id),
            key: entry.key(),
            lineage: entry.lineage(),
            len_bytes: entry.len_bytes(),
        }
    }
}
