//! The whole tablespace, checked against itself: what tests ask for after every step.

use kvd_proto::retention::Retention;

use super::{EntryId, Tablespace, WallTime};
use crate::evict::Evict;
use crate::room::Evictable;
use crate::space::State;

impl Tablespace {
    /// The entries of a class, coldest first.
    #[cfg(test)]
    pub(super) fn each_coldest(&self, class: Retention, mut visit: impl FnMut(&super::Entry)) {
        let first = self.order.coldest(class);
        core::iter::successors(first, |&id| self.order.warmer(id))
            .for_each(|id| visit(self.entry(id)));
    }

    /// Checks everything against everything else; costs time in proportion to the entries.
    ///
    /// # Panics
    /// If any invariant is broken.
    pub fn assert_consistent(&self) {
        self.space.assert_consistent();
        let mut with_ttl = 0;
        let (mut payload_bytes, mut blob_bytes) = (0, 0);
        for (number, entry) in self.entries.iter() {
            let id = EntryId(number);
            let extent = &self.space[entry.extent];
            assert_eq!(extent.state(), State::Stored);
            assert_eq!((extent.owner(), extent.class()), (id, entry.class));
            assert!(u64::from(entry.len_bytes) <= extent.bytes());
            assert!(entry.generation <= self.generation);
            let found = self.find(self.namespace_of(id), entry.key(), WallTime(0));
            assert_eq!(found, Some(id), "two entries have one name");
            let has_ttl = entry.expires_at != WallTime::NEVER;
            assert_eq!(self.expiries.contains(&(entry.expires_at.second(), id)), has_ttl);
            with_ttl += usize::from(has_ttl);
            payload_bytes += u64::from(entry.len_bytes);
            blob_bytes += (entry.key().len() + entry.lineage().map_or(0, <[u8]>::len)) as u64;
        }
        assert_eq!(self.index.len(), self.entries.len() as usize);
        assert_eq!(self.expiries.len(), with_ttl);
        assert_eq!((self.payload_bytes, self.blob_bytes), (payload_bytes, blob_bytes));
        assert_eq!(self.name_bytes, self.count_names());
        assert!(self.snapshot_bytes() <= self.settings.snapshot_bytes_max);
        self.assert_order();
        self.assert_extents();
    }

    fn assert_order(&self) {
        let mut in_order = 0;
        for class in Retention::ALL {
            let first = self.order.coldest(class);
            for id in core::iter::successors(first, |&id| self.order.warmer(id)) {
                assert_eq!(self.entry(id).class, class);
                in_order += 1;
            }
        }
        assert_eq!(in_order, self.entries.len());
    }

    fn assert_extents(&self) {
        let mut evictable = Evictable::default();
        let (mut promised, mut promised_bytes) = (0, 0);
        self.space.each(|_, extent| {
            if extent.is_evictable() {
                let amount = &mut evictable.by_class[extent.class().index()];
                amount.space += extent.bytes();
                amount.payload += u64::from(self.entry(extent.owner()).len_bytes);
                amount.rows += 1;
            }
            promised += u64::from(extent.promised());
            promised_bytes += if extent.promised() { extent.bytes() } else { 0 };
        });
        assert_eq!(evictable, self.evictable);
        assert_eq!((promised, promised_bytes), (self.promises.rows, self.promises.bytes));
        let limbo: u64 = self.limbo.iter().map(|&(_, extent)| self.space[extent].bytes()).sum();
        assert_eq!(limbo, self.limbo_bytes);
        let orphaned = self.space.bytes_in(State::Orphaned);
        assert!(orphaned >= limbo + self.quarantined_bytes);
    }
}
