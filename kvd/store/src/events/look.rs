//! Looking at everything that is held, slice by slice, and at the sums of it.

use kvd_proto::block_key::Namespace;
use kvd_proto::events::{CacheTier, Tally};

use super::{TierChange, TierChanges};
use crate::rows::RowId;
use crate::store::Store;
use crate::tablespace::{EntryId, Tablespace};

/// Where a look at everything goes on: rows first, then device by device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierCursor {
    /// 0 for rows, then one more than the number of the device.
    part: u8,
    at: u32,
}

impl TierCursor {
    /// The beginning of a tier.
    #[must_use]
    pub const fn of(tier: CacheTier) -> Self {
        let part = match tier {
            CacheTier::Device | CacheTier::L2 => 0,
            CacheTier::L3 | CacheTier::L4 => 1,
        };
        Self { part, at: 0 }
    }

    /// The tier that comes next.
    #[must_use]
    pub const fn tier(self) -> CacheTier {
        if self.part == 0 { CacheTier::L2 } else { CacheTier::L3 }
    }
}

/// Sums of one namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TierDigest {
    /// Of the arena.
    pub l2: Tally,
    /// Of all devices; none while it is still being found out which blocks are there twice.
    pub l3: Option<Tally>,
}

impl Store {
    /// Adds what can be read from `cursor` on to `found`, as if it was stored now: at most `slots` places of a table
    /// are looked at. Where to go on, if anywhere.
    pub fn tier_slice(
        &self,
        cursor: TierCursor,
        slots: u32,
        found: &mut TierChanges,
    ) -> Option<TierCursor> {
        let TierCursor { part, at } = cursor;
        let table_end = match part.checked_sub(1) {
            None => self.rows.end(),
            Some(device) => self.tablespace_of(device).map_or(0, Tablespace::entries_end),
        };
        let end = at.saturating_add(slots).min(table_end);
        for number in at..end {
            match part.checked_sub(1) {
                None if self.rows.get(RowId(number)).is_some() => {
                    found.push(TierChange::Stored(self.tier_block(RowId(number))));
                }
                None => {}
                Some(device) => {
                    let id = EntryId(number);
                    let tablespace = self.tablespace_of(device).filter(|at| at.get(id).is_some());
                    if let Some(tablespace) = tablespace {
                        found.push(TierChange::Stored(tablespace.tier_block(id)));
                    }
                }
            }
        }
        if end < table_end {
            return Some(TierCursor { part, at: end });
        }
        (part < self.disk.count()).then_some(TierCursor { part: part + 1, at: 0 })
    }

    fn tablespace_of(&self, device: u8) -> Option<&Tablespace> {
        self.disk.devices.get(usize::from(device))?.tablespace()
    }

    /// The sums of a namespace; nothing of all tiers if it holds nothing.
    #[must_use]
    pub fn tier_digest(&self, namespace: Namespace<'_>) -> TierDigest {
        let l2 = self.named(namespace).id.map(|id| self.namespaces.at(id).tally);
        let mut l3 = Tally::default();
        for device in 0..self.disk.count() {
            l3.add(
                self.tablespace_of(device).and_then(|at| at.tally(namespace)).unwrap_or_default(),
            );
        }
        let l3 = (!self.disk.is_comparing()).then_some(l3);
        TierDigest { l2: l2.unwrap_or_default(), l3 }
    }

    /// Calls `each` with the names of namespaces that hold something, some more than once.
    pub fn tier_namespaces(&self, mut each: impl FnMut(Namespace<'_>)) {
        for (_, entry) in self.namespaces.iter() {
            each(Namespace { model: &entry.model, compat_key: &entry.compat_key });
        }
        for device in 0..self.disk.count() {
            self.tablespace_of(device)
                .into_iter()
                .flat_map(Tablespace::namespaces)
                .for_each(&mut each);
        }
    }
}
