//! Some thousand entries with the names that they need: readable without anything else.

use hashbrown::HashTable;
use rkyv::{Archive, Serialize};

use crate::tablespace::Entry;
use crate::tablespace::checksum::seal;
use crate::tablespace::format::{BLOCK, SEGMENT_BYTES, SEGMENT_HEADER_BYTES, SEGMENT_MAGIC};

/// The archived form is what stands on the device.
#[derive(Debug, Default, Archive, Serialize)]
pub(in crate::tablespace) struct Segment {
    pub(in crate::tablespace) names: Vec<Name>,
    pub(in crate::tablespace) entries: Vec<Packed>,
    /// For each entry in order: its key, then its lineage.
    pub(in crate::tablespace) blob: Vec<u8>,
}

/// A namespace.
#[derive(Debug, PartialEq, Eq, Archive, Serialize)]
pub(in crate::tablespace) struct Name {
    pub(in crate::tablespace) model: String,
    pub(in crate::tablespace) compat_key: String,
}

/// An entry without its key and lineage.
#[derive(Debug, Archive, Serialize)]
pub(in crate::tablespace) struct Packed {
    pub(in crate::tablespace) start: u64,
    pub(in crate::tablespace) generation: u64,
    pub(in crate::tablespace) checksum: u64,
    pub(in crate::tablespace) expires_at: u64,
    pub(in crate::tablespace) len_bytes: u32,
    /// Position among the names of the segment.
    pub(in crate::tablespace) name: u32,
    pub(in crate::tablespace) lineage_bytes: u32,
    pub(in crate::tablespace) key_bytes: u16,
    /// As in journals: the class's priority.
    pub(in crate::tablespace) class: u8,
}

/// A segment while it is being filled.
#[derive(Debug, Default)]
pub(super) struct Draft {
    segment: Segment,
    by_hash: HashTable<(u64, u32)>,
}

impl Draft {
    pub(super) const fn is_empty(&self) -> bool {
        self.segment.entries.is_empty()
    }

    pub(super) const fn is_full(&self, entries_max: usize) -> bool {
        self.segment.entries.len() >= entries_max || self.segment.blob.len() >= SEGMENT_BYTES
    }

    pub(super) const fn entries(&self) -> u64 {
        self.segment.entries.len() as u64
    }

    /// Number of a name in this segment.
    pub(super) fn name(&mut self, hash: u64, model: &str, compat_key: &str) -> u32 {
        let names = &mut self.segment.names;
        let is_same = |&(_, number): &(u64, u32)| {
            names
                .get(number as usize)
                .is_some_and(|name| *name.model == *model && *name.compat_key == *compat_key)
        };
        if let Some(&(_, number)) = self.by_hash.find(hash, is_same) {
            return number;
        }
        let number = u32::try_from(names.len()).unwrap_or(u32::MAX);
        names.push(Name { model: model.into(), compat_key: compat_key.into() });
        self.by_hash.insert_unique(hash, (hash, number), |&(hash, _)| hash);
        number
    }

    pub(super) fn push(&mut self, entry: &Entry, start: u64, name: u32) {
        let lineage = entry.lineage().unwrap_or_default();
        self.segment.entries.push(Packed {
            start,
            generation: entry.generation(),
            checksum: entry.checksum(),
            expires_at: entry.expires_at().0,
            len_bytes: entry.len_bytes(),
            name,
            lineage_bytes: u32::try_from(lineage.len()).unwrap_or(u32::MAX),
            key_bytes: u16::try_from(entry.key().len()).unwrap_or(u16::MAX),
            class: entry.class() as u8,
        });
        self.segment.blob.extend_from_slice(entry.key());
        self.segment.blob.extend_from_slice(lineage);
    }

    /// Appends the segment, whole blocks, and starts over.
    pub(super) fn finish(&mut self, tag: u64, number: u64, index: u64, out: &mut Vec<u8>) {
        let archive = match rkyv::to_bytes::<rkyv::rancor::Error>(&self.segment) {
            Ok(archive) => archive,
            Err(error) => panic!("a segment within its limits cannot be archived: {error}"),
        };
        let start = out.len();
        let archive_bytes = u32::try_from(archive.len()).unwrap_or(u32::MAX);
        let entries = u32::try_from(self.segment.entries.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&SEGMENT_MAGIC);
        out.extend_from_slice(&[0; 8]);
        for field in [tag, number, index] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        for field in [archive_bytes, entries] {
            out.extend_from_slice(&field.to_le_bytes());
        }
        out.resize(start + SEGMENT_HEADER_BYTES, 0);
        out.extend_from_slice(&archive);
        seal(&mut out[start..]);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
        self.segment.names.clear();
        self.segment.entries.clear();
        self.segment.blob.clear();
        self.by_hash.clear();
    }
}
