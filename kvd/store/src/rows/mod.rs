//! Rows: what is known of each stored block.

mod key;

use core::ops::{Index, IndexMut};

use kvd_proto::retention::Retention;

use crate::disk::Marks;
use crate::namespaces::NamespaceId;
use crate::slab::{Id, NOWHERE, Slab};
use crate::space::ExtentId;
use crate::tablespace::EntryId;
use crate::time::Timestamp;
pub(crate) use key::Key;

/// Number of a row. Reused, never outlives its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RowId(pub(crate) u32);

impl RowId {
    /// No row.
    pub(crate) const NONE: Self = Self(NOWHERE);
}

impl Id for RowId {
    const NONE: Self = Self::NONE;

    fn number(self) -> u32 {
        self.0
    }
}

/// One stored block. Kept small: a host holds millions.
///
/// The order of the fields is that of their use: a hit looks at the first 64 bytes only, which
/// the alignment keeps in one cache line or two.
#[derive(Debug)]
#[repr(C, align(32))]
pub(crate) struct Row {
    pub(crate) key: Key,
    /// [`Timestamp::NEVER`] without a time to live.
    pub(crate) expires_at: Timestamp,
    pub(crate) namespace: NamespaceId,
    pub(crate) place: Place,
    pub(crate) len_bytes: u32,
    pub(crate) class: Retention,
    /// Taken out of the eviction order because a victim was sought while it was blocked.
    pub(crate) parked: bool,
    /// Device of its copy below, if its marks say that there is one.
    pub(crate) device: u8,
    pub(crate) marks: Marks,
    /// When the latest promise ends; of meaning only while the extent is marked as promised.
    pub(crate) promised_until: Timestamp,
    pub(crate) extra: Option<Box<Extra>>,
    /// Neighbours in the ring of its family; itself if alone, none if the key is not 8 bytes.
    pub(crate) kin_previous: RowId,
    pub(crate) kin_next: RowId,
    /// The latest hand-out of its extent, a number of the rights table; checked when used.
    pub(crate) hand_out: u32,
    /// Its copy on the device; none if its marks say that there is none.
    pub(crate) entry: EntryId,
}

/// What few rows have.
#[derive(Debug)]
pub(crate) struct Extra {
    pub(crate) lineage: Option<Lineage>,
    /// What the client says of the bytes; kept while nothing else knows it.
    pub(crate) checksum: Option<u64>,
}

impl Extra {
    /// Nothing, if there is nothing to keep.
    pub(crate) fn new(lineage: Option<&[u8]>, checksum: Option<u64>) -> Option<Box<Self>> {
        let lineage = lineage.map(|bytes| Lineage(bytes.into()));
        (lineage.is_some() || checksum.is_some()).then(|| Box::new(Self { lineage, checksum }))
    }
}

/// Encoded lineage, as it was committed.
#[derive(Debug)]
pub(crate) struct Lineage(pub(crate) Box<[u8]>);

/// Where the bytes of a row are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the shared arena.
    Host(ExtentId),
}

impl Row {
    /// The extent of its copy in the arena.
    pub(crate) const fn host_extent(&self) -> ExtentId {
        let Place::Host(extent) = self.place;
        extent
    }

    pub(crate) fn is_expired(&self, now: Timestamp) -> bool {
        self.expires_at <= now
    }

    pub(crate) fn lineage(&self) -> Option<&[u8]> {
        self.extra.as_ref()?.lineage.as_ref().map(|lineage| &*lineage.0)
    }

    pub(crate) fn lineage_bytes(&self) -> u64 {
        self.lineage().map_or(0, |lineage| lineage.len() as u64)
    }

    /// A device knows it now.
    pub(crate) fn forget_checksum(&mut self) {
        if let Some(extra) = &mut self.extra {
            extra.checksum = None;
            if extra.lineage.is_none() {
                self.extra = None;
            }
        }
    }

    pub(crate) fn checksum(&self) -> Option<u64> {
        self.extra.as_ref()?.checksum
    }
}

#[derive(Debug)]
pub(crate) struct Rows(Slab<Row>);

impl Rows {
    pub(crate) const fn new() -> Self {
        Self(Slab::new())
    }

    pub(crate) const fn len(&self) -> u32 {
        self.0.len()
    }

    /// One more than the largest number of a row so far.
    pub(crate) const fn end(&self) -> u32 {
        self.0.end()
    }

    pub(crate) fn insert(&mut self, row: Row) -> RowId {
        RowId(self.0.insert(row))
    }

    /// With a number beyond all others so far.
    pub(crate) fn insert_at(&mut self, id: RowId, row: Row) {
        self.0.insert_at(id.0, row);
    }

    pub(crate) fn remove(&mut self, id: RowId) -> Row {
        self.0.remove(id.0)
    }

    pub(crate) fn get(&self, id: RowId) -> Option<&Row> {
        self.0.get(id.0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RowId, &Row)> {
        self.0.iter().map(|(index, row)| (RowId(index), row))
    }
}

impl Index<RowId> for Rows {
    type Output = Row;

    fn index(&self, id: RowId) -> &Row {
        self.0.at(id.0)
    }
}

impl IndexMut<RowId> for Rows {
    fn index_mut(&mut self, id: RowId) -> &mut Row {
        self.0.at_mut(id.0)
    }
}

#[cfg(test)]
mod tests {
    use super::Row;
    use core::mem::offset_of;

    #[test]
    fn a_row_stays_small() {
        assert_eq!(size_of::<Row>(), 96);
        assert_eq!(offset_of!(Row, promised_until), 64);
        assert!(offset_of!(Row, marks) < 64);
    }
}
