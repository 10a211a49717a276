//! What is known of each block on a device.

use kvd_proto::block_key::Namespace;
use kvd_proto::retention::Retention;

use super::WallTime;
use super::journal::Reason;
use crate::namespaces::NamespaceId;
use crate::rows::{Key, RowId};
use crate::slab::{Id, NOWHERE};
use crate::space::ExtentId;

/// Number of an entry. Reused, never outlives its entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct EntryId(pub(crate) u32);

impl EntryId {
    /// No entry.
    pub(crate) const NONE: Self = Self(NOWHERE);
}

impl Id for EntryId {
    const NONE: Self = Self::NONE;

    fn number(self) -> u32 {
        self.0
    }
}

/// One block on a device. Kept small: a device holds millions.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) key: Key,
    /// [`WallTime::NEVER`] without a time to live.
    pub(super) expires_at: WallTime,
    /// Grows with every insert on any device; never used twice.
    pub(super) generation: u64,
    /// CRC-64/NVME over the bytes, then the key.
    pub(super) checksum: u64,
    pub(super) lineage: Option<Box<Lineage>>,
    pub(crate) namespace: NamespaceId,
    pub(super) extent: ExtentId,
    pub(super) len_bytes: u32,
    /// Its copy in the arena, if there is one.
    pub(super) host: RowId,
    /// When the latest promise ends; of meaning only while the extent is marked as promised.
    pub(super) promised_until: u32,
    pub(super) class: Retention,
    /// The latest snapshot that need not look at it (any more).
    pub(super) seen: u8,
}

/// Encoded lineage, as it was committed.
#[derive(Debug)]
pub(super) struct Lineage(pub(super) Box<[u8]>);

impl Entry {
    pub(crate) fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    pub(crate) const fn expires_at(&self) -> WallTime {
        self.expires_at
    }

    pub(crate) const fn generation(&self) -> u64 {
        self.generation
    }

    pub(crate) const fn checksum(&self) -> u64 {
        self.checksum
    }

    pub(crate) fn lineage(&self) -> Option<&[u8]> {
        self.lineage.as_ref().map(|lineage| &*lineage.0)
    }

    pub(crate) const fn len_bytes(&self) -> u32 {
        self.len_bytes
    }

    pub(crate) const fn class(&self) -> Retention {
        self.class
    }

    pub(crate) const fn host(&self) -> RowId {
        self.host
    }

    pub(super) fn is_expired(&self, now: WallTime) -> bool {
        self.expires_at <= now
    }
}

/// What a finished write to a device brings with it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    /// Where it was written, from [`super::Tablespace::take_room`].
    pub(crate) extent: ExtentId,
    pub(crate) namespace: Namespace<'a>,
    pub(crate) key: &'a [u8],
    pub(crate) len_bytes: u32,
    pub(crate) checksum: u64,
    pub(crate) class: Retention,
    /// [`WallTime::NEVER`] without a time to live.
    pub(crate) expires_at: WallTime,
    /// Larger than that of every entry before it, on any device.
    pub(crate) generation: u64,
    pub(crate) lineage: Option<&'a [u8]>,
    /// The row that it was written from, if that is still there.
    pub(crate) host: RowId,
}

/// An entry that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    /// Its number, free for others now.
    pub(crate) entry: EntryId,
    /// The row that was linked to it.
    pub(crate) host: RowId,
    /// Hash of its name, as [`super::Tablespace::hash`] gives it.
    pub(crate) hash: u64,
    pub(crate) class: Retention,
    pub(crate) len_bytes: u32,
    pub(crate) reason: Reason,
}

#[cfg(test)]
mod tests {
    use super::Entry;

    #[test]
    fn an_entry_stays_small() {
        assert_eq!(size_of::<Entry>(), 96);
    }
}
